"""Made-up sessions in exactly the harness's format, commands really executed, as sequences to train on."""

import random
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from transformers import PreTrainedTokenizerFast

from trainer.tiny.harness import Harness, Message, run
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
    """One session of `harness` in tokens; all three lists have the same length.

    ids: token ids. trained: whether the model is to say this token. varies: whether the token is always shown: the
    shell tool's line, the task, all that follows the opening; not the rest of the harness's prompt. `task_end` is the
    place after the task, `followed` whether more of the prompt comes after it.
    """

    harness: str
    ids: list[int]
    trained: list[bool]
    varies: list[bool]
    task_end: int
    followed: bool


def demonstrate(example: Example, habits: Habits, harness: Harness, rng: random.Random) -> list[Message]:
    """What follows the opening: commands with their real results, then the end."""
    messages: list[Message] = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder)
        for name, content in example.files.items():
            (workspace / name).write_text(content)

        def act(command: str) -> bool:
            """Run it; whether it showed anything."""
            output = run(command, workspace)
            messages.extend([harness.call(command), harness.result(command, output)])
            return bool(output.text) or output.returncode != 0

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
    return [*messages, harness.finish()]


class Encoder:
    """Turns sessions into `Sequence`s."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.tokenizer = tokenizer
        self._reply = re.compile(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", re.DOTALL)

    def encode(self, task: str, opening: list[Message], messages: list[Message], harness: Harness) -> Sequence:
        """Encode the `opening`, which has `task` in it, and the `messages` that follow."""
        text, head = (
            self.tokenizer.apply_chat_template(part, tools=harness.tools, tokenize=False)
            for part in (opening + messages, opening)
        )
        begin = text.rindex(task, 0, len(head))
        shell = text.index(f'\n{{"name": "{harness.shell}"') + 1
        kept = [
            (shell, text.index("\n", shell)),
            (text.rindex("<|im_start|>", 0, begin), begin + len(task)),
            (len(head), len(text)),
        ]
        replies = [match.span(1) for match in self._reply.finditer(text, len(head))]
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        starts = [start for start, _ in encoded["offset_mapping"]]
        return Sequence(
            harness=harness.name,
            ids=list(encoded["input_ids"]),
            trained=[any(a <= start < b for a, b in replies) for start in starts],
            varies=[any(a <= start < b for a, b in kept) for start in starts],
            task_end=next(at for at, start in enumerate(starts) if start >= begin + len(task)),
            followed=len(head) - begin - len(task) > len("<|im_end|>\n"),
        )


def make_sequences(count: int, habits: Habits, encoder: Encoder, harnesses: list[Harness], seed: int) -> list[Sequence]:
    """Draw `count` sessions, evenly over the families and `harnesses`."""
    rng = random.Random(seed)
    names = sorted(FAMILIES)
    sequences = []
    for index in range(count):
        example = draw_example(names[index % len(names)], rng)
        harness = harnesses[index // len(names) % len(harnesses)]
        messages = demonstrate(example, habits, harness, rng)
        opening = harness.draw_opening(example.prompt, rng)
        sequences.append(encoder.encode(example.prompt, opening, messages, harness))
    return sequences
