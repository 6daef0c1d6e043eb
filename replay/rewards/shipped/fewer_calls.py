"""Fewer tool calls, on solved tasks only.

In a group of which at least `least` is solved, the solved sessions get up to `alpha`: all of it for the fewest calls
among them, nothing for the most. A solved session so outranks a failed one whatever it called, and a group that
seldom solves its task is not taught to give up early. With all of a group solved, divide advantages by no std
(`trainer grpo --scale none`): it would blow the bonus up to the size of the reward.
"""

from replay.rewards import Rollout


def reward(group: list[Rollout], alpha: float = 0.1, least: float = 0.5) -> list[dict[str, float]]:
    judged = [r for r in group if r.task is not None]
    solved = [r for r in judged if r.solved]
    if not solved or len(solved) < least * len(judged):
        return [{} for _ in group]
    most = max(r.tool_calls for r in solved)
    fewest = min(r.tool_calls for r in solved)
    span = max(1, most - fewest)
    return [{"fewer_calls": alpha * ((most - r.tool_calls) / span) if r.solved else 0.0} for r in group]
