"""What a formula answers with: one value, a list, named values, or words; each with its unit."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...reading.numbers.units import UNIT, Unit, units_of
from ...reading.statements.wording import changed, denied
from .latex import closing, latex

NAME = re.compile(
    r"\s*(?:\\(?:angle|vec|overrightarrow|hat|bar|operatorname|text|mathrm)\s*)*\{?(?:[A-Za-z]|\\(?:alpha|beta|gamma|delta|"
    r"theta|lambda|mu|phi|varphi|omega|sigma|rho))\}?(?:_\{?\w{1,9}\}?)?(?:'{1,2}|\^\{?(?:-1|'|\\prime)\}?)?"
    r"(?:\s*\([A-Za-z](?:\s*,\s*[A-Za-z])*\))?\s*"
)
EQUALS = re.compile(r"(=|\\approx(?![A-Za-z])|\\cong(?![A-Za-z])|\\equiv(?![A-Za-z]))")
_MEMBER = re.compile(r"\s*(?:[A-Za-z]|\([A-Za-z, ]+\))\s*\\in(?![A-Za-z])\s*(.+)", re.DOTALL)
_JOIN = re.compile(
    r"\\(?:text|mathrm|mbox)\s*\{\s*(?:,?\s*(?:or|and)|,)\s*\}|\\(?:quad|qquad|lor|vee|wedge|land)(?![A-Za-z])"
    r"|(?<![A-Za-z\\])(?:or|and)(?![A-Za-z])"
)
_BARE = re.compile(r"\\[!,;]|\\left|\\right|\\(?=[{}])| ")
TEXT = re.compile(r"\\(?:text(?:bf|it|rm)?|mathrm|mathbf|mbox|operatorname)\s*\{([^{}]*)\}")
_UNIT_IN_LATEX = re.compile(
    r"(?:\\[,;: ]|~|\s)*\\(?:text|mathrm|mbox)\s*\{\s*([A-Za-z°/ .]+)\s*\}"
    r"(?:\s*/\s*\\(?:text|mathrm)\{\s*([A-Za-z ]+?)\s*\})?"
    r"(\s*\^\s*\{?[23]\}?)?\s*\.?$"
)
_ANGLE = re.compile(r"\s*\^\s*\{?\s*\\circ\s*\}?\s*$|\s*\\degree\s*$")
_MODULO = re.compile(r"^[^=]*\\equiv(?![A-Za-z])(.*?)(?:\\pmod|\(\s*\\?(?:bmod|mod)\b).*$", re.DOTALL)
_PLAIN_UNIT = re.compile(rf"(?<=[0-9)}}]) ?({UNIT})\s*$")
_SQUARE_UNITS = re.compile(
    r"\s*(?:square |cubic |sq\.? )?units?\b(?:\^\{?[23]\}?|²|³| (?:squared|cubed))?\s*$", re.IGNORECASE
)
_THOUSANDS = re.compile(r"(?<![0-9.,])([1-9][0-9]{0,2}(?:(?:,|\{,\})[0-9]{3})+)(?![0-9])")


class Answer(NamedTuple):
    """What a text answers with.

    Args:
        parts: the formulas in LaTeX: one, or those of a list; each may be a chain of equal sides.
        units: what its unit may be; empty without one that is known.
        words: in small letters, where the answer is words and not a formula.
    """

    parts: tuple[str, ...]
    units: tuple[Unit, ...] = ()
    words: str = ""


def answer_of(pieces: Sequence[str], after: str = "") -> Answer | None:
    """Return what formulas that belong together answer with; None where words beside them change it.

    Args:
        pieces: the formulas, in any notation.
        after: the words behind the last one, which may begin with a unit.
    """
    parts: list[str] = []
    units: tuple[Unit, ...] = ()
    for piece in pieces:
        text, unit = without_unit(piece)
        if text is None:
            return None
        units = unit or units
        parts += list(split(_JOIN.sub(",", latex(text))))
    behind = re.match(rf"\s*({UNIT})", after) if after else None
    if behind and not units:
        units = units_of(behind[1])
    parts = [each for each in parts if each]
    return Answer(tuple(parts), units) if parts else None


def without_unit(formula: str) -> tuple[str | None, tuple[Unit, ...]]:
    r"""Return a formula without the unit behind it, and the unit; None where \text{} changes it ("or so")."""
    text = formula.strip().rstrip(".,;").strip()
    text = re.sub(r"^\\?[$€£](?=\s*[0-9])", "", text)
    text = _MODULO.sub(r"\1", text)
    found = _UNIT_IN_LATEX.search(text)
    if found:
        words = f"{found[1].strip()}{f'/{found[2]}' if found[2] else ''}"
        rest = text[: found.start()]
        if not rest.strip():
            return text, ()
        if not re.fullmatch(UNIT, words) and (changed("", words) or denied(words)):
            return None, ()
        if not _JOIN.fullmatch(found[0].strip()):
            power = re.sub(r"[\s{}]", "", found[3] or "")
            return rest, units_of(words + power)
    for pattern in (_ANGLE, _SQUARE_UNITS):
        behind = pattern.search(text)
        if behind and behind.start() > 0:
            return text[: behind.start()], units_of("°") if pattern is _ANGLE else ()
    if text.endswith("°"):
        return text[:-1], units_of("°")
    plain = _PLAIN_UNIT.search(text)
    if plain and (len(plain[1]) > 1 or plain[0][0] == " ") and not re.fullmatch(r" ?[A-Za-z]", plain[0]):
        return text[: plain.start()], units_of(plain[1])
    return text, ()


def split(formula: str) -> Iterator[str]:
    """Yield the parts of a formula between commas and semicolons that are in no bracket."""
    text = _THOUSANDS.sub(lambda found: found[1].replace("{,}", "").replace(",", ""), formula)
    text = text.replace("\\langle", "⟨").replace("\\rangle", "⟩")
    if "\\begin" in text:
        yield text.strip()
        return
    depth, start = 0, 0
    for place, sign in enumerate(text):
        depth += (sign in "([{⟨") - (sign in ")]}⟩")
        if depth == 0 and sign in ",;" and text[place - 1 : place] != "\\":
            yield _angled(text[start:place])
            start = place + 1
    yield _angled(text[start:])


def _angled(text: str) -> str:
    return text.replace("⟨", "\\langle ").replace("⟩", "\\rangle ").strip()


def inside(formula: str) -> tuple[str, list[str]]:
    r"""Return the brackets around a formula and its parts: "(" for (1,2), "{" for \{1,2\}, "" for x+1."""
    text = formula.strip().replace("\\{", "{").replace("\\}", "}").replace("\\langle", "(").replace("\\rangle", ")")
    if text[:1] not in ("(", "[", "{") or ("," not in text and text[:1] != "{"):
        return "", [formula]
    if text[0] == "{" and closing(text, 0) == len(text) and formula.strip().startswith("\\{"):
        return "{", [part for part in split(text[1:-1]) if part]
    last = {"(": ")]", "[": ")]"}.get(text[0], "")
    if text[-1:] in last and _closes(text):
        parts = list(split(text[1:-1]))
        return (text[0] + text[-1], parts) if len(parts) > 1 else ("", [formula])
    return "", [formula]


def _closes(text: str) -> bool:
    """Tell whether the first bracket is closed by the last one, of either kind."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if not depth:
            return place == len(text) - 1
    return False


