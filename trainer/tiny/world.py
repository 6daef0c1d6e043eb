"""The closed world of the tiny model: some words, some file names, and families of shell tasks over them.

A family is a function that draws one `Example`: what is asked, which files are there, commands that solve it,
commands that look plausible and do not, and what the workspace has to hold afterwards. Training sessions,
held-out tasks and the demo's task set are all drawn from here, so they agree by construction.

Every word and every file name is one token after a space (see `tokenizer.py`), in a task as in a command:
copying an argument is then copying one token, which a model of this size learns in minutes.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

WORDS = (
    *("apple", "river", "stone", "cloud", "tiger", "maple", "ocean", "paper", "silver", "candle"),
    *("forest", "garden", "bridge", "copper", "dragon", "eagle", "falcon", "ginger", "hammer", "island"),
    *("jungle", "kettle", "lemon", "marble", "orange", "pepper", "rabbit", "saddle", "temple", "velvet"),
)
FILES = tuple(
    f"{stem}.txt"
    for stem in (
        *("data", "notes", "report", "input", "output", "result", "log", "list", "names", "numbers"),
        *("items", "main", "draft", "copy", "users", "prices", "values", "table", "memo", "total"),
        *("orders", "plan", "summary", "letter", "history"),
    )
)


@dataclass(frozen=True)
class Example:
    """One task with known right and wrong commands.

    `wrong` begins with the most tempting mistake. `look` is a command to run first, where the task cannot be
    solved without. `expect` maps a file name to the text it must hold, or to None if it must not
    exist; a text without a newline at its end is a number, compared without the white space that `wc` adds
    on some systems.
    """

    prompt: str
    files: dict[str, str]
    right: str
    wrong: tuple[str, ...]
    expect: dict[str, str | None]
    look: str | None = None


class Draw:
    """Random pieces of the world, all distinct within one example."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self._files = rng.sample(FILES, len(FILES))
        self._words = rng.sample(WORDS, len(WORDS))

    def file(self) -> str:
        """A file name."""
        return self._files.pop()

    def word(self) -> str:
        """A word."""
        return self._words.pop()

    def words(self, low: int, high: int) -> list[str]:
        """`low` to `high` words; three or more are neither sorted nor reverse sorted."""
        words = [self.word() for _ in range(self.rng.randint(low, high))]
        while len(words) > 2 and words in (sorted(words), sorted(words, reverse=True)):
            self.rng.shuffle(words)
        return words

    def ask(self, *phrasings: str) -> str:
        """One of `phrasings`, with or without a full stop."""
        return self.rng.choice(phrasings) + self.rng.choice(("", "."))


def text(lines: list[str]) -> str:
    """`lines` as the content of a file."""
    return "".join(line + "\n" for line in lines)


def draw_example(family: str, rng: random.Random) -> Example:
    """Draw one example; raises KeyError for an unknown family."""
    return FAMILIES[family](Draw(rng))


def create(d: Draw) -> Example:
    """A new file with one word."""
    f, w = d.file(), d.word()
    return Example(
        d.ask(f"Create a file {f} containing the word {w}", f"Put the word {w} into a new file {f}"),
        {},
        f"echo {w} > {f}",
        (f"touch {f}", f"echo {w}", f"echo {f} > {w}"),
        {f: text([w])},
    )


def append(d: Draw) -> Example:
    """A word at the end of a file."""
    f, w, old = d.file(), d.word(), text(d.words(2, 2))
    return Example(
        d.ask(f"Append the word {w} to the file {f}", f"Add the word {w} at the end of {f}"),
        {f: old},
        f"echo {w} >> {f}",
        (f"echo {w} > {f}", f"cat {f}", f"echo {f} >> {w}"),
        {f: old + text([w])},
    )


def copy(d: Draw) -> Example:
    """A second file like the first."""
    a, b, old = d.file(), d.file(), text(d.words(2, 2))
    return Example(
        d.ask(f"Copy the file {a} to {b}", f"Make a copy of {a} named {b}"),
        {a: old},
        f"cp {a} {b}",
        (f"mv {a} {b}", f"cat {a}", f"cp {b} {a}"),
        {a: old, b: old},
    )


