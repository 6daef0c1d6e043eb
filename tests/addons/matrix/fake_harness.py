"""A harness of our own: it asks a chat model what to do, behind whatever proxy its environment names, and does it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import urllib.request

TOOL = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    },
}


def ask(messages: list[dict[str, object]]) -> dict[str, object]:
    body = {"model": "gpt", "messages": messages, "tools": [TOOL]}
    request = urllib.request.Request(
        "https://api.openai.com/v1/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", "authorization": "Bearer dummy"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        message: dict[str, object] = json.load(reply)["choices"][0]["message"]
    return message


def main(task: str, habit: str) -> None:
    if habit == "bypasses":
        with contextlib.suppress(OSError):
            socket.create_connection(("telemetry.example", 443), 5)
    if habit == "leaves a daemon":
        subprocess.Popen(["sleep", "600"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    messages: list[dict[str, object]] = [{"role": "user", "content": task}]
    while calls := (message := ask(messages)).get("tool_calls"):
        if habit == "rewrites":
            messages[0]["content"] = f"{task} Hurry."
        messages.append(message)
        for call in calls:  # type: ignore[attr-defined]
            command = json.loads(call["function"]["arguments"])["command"]
            if habit != "refuses to work":
                os.system(command)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": "ok"})
        if habit == "compacts" and messages[0]["content"] == task:
            summary = ask([*messages, {"role": "user", "content": "Summarize our conversation."}])["content"]
            messages = [{"role": "user", "content": f"{task}\nSo far: {summary}"}]
    sys.exit(3 if habit == "fails" else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
