"""Reward shaping: terms added to what a task's own test said, computed from the record, again and again.

A reward file is plain Python with one function:

    def reward(group, alpha=0.1):
        return [{"short": alpha} if r.tool_calls < 5 else {} for r in group]

It is given the finished sessions of one group (:class:`~replay.rewards.rollouts.Rollout`) and returns one mapping of
named terms for each, in their order. A session's reward is its task's plus the terms of all files. Terms are stored
beside it (in `reward_parts`: the task's own as `task`, a term as `+NAME`), so a file can be changed and run again
without new rollouts. A session whose task nobody could judge is shown to a file, but stays without a reward.

Shipped: `fewer_calls`, `length`, `format`.
"""

from replay.rewards.files import RewardError, RewardFile, load, parse
from replay.rewards.rollouts import Rollout, rollouts
from replay.rewards.scoring import Scored, again

__all__ = ["RewardError", "RewardFile", "Rollout", "Scored", "again", "load", "parse", "rollouts"]