def rename(d: Draw) -> Example:
    """The same file under another name."""
    a, b, old = d.file(), d.file(), text(d.words(2, 2))
    return Example(
        d.ask(f"Rename the file {a} to {b}", f"Give the file {a} the new name {b}"),
        {a: old},
        f"mv {a} {b}",
        (f"cp {a} {b}", f"rm {a}", f"mv {b} {a}"),
        {a: None, b: old},
    )


def delete(d: Draw) -> Example:
    """One file less, the other untouched."""
    a, b, old = d.file(), d.file(), text(d.words(2, 2))
    return Example(
        d.ask(f"Delete the file {a}", f"Remove {a} and nothing else"),
        {a: old, b: old},
        f"rm {a}",
        ("rm *", f"cat {a}", f"touch {a}"),
        {a: None, b: old},
    )


def _count(d: Draw, unit: str, flag: str, other: str, measure: Callable[[str], int]) -> Example:
    f, g = d.file(), d.file()
    old = text([" ".join(d.words(2, 3)) for _ in range(d.rng.randint(3, 6))])
    return Example(
        d.ask(
            f"Count the {unit} of {f} and write the number to {g}",
            f"Put the number of {unit} in {f} into {g}",
        ),
        {f: old},
        f"wc {flag} < {f} > {g}",
        (f"wc {other} < {f} > {g}", f"wc {flag} {f}", f"wc -c < {f} > {g}"),
        {f: old, g: str(measure(old))},
    )


def count_lines(d: Draw) -> Example:
    """How many lines, into a file."""
    return _count(d, "lines", "-l", "-w", lambda old: len(old.splitlines()))


def count_words(d: Draw) -> Example:
    """How many words, into a file."""
    return _count(d, "words", "-w", "-l", lambda old: len(old.split()))


def _some_lines_with(d: Draw, word: str) -> list[str]:
    """Three to six lines, at least one with `word` and at least one without."""
    lines = [d.word() for _ in range(d.rng.randint(3, 6))]
    marked = d.rng.sample(range(len(lines)), d.rng.randint(1, len(lines) - 1))
    return [f"{word} {line}" if i in marked else line for i, line in enumerate(lines)]


def search(d: Draw) -> Example:
    """The lines with a word, into a file."""
    f, g, w = d.file(), d.file(), d.word()
    lines = _some_lines_with(d, w)
    return Example(
        d.ask(f"Write the lines of {f} that contain {w} to {g}", f"Find {w} in {f} and put the lines into {g}"),
        {f: text(lines)},
        f"grep {w} {f} > {g}",
        (f"grep {w} {f}", f"grep -v {w} {f} > {g}", f"grep -c {w} {f} > {g}"),
        {f: text(lines), g: text([line for line in lines if w in line.split()])},
    )


def count_matches(d: Draw) -> Example:
    """How many lines have a word, into a file."""
    f, g, w = d.file(), d.file(), d.word()
    lines = _some_lines_with(d, w)
    return Example(
        d.ask(
            f"Count the lines of {f} that contain {w} and write the number to {g}",
            f"Put the number of lines in {f} that contain {w} into {g}",
        ),
        {f: text(lines)},
        f"grep -c {w} {f} > {g}",
        (f"grep {w} {f} > {g}", f"grep -c {w} {f}", f"wc -l < {f} > {g}"),
        {f: text(lines), g: str(sum(w in line.split() for line in lines))},
    )


def sort(d: Draw) -> Example:
    """Sorted lines, into a file."""
    f, g, words = d.file(), d.file(), d.words(4, 6)
    return Example(
        d.ask(f"Sort the lines of {f} into {g}", f"Write the lines of {f} in sorted order to {g}"),
        {f: text(words)},
        f"sort {f} > {g}",
        (f"sort {f}", f"sort -r {f} > {g}", f"cat {f} > {g}"),
        {f: text(words), g: text(sorted(words))},
    )


