"""`tap scripted`."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from addons.commands.common import err, reported

if TYPE_CHECKING:
    from addons.matrix.engine import Script


def scripted(
    script: Annotated[Path, typer.Argument(metavar="SCRIPT.py", help="A Python file with a function reply(prompt).")],
    model: Annotated[
        str, typer.Option(help="Folder or hub id whose tokenizer and template to use; one token a byte if not given.")
    ] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 8000,
) -> None:
    """Serve a script in vLLM's place: what it returns is what the model "samples".

    Good for trying a harness without a model, and as a teacher that knows
    the answers (`trainer sft`, or a recipe's section teacher).

    \b
        tap scripted reply.py                   # instead of `trainer serve`
        tap up
        tap run pi "Say hello"

    reply.py gets what the model is shown, and returns what it replies, tool
    calls in the model's own markup:

    \b
        def reply(prompt):
            acted = any(role == "assistant" for role, _ in prompt.messages)
            if acted or not prompt.tools:
                return "Done."
            call = '{"name": "bash", "arguments": {"command": "ls"}}'
            return f"<tool_call>\\n{call}\\n</tool_call>"

    prompt.messages are pairs of role and text, prompt.tools the tools as the
    template lists them, prompt.constraint a schema that the reply must satisfy,
    or None. The function is called once a turn and keeps nothing: what was done
    is in the messages. An exception becomes an error of the model's; its
    traceback is printed here.

    Without --model any text has tokens, one a byte. With the files of a model the
    record can be trained on by it. Its template must be ChatML that lists tools
    between <tools> tags, as Qwen's do.
    """
    from addons.model import ModelError

    logging.basicConfig(format="%(asctime)s %(message)s")
    with reported():
        try:
            asyncio.run(_serve(load(script), model, port))
        except ModelError as error:
            raise ValueError(str(error)) from error


def load(path: Path) -> Script:
    """The function `reply` of a Python file. Raises ValueError where there is none."""
    if not path.is_file():
        raise ValueError(f"no script at {path}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever a script of the user's raises
        raise ValueError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    reply = getattr(module, "reply", None)
    if not callable(reply):
        raise ValueError(f"{path} has no function reply(prompt)")
    script: Script = reply
    return script


async def _serve(script: Script, model: str, port: int) -> None:
    """Until SIGTERM or SIGINT."""
    from addons.matrix.engine import ScriptedEngine
    from addons.matrix.model import write_model
    from addons.model import ModelFiles

    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    with tempfile.TemporaryDirectory(prefix="tap-scripted-") as folder:
        files = await asyncio.to_thread(ModelFiles.load, model or str(write_model(Path(folder))))
        async with ScriptedEngine(files, script).serving(port) as url:
            print(url, flush=True)
            err.print(f"tap: serving a script at {url}; the proxy to it: tap up --engine {url}", highlight=False)
            await ended.wait()
