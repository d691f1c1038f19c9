"""Whether an answer equals the reference, as mathematics (math-verify)."""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from typing import Any

from ...plugins.extras import require
from ...reading.numbers.plain import Reading, read
from ...reading.numbers.quantities import Quantity
from .answers import NAME, Answer, bare, inside, name_of, plus_minus, sides

PLACES = 6
_LEAST = 100
_LONGEST = 300
_MOST_PARTS = 16
_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9,]*\.?[0-9]*|\.[0-9]+|\\[dt]?frac(?:\{-?[0-9]+\}|[0-9]){2}|[0-9]+/[0-9]+)\\?%?")
_TOWER = re.compile(r"\^\s*\{[^{}]*\^\s*\{[^{}]*\^")  # 9^{9^{9^9}}: sympy would write it out
_EXPLODES = re.compile(r"[0-9][)}]*\s*\^[\s{(]*[-+]?[0-9.]+[\s)}]*\^|\^[\s{(]*[-+]?[0-9]{5}|[0-9]{5}[)}\s]*!|!\s*!")
_DECIMALS = re.compile(r"\.([0-9]+)")
_COMMAND = re.compile(r"\\(?:begin|end)\{[a-z*]+\}|\\[A-Za-z]+")
_CALCULUS = re.compile(
    r"\\(?:int|sum|prod|lim|frac\s*\{\s*d\b|partial|det|gcd|lcm|binom|to|angle|circ|text|mathrm)|d/d[a-z]|'|%|!|[A-Za-z]\("
)
_NOUN_AFTER = re.compile(r" (?!or\b|and\b|not\b|but\b)[a-z]+")  # isosceles triangle
_SIGN = r"(<|>|\\(?:lt|gt|leq?|geq?)(?![A-Za-z]))"
_BOUND = re.compile(rf"(?:([^<>]+?){_SIGN})?\s*([A-Za-z])\s*{_SIGN}([^<>]+)")
_ABOVE = frozenset({">", "\\gt", "\\ge", "\\geq"})
_RADIANS = re.compile(r"^[^=]*\\pi[^=]*=(?!.*\\pi)")
_RELATION = re.compile(r"<|>|\\(?:le|ge|lt|gt|leq|geq|ne|neq)(?![A-Za-z])")
_IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")


def is_plain(formula: str) -> bool:
    """Tell whether a formula is a number as it is written, and no calculation."""
    return _NUMBER.fullmatch(bare(formula)) is not None


def letters_in(formula: str) -> frozenset[str]:
    """Return the letters of a formula, without its commands."""
    return frozenset(re.findall("[A-Za-z]", _COMMAND.sub(" ", formula)))


def equal(given: Answer, reference: Answer, lenient: bool) -> bool:
    """Tell whether an answer equals the reference.

    Args:
        given: the answer.
        reference: the reference.
        lenient: whether a side of a chain may stand for what cannot be compared, such as mc^2 in E = mc^2 = 46.
    """
    if given.words or reference.words:
        return (
            given.words == reference.words
            or _NOUN_AFTER.fullmatch(given.words.removeprefix(reference.words)) is not None
        )
    if len(given.parts) > _MOST_PARTS or any(len(part) > _LONGEST for part in given.parts):
        return False
    if (
        given.units
        and reference.units
        and not {(each.dimension, each.factor) for each in given.units}
        & {(each.dimension, each.factor) for each in reference.units}
    ):
        return False
    if all(map(_RELATION.search, reference.parts)):
        joined, union = _union(given.parts), _union(reference.parts)
        if joined and union and _verified(joined, union, PLACES):
            return True
    if any(unit.dimension == "angle" for unit in given.units):  # pi/6 = 30 degrees
        given = given._replace(parts=tuple(_RADIANS.sub("", part) for part in given.parts))
    names, known = [name_of(part) for part in given.parts], [name_of(part) for part in reference.parts]
    if len(known) > 1 and _are_names(known):
        return _pairs_equal(given, names, reference, known, lenient)
    if len(reference.parts) == 1 and len(given.parts) > 1 and _are_names(names):
        return _tuple_equals(given, names, reference.parts[0], lenient)
    chain = [side for side in sides(given.parts[0])[0] if not NAME.fullmatch(side)]
    if (
        _is_set(reference)
        and len(given.parts) == 1
        and len(chain) > 1
        and all(inside(side)[0] == "{" for side in chain)
    ):
        return all(equal(given._replace(parts=(side,)), reference, lenient) for side in chain)
    wanted, offered = _values(reference), _values(given)
    if len(wanted) == 1 and not _is_set(reference):
        return len(given.parts) == 1 and len(offered) == 1 and _part_equal(given.parts[0], reference.parts[0], lenient)
    return _sets_equal(offered, wanted, lenient)


