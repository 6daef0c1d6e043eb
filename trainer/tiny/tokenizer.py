"""The tiny model's tokenizer: byte-level BPE in two stages, so that a line of a known prompt is one token.

Stage 1 is ordinary: merges inside words, learned from English and code. Stage 2 goes on merging across words
("SuperBPE"), on the lines of mini-swe-agent's prompt only, until each is one token: a session's 1,500 tokens
become about 200, which makes training and sampling on two CPU cores pleasant. Any text still encodes and
round-trips byte by byte; other harnesses' prompts merely take more tokens.

Stage-1 merges have the lower ranks and never put a space inside a token, so a line is first cut into words
and only then joined. Encoding is plain BPE over lines: the tokenizer holds no hand-written rule.
"""

import json
import pydoc_data.topics
import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from trainer.tiny.harness import Message, MiniSweAgent, Output, call
from trainer.tiny.shells import FINISHED, SHELLS, SUBMIT, arguments_of
from trainer.tiny.world import FILES, WORDS

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TOOL_MARKS = ("<tool_call>", "</tool_call>")
MAX_LENGTH = 32768
CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")

# How transformers' `tokenizer.parse_response` reads a reply: Hermes tool calls, everything else is content.
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}

_WORD = r" ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s+"
_LINE = r"[^\n]*\n|[^\n]+"
_STAGE1_SIZE = 1792
_GAP = "\x00"  # where a prompt varies: no merge may cross it

# One token each, with the space before it: names, so that copying one is copying a token; then the words of
# tasks and commands; then those of the `uname` line, the part of the prompt that differs between machines.
_ATOMS = (
    *(f" {name}" for name in FILES + WORDS),
    *WORDS,
    *(
        "echo",
        "touch",
        "cat",
        "cp",
        "mv",
        "rm",
        "wc",
        "grep",
        "sort",
        "head",
        "tail",
        "tr",
        "sed",
        "ls",
        "\\n",
    ),
    *(" -l", " -w", " -c", " -v", " -r", " -u", " -n", " -i", " >", " >>", " <", " s/", " a-z", " A-Z"),
    *(f" {digit}" for digit in range(10)),
    *(
        " Append",
        " Add",
        " Copy",
        " Rename",
        " Give",
        " Delete",
        " Remove",
        " Count",
        " Write",
        " Find",
        " Sort",
    ),
    *(
        " Put",
        " Make",
        " Replace",
        " Change",
        " Join",
        " Create",
        " Read",
        " word",
        " words",
        " file",
        " lines",
    ),
    *(" reverse", " distinct", " sorted", " upper", " case", " into", " contain", " containing", " named"),
    *(" number", " nothing", " else", " empty", " names", " order", " first", " last", " end", " then"),
    *("Linux", "Darwin", "Ubuntu", "generic", "microsoft", "standard", "xnu", "RELEASE_ARM64"),
    *(" SMP", " PREEMPT_DYNAMIC", " x86_64", " aarch64", " arm64", " Darwin", " Kernel", " Version", " UTC"),
)

Pair = tuple[str, str]


def build_tokenizer(mini: MiniSweAgent) -> PreTrainedTokenizerFast:
    """Train both stages and attach the chat template and the response template."""
    merges = _word_merges(mini)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    _extend(ranks, _ATOMS)
    _extend(ranks, _prompt_pieces(mini))
    return _wrap(list(ranks))


def _word_merges(mini: MiniSweAgent) -> list[Pair]:
    """Stage 1: BPE inside words, from Python's own language reference (on every machine) and the prompt."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = _pre_tokenizer(_WORD)
    trainer = trainers.BpeTrainer(
        vocab_size=_STAGE1_SIZE, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    corpus = list(pydoc_data.topics.topics.values()) + _prompt_pieces(mini) * 10
    tokenizer.train_from_iterator(corpus, trainer)
    return [tuple(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def _prompt_pieces(mini: MiniSweAgent) -> list[str]:
    """The lines that a session of mini-swe-agent is made of, cut where they vary."""
    # Rendering needs a tokenizer that holds the chat template; the merges do not matter to it.
    tokenizer = _wrap([])
    pieces: dict[str, None] = {}
    for system in ("Linux", "Darwin"):
        uname = {"system": system, "release": _GAP, "version": _GAP, "machine": _GAP}
        messages = mini.opening(_GAP, uname)
        shown = [mini.result("", Output(text, text, code)) for text, code in ((_GAP, 0), ("", 0), (_GAP, 1), (_GAP, 2))]
        messages += [call(SUBMIT), *shown, mini.complaint(), *_calls()]
        text = tokenizer.apply_chat_template(messages, tools=mini.tools, tokenize=False, add_generation_prompt=True)
        marks = "|".join(re.escape(mark) for mark in SPECIAL + TOOL_MARKS)
        text = text.replace(json.dumps(_GAP)[1:-1], _GAP)
        for part in re.split(f"{marks}|{_GAP}", text):
            for line in re.findall(_LINE, part):
                if not line.startswith(system):
                    # The task follows with its own space: " Copy", not " " and "Copy".
                    pieces[line if line.endswith("\n") else line.rstrip(" ")] = None
    return [piece for piece in pieces if piece]


def _calls() -> list[Message]:
    """A call of every shell tool, and the end of a session that needs none."""
    functions = [{"name": name, "arguments": arguments_of(name, _GAP)} for name in SHELLS]
    calls = [[{"type": "function", "id": "call_0", "function": function}] for function in functions]
    said: list[Message] = [{"role": "assistant", "content": "", "tool_calls": one} for one in calls]
    return [*said, {"role": "assistant", "content": FINISHED}]


def _extend(ranks: dict[Pair, int], words: Sequence[str]) -> None:
    """Learn merges (appended to `ranks`) until each of `words` is one token: the most frequent pair first."""
    pieces = [_encode(_to_bytes(word), ranks) for word in words]
    while True:
        pairs = Counter(pair for piece in pieces for pair in pairwise(piece))
        if not pairs:
            return
        best = pairs.most_common(1)[0][0]
        ranks[best] = len(ranks)
        pieces = [_merge(piece, best) for piece in pieces]


def _encode(text: str, ranks: dict[Pair, int]) -> list[str]:
    """BPE of one pre-token, the lowest rank first."""
    symbols = list(text)
    while pairs := [pair for pair in pairwise(symbols) if pair in ranks]:
        symbols = _merge(symbols, min(pairs, key=ranks.__getitem__))
    return symbols


def _merge(symbols: list[str], pair: Pair) -> list[str]:
    merged: list[str] = []
    for symbol in symbols:
        if merged and (merged[-1], symbol) == pair:
            merged[-1] += symbol
        else:
            merged.append(symbol)
    return merged


def _to_bytes(text: str) -> str:
    """The printable stand-ins that byte-level BPE uses for the UTF-8 bytes of `text`."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(text)[0][0]


def _pre_tokenizer(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _wrap(merges: list[Pair]) -> PreTrainedTokenizerFast:
    """A transformers tokenizer with these merges: special tokens first, then bytes, then merges in order."""
    tokens = [*SPECIAL, *TOOL_MARKS, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    vocabulary = {token: index for index, token in enumerate(dict.fromkeys(tokens + [a + b for a, b in merges]))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = _pre_tokenizer(_LINE)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    backend.add_tokens([AddedToken(token, normalized=False) for token in TOOL_MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE.read_text(),
        response_template=RESPONSE_TEMPLATE,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )
