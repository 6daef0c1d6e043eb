"""A teacher's sessions in the words of another model's chat template: supervised examples from messages.

Sampled ids serve only the model they were sampled from. For a student with another tokenizer or template each reply is
rendered again, as the student's own template writes it, and the loss is taken on it up to and with its end of turn.
Replies whose rendering continues the sequence so far share it; where the template rewrites what came before (it drops
old reasoning, say), a new example begins: one example an assistant turn at worst, as is usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jinja2 import TemplateError

from replay.reader import Reader
from replay.rerender import openai_message
from replay.schema import Session, Turn
from replay.sequences import not_trained, paths
from trainer.imitation import Demonstrations, Example, Examples


@dataclass(slots=True)
class _Sequence:
    """An example that grows: its text, and its pieces (text, trained)."""

    text: str = ""
    pieces: list[tuple[str, bool]] = field(default_factory=list)

    def add(self, text: str, trained: bool) -> None:
        self.text += text
        self.pieces.append((text, trained))


class Student:
    """The tokenizer of the model to be taught; `stops` are its end-of-turn tokens, as text."""

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        if not tokenizer.chat_template:
            raise ValueError("the student's tokenizer has no chat template, so nothing can be rendered for it")
        self._tokenizer = tokenizer
        self._stops = tuple(stops)

    def examples(self, reader: Reader, sessions: Iterable[Session], choice: Demonstrations) -> Examples:
        """Examples of all `sessions`. Turns that the template refuses are counted in `left_out`, by reason."""
        result = Examples()
        for session in sessions:
            turns = {turn.id: turn for turn in reader.turns(session)}
            trainable = set()
            for turn in turns.values():
                reason = _refusal(turn, choice)
                if reason is not None:
                    result.left_out[reason] += turn.n_sampled
                elif turn.n_sampled:
                    trainable.add(turn.id)
            for path in paths({turn.id: turn.parent_id for turn in turns.values()}, trainable):
                steps = [turns[number] for number in path.turns]
                for sequence in self._sequences(reader, steps, path.trained, result):
                    self._finish(sequence, session.id, choice, result)
        return result

    def _sequences(
        self, reader: Reader, steps: Sequence[Turn], trained: frozenset[int], result: Examples
    ) -> list[_Sequence]:
        done: list[_Sequence] = []
        history: list[dict[str, Any]] = []
        for turn in steps:
            history += [openai_message(message) for message in reader.new_messages(turn)]
            reply = openai_message(reader.reply(turn) or {"role": "assistant", "content": ""})
            if turn.id in trained:
                try:
                    prompt, said = self._render(history, reply, reader.tools(turn))
                except (TemplateError, TypeError, ValueError) as error:
                    result.left_out[f"the student's template refuses it: {error}"] += turn.n_sampled
                else:
                    if not done or not prompt.startswith(done[-1].text):
                        done.append(_Sequence())
                    done[-1].add(prompt[len(done[-1].text) :], trained=False)
                    done[-1].add(said, trained=True)
            history.append(reply)
        return done

    def _render(
        self, history: list[dict[str, Any]], reply: dict[str, Any], tools: Sequence[Mapping[str, Any]]
    ) -> tuple[str, str]:
        """The prompt's text, and what the model would say, to the end of its turn."""
        offered = [{"type": "function", "function": dict(tool)} for tool in tools] or None

        def rendered(messages: list[dict[str, Any]], generation: bool) -> str:
            text: str = self._tokenizer.apply_chat_template(
                messages, tools=offered, tokenize=False, add_generation_prompt=generation
            )
            return text

        prompt, whole = rendered(history, True), rendered([*history, reply], False)
        if not whole.startswith(prompt):
            raise ValueError("it renders a reply differently from what it asks the model to continue")
        said = whole[len(prompt) :]
        ends = [at + len(stop) for stop in self._stops if (at := said.rfind(stop)) >= 0]
        if not ends:
            raise ValueError(f"a rendered reply has no end of turn (none of {', '.join(self._stops)})")
        return prompt, said[: max(ends)]

    def _finish(self, sequence: _Sequence, session: int, choice: Demonstrations, result: Examples) -> None:
        ids: list[int] = []
        mask: list[bool] = []
        for text, trained in sequence.pieces:
            piece = self._tokenizer.encode(text, add_special_tokens=False)
            ids += piece
            mask += [trained] * len(piece)
        if choice.max_tokens is not None and len(ids) > choice.max_tokens:
            # Whole replies only: a reply cut short would teach to stop there.
            end = choice.max_tokens
            while end and mask[end - 1] and mask[end]:
                end -= 1
            result.left_out[f"row longer than {choice.max_tokens} tokens"] += sum(mask[end:])
            ids, mask = ids[:end], mask[:end]
        if any(mask):
            result.examples.append(
                Example(session=session, ids=np.array(ids, dtype=np.int32), mask=np.array(mask, dtype=np.bool_))
            )


def _refusal(turn: Turn, choice: Demonstrations) -> str | None:
    return not_trained(
        status=turn.status,
        untrainable=turn.untrainable,
        sampled=turn.n_sampled,
        logprobs=turn.n_sampled,
        purpose=turn.purpose,
        sampling=turn.sampling_sent,
        purposes=choice.purposes,
        imitate=True,
    )