def _union(parts: tuple[str, ...]) -> str:
    """Return inequalities in one letter, or intervals, as a union of intervals; empty if they are something else."""
    found = []
    for part in parts:
        bound = _BOUND.fullmatch(part)
        if not bound:
            found.append(part if inside(part)[0] or "\\cup" in part else "")
            continue
        low, first, _, second, high = bound.groups()
        if low and (first in _ABOVE or second in _ABOVE):
            return ""
        below = second not in _ABOVE
        start = f"{'[' if 'e' in first else '('}{low}" if low else "(-\\infty"
        end = f"{high}{']' if 'e' in second else ')'}"
        found.append(f"{start},{end}" if below else f"{'[' if 'e' in second else '('}{high},\\infty)")
    return "\\cup ".join(found) if all(found) else ""


def _are_names(names: list[str]) -> bool:
    return len(names) > 1 and all(names) and len({name[0] for name in names}) == len(names)


def _pairs_equal(given: Answer, names: list[str], reference: Answer, known: list[str], lenient: bool) -> bool:
    """Compare x = 3, y = 4 with the same in any order, or with (3, 4)."""
    values = [sides(part)[0][-1] for part in reference.parts]
    if len(given.parts) == 1:
        brackets, parts = inside(sides(given.parts[0])[0][-1])
        ordered = [value for _, value in sorted(zip(known, values, strict=True))]
        return brackets == "()" and _all_equal(parts, ordered, lenient)
    found = dict(zip(names, given.parts, strict=True))
    if len(found) != len(names) or set(found) != set(known):
        return False
    return _all_equal([found[name] for name in known], values, lenient)


def _tuple_equals(given: Answer, names: list[str], reference: str, lenient: bool) -> bool:
    """Compare x = 3, y = 4 with (3, 4); and with a single value the last one, because the others are working."""
    brackets, wanted = inside(sides(reference)[0][-1])
    if brackets in ("()", "{") and len(wanted) > 1:
        found = [part for _, part in sorted(zip(names, given.parts, strict=True))]
        return _all_equal(found, wanted, lenient) if brackets == "()" else _sets_equal(found, wanted, lenient)
    if len(plus_minus(reference)) > 1:
        return _sets_equal([sides(part)[0][-1] for part in given.parts], plus_minus(sides(reference)[0][-1]), lenient)
    return _part_equal(given.parts[-1], reference, lenient)


def _all_equal(given: list[str], wanted: list[str], lenient: bool) -> bool:
    pairs = zip(given, wanted, strict=False)
    return len(given) == len(wanted) and all(_part_equal(one, other, lenient) for one, other in pairs)


def _is_set(answer: Answer) -> bool:
    return inside(sides(answer.parts[0])[0][-1])[0] == "{"


def _values(answer: Answer) -> list[str]:
    """Return the values of a list whose order is free: of 2, 3 and of {2, 3} and of x = 2 or x = 3 and of ±2."""
    found = []
    for part in answer.parts:
        chain, _ = sides(part)
        named = len(chain) == 1 or (len(chain) == 2 and NAME.fullmatch(chain[0]))
        brackets, parts = inside(chain[-1]) if named else ("", [])
        if brackets == "{":
            found += [value for each in parts for value in plus_minus(each)]
        elif (named or len(chain) > 2) and len(plus_minus(chain[-1])) > 1:
            found += plus_minus(chain[-1])
        else:
            found.append(part)
    return found


def _sets_equal(given: list[str], wanted: list[str], lenient: bool) -> bool:
    if len(given) > _MOST_PARTS or len(wanted) > _MOST_PARTS or len(given) > 2 * len(wanted):
        return False
    values = [sides(each)[0][-1] for each in wanted]
    hits = [{n for n, value in enumerate(values) if _part_equal(each, value, lenient)} for each in given]
    return all(hits) and set().union(*hits) == set(range(len(values)))


def _part_equal(part: str, reference: str, lenient: bool) -> bool:
    """Tell whether each side of a chain that says something about the value equals the reference."""
    wanted = sides(reference)[0]
    if len(wanted) > 1 and not NAME.fullmatch(wanted[0]):
        return _equations_equal(part, reference)
    reference, known = wanted[-1], letters_in(wanted[-1])
    chain, relations = sides(part)
    exact = False
    for number, (relation, side) in enumerate(zip(relations, chain, strict=True), start=1):
        last, rounded = number == len(chain), exact and relation != "="
        if not last and relation == "=" and (NAME.fullmatch(side) or (lenient and _is_working(side, known))):
            continue
        if not _side_equal(side, reference, rounded, working=not last):
            rearranged = lenient and len(chain) == len(wanted) == 2 and not NAME.fullmatch(chain[0])
            return rearranged and _equations_equal(part, "=".join(wanted))
        exact = True
    return True


def _is_working(side: str, known: frozenset[str]) -> bool:
    """Tell whether a side of a chain has other letters than the reference, or what cannot be compared."""
    if not side.strip() or _EXPLODES.search(side) or _TOWER.search(side):
        return False
    return not letters_in(side) <= known or _CALCULUS.search(side) is not None or not parse(side)


