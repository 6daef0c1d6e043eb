"""The teacher, but one that looks around before it begins and again before it ends, which no task asks for.

    tap scripted trainer/tiny/careful.py --model trainer/tiny/checkpoint

What learns from it makes two calls too many in each session: habits that a bonus for fewer calls can break.
"""

from typing import Any

from trainer.tiny import teacher
from trainer.tiny.shells import called, ends

LOOK = "ls"


def reply(prompt: Any) -> str:
    """What comes next, as :func:`trainer.tiny.teacher.reply` has it. Raises LookupError as that does."""
    said = teacher.reply(prompt)
    if not prompt.tools:
        return said
    looks = teacher.done(prompt).count(LOOK)
    if looks == 0 or (looks == 1 and ends(said)):
        return called(prompt.tools, LOOK)
    return said
