"""Images in prompts: what the template writes, what they become, and a session with them behind the gateway."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from addons.conversation import Conversation, Media, Message, ToolCall
from addons.engine import Engine, EngineFacts
from addons.errors import EngineRefused
from addons.habits import TemplateError
from addons.images import Images
from addons.media import images, lifted, mark
from addons.model import ModelFiles
from addons.placeholders import put, sentinel
from addons.prompts import Prompts
from addons.render import ChatTemplate
from tests.addons.kit import CHATML, CHATML_MARKUP, CHATML_SPECIAL, byte_level, model_files
from tests.addons.vision_engine import VisionEngine
from tests.conftest import Rig, rigged

IMAGE = "<|image_pad|>"
MACRO = (
    "{% macro said(content) %}{% if content is string %}{{ content }}{% else %}{% for part in content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}{% endmacro %}"
)
VISION = MACRO + CHATML.replace("m.content", "said(m.content)").replace(
    "messages[0].content", "said(messages[0].content)"
)
PARTS_ONLY = """\
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}
{%- for part in m.content %}
{%- if part['type'] == 'text' %}{{- part['text'] }}{%- elif part['type'] == 'image' %}{{- '<|image_pad|>' }}{%- endif %}
{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def vision(folder: Path, template: str = VISION) -> ModelFiles:
    tokenizer = byte_level((*CHATML_SPECIAL, IMAGE, "<|vision_start|>", "<|vision_end|>"), CHATML_MARKUP)
    return model_files(folder, tokenizer, template, "<|im_end|>")


def see(data: bytes) -> str:
    return mark("[image]", "image", param="p", ignored="i", refusal="r", media_type="image/png", data=data)


def said(*texts: str | bytes, role: Any = "user", **more: Any) -> Message:
    return lifted(Message(role, "".join(text if isinstance(text, str) else see(text) for text in texts), **more))


def decoded(model: ModelFiles, ids: list[int]) -> str:
    return str(model.tokenizer.decode(ids))


def test_an_image_is_written_as_the_template_writes_it(tmp_path: Path) -> None:
    model = vision(tmp_path)
    prompts = Prompts(model)
    assert prompts.template.image == "<|vision_start|><|image_pad|><|vision_end|>"
    calls = (ToolCall("c1", "look", "{}"),)
    talk = (
        said("a ", b"1", " b"), Message("assistant", "", tool_calls=calls),
        said("out ", b"2", role="tool", tool_call_id="c1"),
    )  # fmt: skip
    text = decoded(model, prompts.first(Conversation(talk)))
    picture = "<|vision_start|><|image_pad|><|vision_end|>"
    assert f"user\na {picture} b<|im_end|>" in text
    assert f"<tool_response>\nout {picture}\n</tool_response>" in text


def test_the_words_of_a_placeholder_stay_words(tmp_path: Path) -> None:
    model = vision(tmp_path)
    prompts = Prompts(model)
    ids = prompts.first(Conversation((said(f"{IMAGE} is a token ", b"1"),)))
    assert ids.count(model.tokenizer.convert_tokens_to_ids(IMAGE)) == 1
    assert decoded(model, ids).count(IMAGE) == 2


def test_a_template_of_parts_gets_parts(tmp_path: Path) -> None:
    model = vision(tmp_path, PARTS_ONLY)
    prompts = Prompts(model)
    text = decoded(model, prompts.first(Conversation((said("a ", b"1"), Message("assistant", "ok"), said("b")))))
    assert (
        text
        == f"<|im_start|>user\na {IMAGE}<|im_end|>\n<|im_start|>assistant\nok<|im_end|>\n<|im_start|>user\nb"
        + ("<|im_end|>\n<|im_start|>assistant\n")
    )


@pytest.mark.parametrize(
    "template",
    [
        CHATML,
        VISION.replace("<|image_pad|>", "<|image_{{ loop.index }}|>"),
        VISION.replace("{% else %}{{ part.text }}", "{% else %}{{ raise_exception('text only') }}"),
    ],
)
def test_a_template_that_shows_no_images_or_numbers_them(tmp_path: Path, template: str) -> None:
    assert ChatTemplate(vision(tmp_path, template)).image is None


def test_images_out_of_order_are_refused() -> None:
    one, two = (Media(0, 0, "image", data=b"", sha256=digest * 64) for digest in "ab")
    given = [sentinel(one), sentinel(two)]
    assert put(f"x{sentinel(one)}y{sentinel(two)}", "<>", given) == "x<>y<>"
    assert put(f"y{sentinel(two)}", "<>", given) == "y<>"
    with pytest.raises(TemplateError, match="order"):
        put(f"{sentinel(two)}{sentinel(one)}", "<>", given)
    with pytest.raises(TemplateError, match="cannot show"):
        put(sentinel(two), None, given)


def known(target: list[int], **expansions: list[int]) -> Images:
    found = Images(cast(Engine, None), cast(EngineFacts, None), target)
    for data, ids in expansions.items():
        (image,) = images([said(data.encode())])
        assert image.sha256 is not None
        found._expansions[image.sha256] = ids
    return found


def test_a_prompt_is_expanded_and_collapsed_again() -> None:
    pictures = known([9], a=[1, 9, 9, 2], b=[1, 2], c=[9])
    shown = images([said(b"a", b"b"), said(b"c")])
    ids, placed = pictures.expand([5, 9, 9, 6, 9], shown, 100)
    assert ids == [5, 1, 9, 9, 2, 1, 2, 6, 9]
    assert [(one.offset, one.length) for one in placed] == [(101, 4), (105, 2), (108, 1)]
    _, placed = pictures.expand([5, 9, 9, 6, 9], shown)
    assert pictures.collapse(ids, placed) == [5, 9, 9, 6, 9]


def test_expanding_is_undone_by_collapsing() -> None:
    dice = random.Random(7)
    for target in ([9], [7, 9], [9, 9]):
        for _ in range(200):
            expansions = {name: [dice.choice([1, 2, 7, 9]) for _ in range(dice.randint(1, 5))] for name in "abc"}
            pictures = known(target, **expansions)
            names = [dice.choice("abc") for _ in range(dice.randint(0, 4))]
            ids = [dice.randint(10, 20)]
            for _ in names:
                ids += [*target, *(dice.randint(10, 20) for _ in range(dice.randint(1, 3)))]
            shown = images([said(*(name.encode() for name in names))])
            full, placed = pictures.expand(ids, shown)
            assert pictures.collapse(full, placed) == ids


@pytest.mark.parametrize("ids", [[5], [9, 9, 9]])
def test_as_many_targets_as_images(ids: list[int]) -> None:
    with pytest.raises(TemplateError):
        known([9], a=[1]).expand(ids, images([said(b"a", b"a")] if ids == [5] else [said(b"a")]))


# Behind the gateway, over a vLLM that takes images.


@pytest.fixture
async def seeing(tmp_path: Path) -> AsyncIterator[Rig]:
    model = vision(tmp_path / "model")
    engine = VisionEngine(model, target=model.tokenizer.convert_tokens_to_ids(IMAGE))
    async with rigged(model, tmp_path, engine) as rig:
        yield rig


def part(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}


def user(*parts: str | bytes) -> dict[str, Any]:
    texts = [{"type": "text", "text": p} if isinstance(p, str) else part(p) for p in parts]
    return {"role": "user", "content": texts}


async def ask(rig: Rig, *messages: dict[str, Any], **more: Any) -> httpx.Response:
    async with httpx.AsyncClient() as http:
        body = {"model": "m", "messages": messages, **more}
        return await http.post(f"{rig.url}/v1/chat/completions", json=body, timeout=20)


def expanded(engine: VisionEngine, body: dict[str, Any]) -> list[int]:
    """The prompt that the scripted vLLM made of a request."""
    urls = [one["url"] for one in body["content_parts"]]
    out: list[int] = []
    for token in body["token_ids"]:
        out += engine.expansion(urls.pop(0)) if token == engine.target else [token]
    return out


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_with_images_is_one_sequence(seeing: Rig, stream: bool) -> None:
    engine = cast(VisionEngine, seeing.engine)
    engine.say("A cat.")
    engine.say("A dog.")
    engine.say("Yes.")
    history = [user("what is ", b"cat", "?")]
    for then in (user(b"and doggo"), {"role": "user", "content": "sure?"}, None):
        reply = await ask(seeing, *history, stream=stream)
        assert reply.status_code == 200
        text = _text(reply, stream)
        history += [{"role": "assistant", "content": text}, *([then] if then else [])]
    (session,) = seeing.reader.sessions()
    turns = seeing.reader.turns(session)
    assert [turn.parent_id for turn in turns] == [None, turns[0].id, turns[1].id]
    assert [seeing.reader.prompt_ids(turn) for turn in turns] == [expanded(engine, body) for body in engine.generated]
    assert [len(body["content_parts"]) for body in engine.generated] == [1, 2, 2]
    assert engine.requests == []
    assert engine.rendered == 3  # the probe, and each image once
    assert {turn.untrainable for turn in turns} == {"images in the prompt"}
    assert [turn.ignored_fields for turn in turns] == [[]] * 3
    placed = seeing.reader.images(turns[2])
    prompt = seeing.reader.prompt_ids(turns[2])
    assert [seeing.reader.image(one["sha256"]) for one in placed] == [b"cat", b"and doggo"]
    for one in placed:
        assert prompt[one["offset"]] == 1
        assert prompt[one["offset"] + one["length"] - 1] == 2
    assert [len(turn.images or ()) for turn in turns] == [1, 1, 0]


def _text(reply: httpx.Response, stream: bool) -> str:
    if not stream:
        return str(reply.json()["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])


async def test_a_restarted_proxy_knows_the_images(seeing: Rig) -> None:
    engine = cast(VisionEngine, seeing.engine)
    engine.say("A cat.")
    engine.say("Yes.")
    await ask(seeing, user(b"cat"))
    seeing.service.forget()
    await ask(seeing, user(b"cat"), {"role": "assistant", "content": "A cat."}, user("sure?"))
    (session,) = seeing.reader.sessions()
    first, second = seeing.reader.turns(session)
    assert second.parent_id == first.id
    assert seeing.reader.prompt_ids(second) == expanded(engine, engine.generated[1])


async def test_a_response_is_continued_by_its_id(seeing: Rig) -> None:
    engine = cast(VisionEngine, seeing.engine)
    engine.say("A cat.")
    engine.say("Yes.")
    shown = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,Y2F0"}]}]
    async with httpx.AsyncClient() as http:
        url = f"{seeing.url}/v1/responses"
        first = (await http.post(url, json={"model": "m", "input": shown})).json()
        again = {"model": "m", "input": "sure?", "previous_response_id": first["id"]}
        assert (await http.post(url, json=again)).status_code == 200
    (session,) = seeing.reader.sessions()
    turns = seeing.reader.turns(session)
    assert turns[1].parent_id == turns[0].id
    assert seeing.reader.prompt_ids(turns[1]) == expanded(engine, engine.generated[1])
    assert [part["url"] for part in engine.generated[1]["content_parts"]] == ["data:image/png;base64,Y2F0"]


async def test_another_image_is_another_conversation(seeing: Rig) -> None:
    seeing.engine.say("A cat.")
    seeing.engine.say("Yes.")
    await ask(seeing, user(b"cat"))
    await ask(seeing, user(b"dog"), {"role": "assistant", "content": "A cat."}, user("sure?"))
    turns = [turn for session in seeing.reader.sessions() for turn in seeing.reader.turns(session)]
    assert [turn.parent_id for turn in turns] == [None, None]


async def test_a_reply_with_the_images_token_is_rendered_anew(seeing: Rig) -> None:
    engine = cast(VisionEngine, seeing.engine)
    engine.say(f"A {IMAGE}")
    engine.say("Yes.")
    text = _text(await ask(seeing, user(b"cat")), stream=False)
    await ask(seeing, user(b"cat"), {"role": "assistant", "content": text}, user("sure?"))
    (session,) = seeing.reader.sessions()
    turns = seeing.reader.turns(session)
    assert turns[1].drift_reason == "template"
    assert "stands for an image" in (turns[1].drift_detail or "")
    assert seeing.reader.prompt_ids(turns[1]) == expanded(engine, engine.generated[1])


async def test_a_vllm_without_the_routes_for_images_gets_words(tmp_path: Path) -> None:
    async with rigged(vision(tmp_path / "model"), tmp_path) as rig:  # its scripted vLLM has no such routes
        rig.engine.say("I see nothing.")
        assert (await ask(rig, user(b"cat"))).status_code == 200
        (session,) = rig.reader.sessions()
        (turn,) = rig.reader.turns(session)
        assert turn.ignored_fields == ["messages[].content[].image_url"]
        assert (turn.images, turn.untrainable) == (None, None)


async def test_a_vllm_that_breaks_over_an_image_is_no_text_model(tmp_path: Path) -> None:
    model = vision(tmp_path / "model")
    with pytest.raises(EngineRefused):
        async with rigged(model, tmp_path, VisionEngine(model, target=-1)):
            pass


async def test_what_is_no_image_is_the_callers_400(seeing: Rig) -> None:
    reply = await ask(seeing, user(b"broken"))
    assert reply.status_code == 400
    assert reply.json()["error"]["message"] == "Could not process image: cannot identify image file"
    assert reply.json()["error"]["param"] == "messages.[0].content.[0].type"


@pytest.mark.parametrize("stream", [False, True])
async def test_another_expansion_than_expected_fails_the_turn(seeing: Rig, stream: bool) -> None:
    cast(VisionEngine, seeing.engine).extra = 1
    seeing.engine.say("A cat.")
    reply = await ask(seeing, user(b"cat"), stream=stream)
    assert reply.status_code == 503
    (session,) = seeing.reader.sessions()
    (turn,) = seeing.reader.turns(session)
    assert (turn.status, turn.n_sampled) == ("failed", 0)
    assert "another prompt than expected" in (turn.error or {})["message"]


async def test_what_is_only_named_is_words_for_a_vision_model_too(seeing: Rig) -> None:
    seeing.engine.say("I see nothing.")
    remote = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}]}
    assert (await ask(seeing, remote)).status_code == 200
    (session,) = seeing.reader.sessions()
    (turn,) = seeing.reader.turns(session)
    assert turn.ignored_fields == ["messages[].content[].image_url"]
    assert "[image: https://example.org/a.png]" in seeing.engine.model.tokenizer.decode(seeing.reader.prompt_ids(turn))


