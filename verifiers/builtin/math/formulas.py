"""Where the formulas of a statement are, between dollars or among words, and which of them belong together."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from .latex import FUNCTIONS, closing

_SPAN = re.compile(
    r"\\\((.+?)\\\)|\\\[(.+?)\\\]|\$\$(.+?)\$\$|(?<!\\)\$(?=\S)([^$]*?[^\s\\$])\$(?![0-9])|\$ ([^$]+?) \$"
)
_PROSE = re.compile(
    r"(?<![\\A-Za-z{])(?!(?:or|and|if|for|max|min|sin|cos|tan|log|exp|mod|gcd|lcm|lim|arc)[a-z]*\b)[a-z]{3,}\b"
)
_TOKEN = re.compile(r"\S+")
_MOST_OPEN = 20  # words in curly brackets, such as those of \\text{}
_QUOTES = '*_"`“”'
_ENDING = ".,;:!?"
_MATHS = re.compile(
    r"(?:[0-9A-Za-z+\-*/^=().,{}\[\]|_!<>%&~'$°π√∛½¼¾⅓⅔⅛⅜⅝⅞⅕⅖⅗⅘⅙⅚∞≤≥≠≈≅±∓×·⋅∙÷∪∩∈∅ℝ∠′⟨⟩−–∫∂"
    r"⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿˣʸᵃᵇᵏᵗ₀₁₂₃₄₅₆₇₈₉ₙ]|[α-ωΑ-Ω]|\\[,;:! {}]?)+"
)
_LETTERS = re.compile(r"\\[A-Za-z]+|(?<![A-Za-z\\])[A-Za-z]+")
_COMMAND = re.compile(
    r"\\(?:begin|end)\{[a-z*]+\}|\\(?:text|mathrm|mathbf|operatorname|mbox|mathbb)\s*\{[^{}]*\}|\\[A-Za-z]+"
)
_OPEN_TEXT = re.compile(r"\\(?:text|mathrm|mbox)\s*\{[^{}]*$")
_ONLY_SIGNS = re.compile(r"[-+*/=<>≤≥≈×·÷&|(){}\[\].,;:!?'\"%$~_−–\\ ]*")
_ENVIRONMENT = re.compile(r"\\(?:begin|end)\{[a-z]+\*?\}")
_OPERATOR_END = re.compile(r"[-+*/=<>≤≥≈≠±×·⋅÷^∪∩∈−–(\[{,|]$|\\[A-Za-z]+$")
_OPERATOR_START = re.compile(r"[-+*/=<>≤≥≈≠±×·⋅÷^∪∩∈−–)\]}|!']|\\(?:cdot|times|le|ge|in|approx|pm|cup|cap|to|equiv)")
_IMPLIES = re.compile(
    r"\\(?:implies|Rightarrow|Longrightarrow|iff|therefore|Leftrightarrow)(?![A-Za-z])|=>|[⇒⟹⇔∴]|\\quad\\(?:text|Rightarrow)"
)
_TENDS = re.compile(r"\\(?:to|rightarrow|longrightarrow)(?![A-Za-z])|→")
_ABBREVIATIONS = frozenset({"i.e", "e.g", "a.m", "p.m", "i.e.", "e.g."})


class Formula(NamedTuple):
    """A formula in a text.

    Args:
        start: where it starts.
        end: where it ends.
        text: the formula, without dollars.
        marked: whether it stands between dollars or the like.
    """

    start: int
    end: int
    text: str
    marked: bool


@lru_cache(maxsize=512)
def formulas(text: str, letters: frozenset[str] = frozenset()) -> tuple[Formula, ...]:
    """Return the formulas of a text: what stands between dollars, and runs of signs and letters among its words.

    Args:
        text: a statement.
        letters: those that may stand side by side as a product; other letters side by side are a word.
    """
    found: list[Formula] = []
    position = 0
    for span in _SPAN.finditer(text):
        inner = span[span.lastindex or 0]
        if _PROSE.search(_COMMAND.sub(" ", inner)):
            continue
        found += _runs(text, position, span.start(), letters)
        found += _parts(inner, span.start(), span.end())
        position = span.end()
    return (*found, *_runs(text, position, len(text), letters))


def _parts(inner: str, start: int, end: int) -> list[Formula]:
    """Return what stands between dollars, in parts where one follows from another."""
    inner = inner if "\\lim" in inner else _TENDS.sub(r"\\Rightarrow", inner)
    pieces = [piece for piece in _IMPLIES.split(inner) if piece.strip()]
    return [Formula(start, end, piece.strip(), True) for piece in pieces]


def _runs(text: str, start: int, end: int, letters: frozenset[str]) -> list[Formula]:
    """Return the runs of words that are mathematics."""
    found: list[Formula] = []
    run: list[tuple[int, int]] = []
    depth = 0
    for token in _TOKEN.finditer(text, start, end):
        word = token[0].strip(_QUOTES) or token[0]
        bare = word.rstrip(_ENDING)
        opened = sum(text.count("{", first, end) - text.count("}", first, end) for first, end in run[-_MOST_OPEN:])
        if opened <= 0 and (not _is_maths(bare or word, letters) or _IMPLIES.fullmatch(word)):
            found += _run(text, run, letters)
            run, depth = [], 0
            continue
        first = token.start() + token[0].index(word)
        depth += sum(map(bare.count, "([{")) - sum(map(bare.count, ")]}"))
        run.append((first, first + len(word if depth > 0 else bare)))
        if depth <= 0 and word != bare:
            found += _run(text, run, letters)
            run, depth = [], 0
    return found + _run(text, run, letters)


def _is_maths(word: str, letters: frozenset[str]) -> bool:
    """Tell whether a word may be a part of a formula."""
    if not word or not _MATHS.fullmatch(word) or word.lower() in _ABBREVIATIONS:
        return False
    bare = _OPEN_TEXT.sub(" ", _COMMAND.sub(" ", word))
    return all(is_product(run, letters) for run in _LETTERS.findall(bare))


def is_product(run: str, letters: frozenset[str]) -> bool:
    """Tell whether letters side by side are factors, or the name of a function, and no word."""
    if len(run) == 1 or run[0] == "\\" or set(run) <= letters:
        return True
    if len(run) == 2 and run[0] == "d":
        return True  # dx
    return run in FUNCTIONS or run in ("pi", "inf", "infinity", "oo", "theta") or run.removeprefix("sqrt") == ""


def _run(text: str, run: list[tuple[int, int]], letters: frozenset[str]) -> list[Formula]:
    """Return a run as a formula, without articles and dangling signs; nothing where only those are left."""
    words = [text[start:end] for start, end in run]
    while run and _dangles(words[0], words[1] if len(words) > 1 else "", letters):
        run, words = run[1:], words[1:]
    while run and (words[-1] in "-–−=*+:|&" or (len(run) > 1 and _is_loose(words, letters))):
        run, words = run[:-1], words[:-1]
    if not run:
        return []
    start, end = run[0][0], run[-1][1]
    whole = text[start:end]
    if _ONLY_SIGNS.fullmatch(_ENVIRONMENT.sub("", whole)):
        return []
    if whole[0] == "(" and closing(whole, 0) == 0:
        start, whole = start + 1, whole[1:]
    if whole and whole[-1] in ")]}" and sum(map(whole.count, "([{")) < sum(map(whole.count, ")]}")):
        end, whole = end - 1, whole[:-1]
    return [Formula(start, end, whole, False)] if whole.strip() else []


def _dangles(word: str, following: str, letters: frozenset[str]) -> bool:
    if word in ("=", "&=", "*", "+", "/", "-", "–", "−", ":", "&", "|", "≈", "•", "·", "<", ">"):
        return word not in "-−" or not following[:1].isdigit()
    alone = len(word) == 1 and word.isalpha() and word.isascii()
    return alone and word not in letters and not _OPERATOR_START.match(following)


def _is_loose(words: list[str], letters: frozenset[str]) -> bool:
    """Tell whether the last word is a letter that no operator joins to the formula: "5 m", "of a"."""
    last, before = words[-1], words[-2]
    return len(last) == 1 and last.isalpha() and not _OPERATOR_END.search(before) and last not in letters