def sort_reverse(d: Draw) -> Example:
    """Lines sorted from z to a, into a file."""
    f, g, words = d.file(), d.file(), d.words(4, 6)
    return Example(
        d.ask(
            f"Sort the lines of {f} in reverse order into {g}",
            f"Write the lines of {f} in reverse sorted order to {g}",
        ),
        {f: text(words)},
        f"sort -r {f} > {g}",
        (f"sort {f} > {g}", f"sort -r {f}", f"cat {f} > {g}"),
        {f: text(words), g: text(sorted(words, reverse=True))},
    )


def distinct(d: Draw) -> Example:
    """Each line once and sorted, into a file."""
    f, g, words = d.file(), d.file(), d.words(3, 4)
    lines = [*words, words[0], words[1]]
    return Example(
        d.ask(
            f"Write the distinct lines of {f} in sorted order to {g}",
            f"Sort the distinct lines of {f} into {g}",
        ),
        {f: text(lines)},
        f"sort -u {f} > {g}",
        (f"sort {f} > {g}", f"sort -u {f}", f"sort -r {f} > {g}"),
        {f: text(lines), g: text(sorted(words))},
    )


def _edge(d: Draw, which: str, command: str, other: str) -> Example:
    f, g, words, n = d.file(), d.file(), d.words(7, 9), d.rng.randint(2, 5)
    return Example(
        d.ask(f"Write the {which} {n} lines of {f} to {g}", f"Put the {which} {n} lines of {f} into {g}"),
        {f: text(words)},
        f"{command} -n {n} {f} > {g}",
        (f"{other} -n {n} {f} > {g}", f"{command} -n {n} {f}", f"cat {f} > {g}"),
        {f: text(words), g: text(words[:n] if command == "head" else words[-n:])},
    )


def first_lines(d: Draw) -> Example:
    """The beginning of a file, into another."""
    return _edge(d, "first", "head", "tail")


def last_lines(d: Draw) -> Example:
    """The end of a file, into another."""
    return _edge(d, "last", "tail", "head")


def upper(d: Draw) -> Example:
    """Capitals, into a file."""
    f, g, old = d.file(), d.file(), text(d.words(3, 3))
    return Example(
        d.ask(f"Write {f} in upper case to {g}", f"Put {f} into {g} in upper case"),
        {f: old},
        f"tr a-z A-Z < {f} > {g}",
        (f"tr a-z A-Z < {f}", f"tr A-Z a-z < {f} > {g}", f"cat {f} > {g}"),
        {f: old, g: old.upper()},
    )


def join(d: Draw) -> Example:
    """Two files, one after the other, into a third."""
    a, b, c, old, other = d.file(), d.file(), d.file(), text(d.words(2, 2)), text(d.words(2, 2))
    return Example(
        d.ask(f"Join {a} and {b} in this order into {c}", f"Write {a} and then {b} to {c}"),
        {a: old, b: other},
        f"cat {a} {b} > {c}",
        (f"cat {a} {b}", f"cat {b} {a} > {c}", f"cat {a} > {c}"),
        {a: old, b: other, c: old + other},
    )


def replace(d: Draw) -> Example:
    """One word for another, in place."""
    f, a, b, c = d.file(), d.word(), d.word(), d.word()
    old = text([f"{c} {a}", a])
    return Example(
        d.ask(f"Replace the word {a} by {b} in {f}", f"Change the word {a} to {b} in the file {f}"),
        {f: old},
        f"sed -i s/{a}/{b}/ {f}",
        (f"sed s/{a}/{b}/ {f}", f"sed -i s/{b}/{a}/ {f}", f"echo {b} > {f}"),
        {f: old.replace(a, b)},
    )


def follow(d: Draw) -> Example:
    """What to do stands in a file: this one takes two commands, the second with what the first showed."""
    f, w = d.file(), d.word()
    return Example(
        d.ask(f"Create an empty file with the name in {f}", f"Read {f} and create the empty file it names"),
        {f: text([w])},
        f"touch {w}",
        (f"touch {f}", f"cat {f}", f"touch {d.word()}"),
        {f: text([w]), w: ""},
        look=f"cat {f}",
    )


FAMILIES: dict[str, Callable[[Draw], Example]] = {
    family.__name__: family
    for family in (
        *(create, append, copy, rename, delete, count_lines, count_words, search, count_matches),
        *(sort, sort_reverse, distinct, first_lines, last_lines, upper, join, replace, follow),
    )
}