def sides(part: str) -> tuple[list[str], list[str]]:
    """Return the sides of a chain, and the relation before each: "=" before the first."""
    member = _MEMBER.fullmatch(part)
    pieces = EQUALS.split(member[1] if member else part)
    return pieces[::2], ["=", *pieces[1::2]]


def name_of(part: str) -> str:
    """Return the name that a part gives to its value: "x" of "x = 3"; empty without one."""
    chain, _ = sides(part)
    return re.sub(r"[\s{}\\]", "", chain[0]) if len(chain) > 1 and NAME.fullmatch(chain[0]) else ""


def plus_minus(value: str) -> list[str]:
    """Return the two values of a formula with ±."""
    if len(re.findall(r"\\pm(?![A-Za-z])", value)) != 1 or "\\mp" in value:
        return [value]
    return [re.sub(r"\\pm(?![A-Za-z])", sign, value) for sign in ("+", "-")]


def bare(formula: str) -> str:
    """Return a formula without spaces and the backslashes of brackets."""
    return _BARE.sub("", formula)


def words_of(text: str) -> str:
    """Return the words of an answer in small letters, without signs around them."""
    plain = TEXT.sub(r" \1 ", text).replace("$", " ").replace("\\", " ")
    words = re.sub(r"[^\w'/-]+", " ", plain).strip(" '-").casefold()
    return re.sub(r"^(?:the|a|an) ", "", words)