def _equations_equal(part: str, reference: str) -> bool:
    chain, relations = sides(part)
    if len(chain) < 2 or set(relations) != {"="} or _TOWER.search(part) or _EXPLODES.search(part):
        return False
    pairs = (chain[0], chain[-1]), (sides(reference)[0][0], sides(reference)[0][-1])
    parsed = [parse(f"{left}-({right})") for left, right in pairs]
    if not all(found and hasattr(found[0], "free_symbols") for found in parsed) or _is_undone(*parsed):
        return False
    one, other = (found[0] for found in parsed)
    if not one.free_symbols or one.free_symbols != other.free_symbols:
        return False
    ratio = (one / other).simplify()
    return bool(ratio.is_number and ratio.is_nonzero)


def _side_equal(answer: str, reference: str, rounded: bool, working: bool) -> bool:
    """Tell whether one side of an answer equals the reference: to its own places if it may be rounded."""
    if not answer.strip() or not answer.isascii() or not answer.isprintable() or _TOWER.search(answer) or "$" in answer:
        return False
    if (("%" in answer) != ("%" in reference) and "%" in answer) or is_too_short(read(answer)):
        return False
    if not working and is_plain(reference) and not is_plain(answer):
        return False
    if _RELATION.search(answer) and not (_RELATION.search(reference) or inside(reference)[0] or "\\cup" in reference):
        return False
    if not _RELATION.search(answer) and not _same_brackets(answer, reference):
        return False
    if _EXPLODES.search(answer) and answer != reference:
        return False
    own = max((len(digits) for digits in _DECIMALS.findall(answer)), default=0)
    known = max((len(digits) for digits in _DECIMALS.findall(reference)), default=0)
    return _verified(answer, reference, own if rounded else max(PLACES, own, known), working)


def _same_brackets(answer: str, reference: str) -> bool:
    """Tell whether two lists have the same brackets, where either has any."""
    kinds = [inside(each)[0] if "\\cup" not in each else "" for each in (answer, reference)]
    vector = any("\\langle" in each for each in (answer, reference))
    return kinds[0] == kinds[1] or (vector and "\\begin" in answer + reference)


def is_too_short(given: Reading | Quantity | None) -> bool:
    """Tell whether a decimal has places, but hardly a digit that is not 0, so that it cannot pass for a rounded one."""
    return given is not None and given.places >= PLACES and 0 <= abs(given.value) * 10**given.places < _LEAST


def _is_undone(answer: list[Any], reference: list[Any]) -> bool:
    """Tell whether an answer, as parsed, has an operation to be done, such as an integral, and the reference none."""
    sympy = require("sympy", "math", "verifier 'math'")
    kinds = sympy.Integral, sympy.Derivative, sympy.Limit, sympy.Sum, sympy.Product
    one, other = (any(each.has(*kinds) for each in parsed) for parsed in (answer, reference))
    return one and not other


def _verified(answer: str, reference: str, places: int, working: bool = False) -> bool:
    if letters_in(reference) == {"i"}:
        answer, reference = (_IMAGINARY.sub(r"(\\sqrt{-1})", each) for each in (answer, reference))
    meant, parsed = parsed_reference(reference), parse(_vector(answer, reference))
    if not working and _is_undone(parsed, meant):
        return False
    options = {"float_rounding": places, "numeric_precision": max(15, places + 10), "timeout_seconds": None}
    sets = {"allow_set_relation_comp": True} if _RELATION.search(answer) else {}
    return bool(meant) and bool(parsed) and bool(_library().verify(meant, parsed, **options, **sets))


def _vector(formula: str, reference: str) -> str:
    r"""Return a vector such as \langle 3, 4 \rangle as a column, or as (3, 4) where the reference has no column."""
    found = re.fullmatch(r"\s*\\langle(.+)\\rangle\s*", formula)
    if not found:
        return formula
    rows = found[1].replace(",", "\\\\")
    return f"\\begin{{pmatrix}}{rows}\\end{{pmatrix}}" if "\\begin" in reference else f"({found[1]})"


def _library() -> Any:
    # Without its own alarm signals it warns at every call; the worker's deadline takes their place.
    logging.getLogger("math_verify").setLevel(logging.ERROR)
    return require("math_verify", "math", "verifier 'math'")


def parse(formula: str) -> list[Any]:
    """Return what math-verify makes of a formula; nothing where it cannot read it."""
    library = _library()
    normal = library.LatexNormalizationConfig(malformed_operators=True, nits=True, boxed="none")  # 3m is not 3
    latex = library.LatexExtractionConfig(normalization_config=normal)  # its other readers end in Python's eval
    return library.parse(f"${formula}$", (latex,), fallback_mode="no_fallback", parsing_timeout=None)


@lru_cache(maxsize=4096)
def parsed_reference(formula: str) -> list[Any]:
    """Return what math-verify makes of a reference."""
    if _TOWER.search(formula) or "$" in formula:
        return []
    return parse(_vector(formula, ""))
