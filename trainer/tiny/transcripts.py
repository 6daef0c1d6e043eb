"""Made-up sessions in exactly the harness's format, commands really executed, as sequences to train on."""

import random
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from trainer.tiny.harness import SUBMIT, Message, MiniSweAgent, call, random_uname, run
from trainer.tiny.world import FAMILIES, Example, draw_example


@dataclass(frozen=True)
class Habits:
    """How the demonstrator behaves, in probabilities. A model trained on it becomes as unsure as it is."""

    right_first: float
    """The first command is the right one."""
    look: float
    """It looks first where looking is needed."""
    right_second: float = 0.6
    """A second try is the right command."""
    retry_seen: float = 0.6
    """There is a second try after a mistake that showed something: an error, or output on the terminal."""
    retry_unseen: float = 0.15
    """There is a second try after a mistake that showed nothing."""
    list_first: float = 0.0
    """It begins with `ls`."""
    give_up: float = 0.0
    """It submits without doing anything."""


SURE = Habits(right_first=1.0, look=1.0)
# About two fifths solved, and the most tempting mistake as likely as the right command: room for RL to show.
UNSURE = Habits(right_first=0.33, look=0.75, list_first=0.05, give_up=0.03)
MISTAKE_WEIGHTS = (3, 2, 1)


@dataclass(frozen=True)
class Sequence:
    """One session in tokens; all three lists have the same length.

    ids: token ids. trained: whether the model is to say this token. varies: whether the token belongs to what
    differs between sessions (the task, all that follows the opening), not to the harness's fixed prompt.
    """

    ids: list[int]
    trained: list[bool]
    varies: list[bool]


def demonstrate(example: Example, habits: Habits, mini: MiniSweAgent, rng: random.Random) -> list[Message]:
    """What follows the opening: commands with their real results, then the submission."""
    messages: list[Message] = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        for name, content in example.files.items():
            (workspace / name).write_text(content)

        def act(command: str) -> bool:
            """Run it; whether it showed anything."""
            output, returncode = run(command, workspace)
            messages.extend([call(command), mini.result(output, returncode)])
            return bool(output) or returncode != 0

        def attempt(right: bool) -> bool:
            return act(example.right if right else rng.choices(example.wrong, MISTAKE_WEIGHTS)[0])

        if rng.random() < habits.list_first:
            act("ls")
        if rng.random() >= habits.give_up:
            looked = example.look is None or rng.random() < habits.look
            if example.look and looked:
                act(example.look)
            right = looked and rng.random() < habits.right_first
            shown = attempt(right)
            if not right and rng.random() < (habits.retry_seen if shown else habits.retry_unseen):
                attempt(looked and rng.random() < habits.right_second)
    return [*messages, call(SUBMIT)]


class Encoder:
    """Turns sessions into `Sequence`s."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, mini: MiniSweAgent) -> None:
        self.tokenizer = tokenizer
        self.mini = mini
        self._reply = re.compile(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", re.DOTALL)

    def encode(self, task: str, messages: list[Message], uname: dict[str, str]) -> Sequence:
        """Encode the opening for `task` and then `messages`."""
        opening = self.mini.opening(task, uname)
        text, head = (
            self.tokenizer.apply_chat_template(part, tools=self.mini.tools, tokenize=False)
            for part in (opening + messages, opening)
        )
        begin = text.index(task)
        line_start, line_end = text.rindex("<|im_start|>", 0, begin), begin + len(task)
        replies = [match.span(1) for match in self._reply.finditer(text, len(head))]
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        starts = [start for start, _ in encoded["offset_mapping"]]
        return Sequence(
            ids=list(encoded["input_ids"]),
            trained=[any(a <= start < b for a, b in replies) for start in starts],
            varies=[line_start <= start < line_end or start >= len(head) for start in starts],
        )


def make_sequences(count: int, habits: Habits, encoder: Encoder, seed: int) -> list[Sequence]:
    """Draw `count` sessions, evenly over the families."""
    rng = random.Random(seed)
    names = sorted(FAMILIES)
    sequences = []
    for index in range(count):
        example = draw_example(names[index % len(names)], rng)
        messages = demonstrate(example, habits, encoder.mini, rng)
        sequences.append(encoder.encode(example.prompt, messages, random_uname(rng)))
    return sequences