CHAT = ("/v1/chat/completions", {"model": "m", "messages": [user("see ", b"cat")]})
DIALECTS: list[tuple[str, dict[str, Any], Callable[[Any], str], str]] = [
    (*CHAT, lambda e: e["error"]["message"], "Invalid content type. image_url is only supported by certain models."),
    (
        "/v1/messages",
        {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "Y2F0"}}]}]},
        lambda e: e["error"]["message"], "messages.0.content.0: 'm' does not support image input.",
    ),
    (
        "/v1/responses",
        {"model": "m", "input": [{"role": "user", "content": [
            {"type": "input_image", "image_url": "data:image/png;base64,Y2F0"}]}]},
        lambda e: e["error"]["message"], "Invalid content type. input_image is only supported by certain models.",
    ),
    (
        "/v1beta/models/m:generateContent",
        {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": "Y2F0"}}]}]},
        lambda e: e["error"]["message"], "Image input modality is not enabled for models/m",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("route", "body", "message", "words"), DIALECTS)
async def test_a_text_model_refuses_by_option(
    tiny: ModelFiles, tmp_path: Path, route: str, body: Any, message: Callable[[Any], str], words: str
) -> None:
    async with rigged(tiny, tmp_path, images="refuse") as rig, httpx.AsyncClient() as http:
        reply = await http.post(rig.url + route, json=body)
        assert (reply.status_code, message(reply.json())) == (400, words)
        (session,) = rig.reader.sessions()
        (turn,) = rig.reader.turns(session)
        assert turn.status == "failed"


@pytest.mark.parametrize(("route", "body"), [entry[:2] for entry in DIALECTS])
async def test_a_text_model_reads_words(rig: Rig, route: str, body: Any) -> None:
    rig.engine.say("ok")
    async with httpx.AsyncClient() as http:
        assert (await http.post(rig.url + route, json=body)).status_code == 200
    (session,) = rig.reader.sessions()
    (turn,) = rig.reader.turns(session)
    assert len(turn.ignored_fields) == 1
    assert (turn.images, turn.untrainable) == (None, None)
    assert "[image: image/png, 3 bytes]" in rig.engine.model.tokenizer.decode(rig.reader.prompt_ids(turn))
