"""Sessions as Harbor's trajectories: ATIF, the Agent Trajectory Interchange Format, version 1.7.

A trajectory is a path through the session's tree, from a root to a leaf: system and user messages are steps, and so is
each model call, with its tool calls, their results as its observation, and exact token ids and logprobs as its metrics.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from replay.reader import Reader
from replay.schema import Session, Turn

VERSION = "ATIF-v1.7"


def trajectories(reader: Reader, session: Session) -> Iterator[dict[str, Any]]:
    """A session's trajectories, in the order of their last turns."""
    turns = {turn.id: turn for turn in reader.turns(session, tokens=True)}
    numbers = {turn: number for number, turn in enumerate(turns, 1)}
    continued = {turn.parent_id for turn in turns.values()}
    for leaf in (turn for turn in turns.values() if turn.id not in continued):
        path = [leaf]
        while (parent := path[-1].parent_id) is not None:
            path.append(turns[parent])
        yield _trajectory(reader, session, path[::-1], numbers)


def _trajectory(reader: Reader, session: Session, path: Sequence[Turn], numbers: Mapping[int, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for turn in path:
        for message in reader.new_messages(turn):
            _add_context(steps, message, turn)
        _add_call(steps, reader, turn, numbers[turn.id])
    for number, step in enumerate(steps, 1):
        step["step_id"] = number
    last = path[-1]
    tools = [{"type": "function", "function": tool} for tool in reader.tools(last)]
    cached = sum(int((turn.usage or {}).get("cached") or 0) for turn in path)
    return {
        "schema_version": VERSION,
        "session_id": session.name,
        "trajectory_id": f"{session.name}#{numbers[last.id]}",
        "agent": {
            "name": session.harness or "unknown",
            "version": session.harness_version or "unknown",
            "model_name": last.model,
            **({"tool_definitions": tools} if tools else {}),
        },
        "steps": [{"step_id": step.pop("step_id"), **step} for step in steps],
        "final_metrics": {
            "total_prompt_tokens": sum(turn.prompt_length for turn in path),
            "total_completion_tokens": sum(turn.n_sampled for turn in path),
            "total_cached_tokens": cached,
            "total_steps": len(steps),
        },
        "extra": {
            "task": session.task, "group": session.group, "reward": session.reward,
            "reward_parts": session.reward_parts, "purpose": last.purpose,
        },
    }  # fmt: skip


def _add_context(steps: list[dict[str, Any]], message: Mapping[str, Any], turn: Turn) -> None:
    """A message of the harness: a step, or an observation of the step before."""
    role, content = message.get("role"), message.get("content") or ""
    if role == "tool" and steps and steps[-1]["source"] == "agent":
        known = {call["tool_call_id"] for call in steps[-1].get("tool_calls", ())}
        call_id = message.get("tool_call_id")
        result = {**({"source_call_id": call_id} if call_id in known else {}), "content": content}
        steps[-1].setdefault("observation", {"results": []})["results"].append(result)
    elif role == "assistant":  # one that was not sampled here
        steps.append({"timestamp": _moment(turn.received_at), "source": "agent", "message": content, **_said(message)})
    else:
        source = "system" if role in ("system", "developer") else "user"
        steps.append({"timestamp": _moment(turn.received_at), "source": source, "message": content})


def _add_call(steps: list[dict[str, Any]], reader: Reader, turn: Turn, number: int) -> None:
    """A model call and what it said."""
    reply = reader.reply(turn) or {"role": "assistant", "content": ""}
    extra = {
        "turn": number, "purpose": turn.purpose, "status": turn.status, "finish": turn.finish,
        "weight_version": turn.weight_version, "weight_versions": turn.weight_versions,
        "untrainable": turn.untrainable, "error": turn.error,
    }  # fmt: skip
    metrics = {
        "prompt_tokens": turn.prompt_length,
        "completion_tokens": turn.n_sampled,
        "cached_tokens": int((turn.usage or {}).get("cached") or 0),
        "prompt_token_ids": reader.prompt_ids(turn),
        "completion_token_ids": list(turn.sampled or ()),
        "logprobs": list(turn.logprobs or ()),
    }
    steps.append({
        "timestamp": _moment(turn.received_at), "source": "agent", "message": reply.get("content") or "",
        "model_name": turn.model, **_said(reply), "metrics": metrics, "llm_call_count": 1,
        "extra": {name: value for name, value in extra.items() if value is not None},
    })  # fmt: skip


def _said(message: Mapping[str, Any]) -> dict[str, Any]:
    """Reasoning and tool calls, where there are any."""
    out: dict[str, Any] = {}
    if message.get("reasoning"):
        out["reasoning_content"] = message["reasoning"]
    if calls := message.get("tool_calls"):
        out["tool_calls"] = [
            {"tool_call_id": call["id"], "function_name": call["name"], "arguments": _object(call["arguments"])}
            for call in calls
        ]
    return out


def _object(arguments: str) -> dict[str, Any]:
    """Arguments as the object that the format wants; what is none stands under `raw`."""
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return {"raw": arguments}
    return value if isinstance(value, dict) else {"raw": value}


def _moment(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
