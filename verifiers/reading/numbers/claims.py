"""Reads the quantity in a claim: the reader of `numeric` for the stated-result rule."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from ..statements.phrases import VERB
from ..statements.stated import BOX, UNCLEAR, Claim, Rank, Unclear
from ..statements.wording import changed
from .equations import EQUAL, is_chain, is_result
from .phrases import (
    ADVERBIAL,
    ALONE_LEAD,
    BOUNDARY,
    COMPARES,
    DENIED_AFTER,
    DENIED_BEFORE,
    GOES_ON,
    LIST,
    OR,
    RANGE,
    is_operand,
    is_spoiled,
)  # fmt: skip
from .plain import has_digit
from .quantities import Quantity, may_have_quantity, normal, quantities, summed
from .question import Question, question_in, words_of
from .units import UNIT, common, converted
from .words import alone

_NAME = re.compile(r"[\s$]*[A-Za-z][A-Za-z ]{0,30}[\s$.]*")
_REMAINDER = re.compile(r"\bremainder\b|\bR\b", re.IGNORECASE)
_NEXT_CLAUSE = re.compile(r",? (?:and|while|but|making)\b|[,;] ", re.IGNORECASE)
_UNSOLVED = re.compile(  # 2x = 8, x/2 = 9, c² = 25
    r"[0-9)] ?[A-Za-z](?:\^?[0-9]|[²³])?\s*$|(?<![A-Za-z])[A-Za-z] ?(?:/ ?[0-9]+|\^\{?[0-9]+\}?|[²³])\s*$"
)
_OPENS = re.compile(r"(?<!\\)\$(?=[A-Za-z\\(])[^$]*$")  # a formula
_ADJECTIVE = re.compile(  # a two-digit number
    r"\b(an?) (?:zero|one|two|three|four|five|six|seven|eight|nine|ten|[0-9]{1,2}-)[- ]?"
    rf"(?!and\b|point\b|times\b|hundred|thousand|million|dozen|half|halves|third|quarter|fifth|tenth|{UNIT})(?=[a-z]{{2}})",
    re.IGNORECASE,
)
_DEGREE = re.compile(r"(?<=[0-9]) ?([CFK])(?![\w'])")
_TEMPERATURES = frozenset({"°C", "°F", "kelvin"})
_DESCRIBED = re.compile(r"[^=]*[-+*/×÷·][^=]*=[ $]*[-0-9.,/]+[ $]*")  # 12 - 4 = 8, which "is" a fact
_EITHER = re.compile(r" ?-?[0-9][0-9.,/]*,? or [A-Za-z]\w* ?")  # [x =] 4 or x [= 5]
_ASIDE = re.compile(r",? ?\b(?:by the way|incidentally|for comparison|as an aside),?", re.IGNORECASE)
_THAT_IS = re.compile(r"[\s*,;(]*(?:i\.e\.|that is|which is|in other words|namely)[\s*,]*", re.IGNORECASE)
_IS = re.compile(r"\W*(?:is|are|equals?|was|were)\b")
_ROUNDED = Fraction(2, 100)  # 5 miles (8 km)
_BRACKET = re.compile(r"[^()0-9.;]{0,30}\(([^()]*)\)")
_MOST_WORDS = 12  # between a verb and its number
_MOST_WORDS_AFTER = 6  # a number that stands alone


def reader(prompt: str) -> Callable[[Claim], Quantity | Unclear | None]:
    """Return the function that reads the quantity in a claim of an answer to this prompt."""
    question = question_in(prompt)
    return lambda claim: _read(claim, question) if may_have_quantity(claim.text) else None


def _read(claim: Claim, question: Question) -> Quantity | Unclear | None:
    if DENIED_BEFORE.search(claim.before) or DENIED_AFTER.match(claim.after) or _is_beside(claim, question):
        return None
    before, text = claim.before, _text_of(claim, question)
    equals = claim.verb != "" and EQUAL.fullmatch(normal(claim.verb).strip()) is not None
    if "?" in text or (equals and before.rstrip().endswith("(")) or (not equals and _DESCRIBED.fullmatch(before)):
        return None
    if claim.verb == ":" and question.noun and _counts(before, question.noun):
        return None
    *sides, right = EQUAL.split(text)
    if equals:
        sides = [*EQUAL.split(normal(_without_opening(before))), *sides]
    if sides and _UNSOLVED.search(sides[-1]) and not quantities(sides[-1]):
        return None
    result = _single(right, claim, question)
    if isinstance(result, Quantity) and sides and not is_chain(sides, result):
        return UNCLEAR
    if isinstance(result, Quantity) and sides and _EITHER.fullmatch(sides[-1]):
        return UNCLEAR
    if isinstance(result, Quantity) and _disagrees(result, normal(claim.after)):
        return UNCLEAR
    if isinstance(result, Quantity) and (meant := _converted_from(result, before, question)):
        return meant
    if result is None and len(sides) == 1 and claim.verb != "=":  # 18 = x, 18 = 3 * 6
        first = _single(sides[0], claim, question)
        if isinstance(first, Quantity) and (_NAME.fullmatch(right) or is_result(right, first)):
            return first
    if result is None and not claim.verb and not sides:
        return _odd_one(text, claim, question)
    return result


def _counts(before: str, noun: str) -> bool:
    """Tell whether an equation ends in what is counted, so that a colon only explains it: "4 + 1 = 5 sisters:"."""
    return re.search(rf"= ?\**[0-9][0-9,.]* (?:{re.escape(noun)})s?\W*$", before, re.IGNORECASE) is not None


def _text_of(claim: Claim, question: Question) -> str:
    """Return the text of a claim in normal notation, with the sign before a box; "?" if it is spoiled by that."""
    text = claim.text
    sentence = (
        claim.rank != Rank.ALONE and claim.verb != BOX and re.search(r"(?<![\\a-z])[a-z]{2}", claim.before + text)
    )
    if sentence and not question.factorials:
        text = re.sub(r"(?<=[0-9a-z)}$])!+(?=[\s*_$)]*$)", "", text)
    if not question.factorials:
        text = re.sub(r"(?<=[$*_`\"'])!+(?=\s|$)", "", text)
    if _without_opening(claim.before) != claim.before:
        text = re.sub(r"(?<!\\)\$(?![0-9])", " ", text, count=1)  # the end of a formula, not a currency
    text = normal(re.sub(r"\(\s*[=≈] ?", "(", _ADJECTIVE.sub(r"\1 ", text)))
    if question.dimensions & _TEMPERATURES:
        text = _DEGREE.sub(lambda found: " kelvin" if found[1] == "K" else f"°{found[1]}", text)
    if question.share:
        text = re.sub(r"(?<=[0-9]) (?:out of|in) (?=[1-9])", "/", text)
    if claim.verb == BOX:
        before = claim.before.rstrip(" $(")
        if re.search(r"(?:^|[^\w)}]\s*)[-−]$", before) and not re.match(r"\s*-", text):
            text, before = f"-{text.strip()}", before[:-1]
        after = re.sub(r"^[\s$]*\\boxed", " ", claim.after)
        if changed(normal(before[-80:].replace("$", "")), "") or changed("", after):
            return "?"
    return text


def _without_opening(before: str) -> str:
    """Return the text before a claim without the dollar of a formula that ends in the claim."""
    opens = _OPENS.search(before)
    place = opens.start() if opens else -1
    if not opens and len(re.findall(r"(?<!\\)\$", before)) % 2:
        place = before.rindex("$")
    return before if place < 0 else f"{before[:place]} {before[place + 1 :]}"


def _converted_from(result: Quantity, before: str, question: Question) -> Quantity | None:
    """Return what a result in another unit than that asked for repeats: 12,000 kg, "which is 12 tonnes"."""
    if not question.units or not result.units or common(result.units, question.units):
        return None
    found = quantities(normal(before))
    if not found or not common(found[-1].units, question.units):
        return None
    return found[-1] if result.value in converted(found[-1].value, found[-1].units, result.units) else None


def _disagrees(result: Quantity, after: str) -> bool:
    """Tell whether a bracket after a result gives another quantity in a unit of that kind: 12 kg (13,000 g)."""
    bracket = _BRACKET.match(after)
    found = quantities(bracket[1]) if bracket else []
    if len(found) != 1 or bracket is None or bracket[1][found[0].end :].strip(" .$*"):
        return False
    values = converted(result.value, result.units, found[0].units)
    return bool(values) and all(abs(each - found[0].value) > _ROUNDED * abs(each) for each in values)


def _is_beside(claim: Claim, question: Question) -> bool:
    """Tell whether a clause is about something else than the one before it, which is about what was asked.

    "The larger number is 12 and the smaller one is 8."; and "(The median, by the way, is 15.5.)"
    """
    sentence = claim.before or claim.text
    if sentence.startswith("(") and claim.rank < Rank.ANSWER and _ASIDE.search(sentence):
        about = words_of(VERB.split(_ASIDE.sub("", sentence))[0])
        return bool(about) and not about & question.words
    making = claim.verb.lower() == "making"  # 9, making the total 69
    *_, own = clauses = _NEXT_CLAUSE.split(claim.before)
    if len(clauses) < 2 - making or claim.verb in ("=", ":", "", BOX) or not has_digit(clauses[0]):
        return False
    about = words_of(re.split("[0-9]", claim.text)[0] if making else own)
    first = words_of(VERB.split(clauses[0])[0])
    return bool(first) and first <= question.words and not about <= question.words


def _single(text: str, claim: Claim, question: Question) -> Quantity | Unclear | None:
    """Return the quantity that a text is about: its first one, unless the next one belongs to it."""
    found = quantities(text)
    if not found:
        number = None if has_digit(text) else alone(text)
        return None if number is None else Quantity(number)
    first, second = found[0], found[1] if len(found) > 1 else None
    if second is not None:
        glue = text[first.end : second.start]
        if question.remainder and _REMAINDER.search(glue):
            return second
        asked = _asked_for(text, found, question) or _in_asked_unit(text, found, question)
        if asked is not None:
            return asked
        several = not claim.verb and claim.rank in (Rank.MENTION, Rank.CONCLUSION)
        if claim.verb == ":" or (several and len({each.value for each in found}) > 1):
            return UNCLEAR if OR.fullmatch(glue) else None
        chosen = _alternative(text, first, second, question)
        if chosen is not first:
            return chosen
        both = summed(first, second) if re.fullmatch("(?: |,|and)*", glue) else None
        first = both or first
    return first if _stands_alone(text, first, claim, question) else None


def _stands_alone(text: str, first: Quantity, claim: Claim, question: Question) -> bool:
    """Tell whether nothing around a quantity makes another result of it."""
    lead, tail = text[: first.start], text[first.end :]
    if has_digit(lead) or len(lead.split()) > _MOST_WORDS:
        return False
    if question.is_undone(first, text):
        return False
    if is_spoiled(lead, tail) or GOES_ON.match(tail) or (is_operand(lead) and not question.asks_for(first, text)):
        return False
    if first.percent and question.percent:
        return True
    if has_digit(tail):
        glue = re.split("[0-9]", tail)[0]
        if COMPARES.match(glue) or not BOUNDARY.search(glue):
            return False
    elif re.match(r"\W*of (?:\w+ )?(?:that|it|this|them)\b", tail) and not claim.verb:
        return False
    if claim.rank == Rank.ALONE:
        return ALONE_LEAD.fullmatch(lead) is not None and len(tail.split()) <= _MOST_WORDS_AFTER
    return True


def _asked_for(text: str, found: list[Quantity], question: Question) -> Quantity | None:
    """Return the one quantity that the question asks for, if all others are of other things: "8 corners, 12 edges"."""
    asked = [each for each in found if question.asks_for(each, text)]
    others = [each for each in found if each not in asked]
    if len({each.value for each in asked}) != 1 or not all(question.asks_for_another(each, text) for each in others):
        return None
    lead, tail = text[: asked[0].start], text[asked[0].end :]
    either = re.search(r"\b(?:or|than|of)\b", text) is not None
    return None if not others or either or is_spoiled(lead, tail) else asked[0]


def _in_asked_unit(text: str, found: list[Quantity], question: Question) -> Quantity | None:
    """Return the second of two quantities if it is the first one in the unit asked for: "0.75 kg, i.e. 750 grams"."""
    first, second, *others = found
    if others or common(first.units, question.units) or not common(second.units, question.units):
        return None
    exact = second.value in converted(first.value, first.units, second.units)
    glued = _THAT_IS.fullmatch(text[first.end : second.start]) is not None
    return second if exact and glued and not is_spoiled(text[: first.start], text[second.end :]) else None


def _alternative(text: str, first: Quantity, second: Quantity, question: Question) -> Quantity | Unclear | None:
    """Return UNCLEAR where a second quantity is another answer: "17 or 18", "17, 18", "17-18"; else the first.

    None for a list of numbers that the question names.
    """
    glue = text[first.end : second.start]
    values = converted(first.value, first.units, second.units)
    if second.value in (first.value, *values) or summed(first, second):
        return first
    if values and glue.rstrip().endswith("("):
        return UNCLEAR if _disagrees(first, text[first.end :]) else first
    if OR.fullmatch(glue):
        return UNCLEAR
    known = {first.value, second.value} <= question.known
    if RANGE.fullmatch(glue) and glue != " - ":
        between = re.search(r"\bbetween\W*$", text[: first.start]) is not None
        return UNCLEAR if between or "and" not in glue or not known else None
    if LIST.fullmatch(glue):
        return None if known else UNCLEAR
    return first


def _odd_one(text: str, claim: Claim, question: Question) -> Quantity | None:
    """Return the one quantity of a sentence that the question does not name: "20 is 25% of 80"."""
    if claim.rank == Rank.ALONE:
        return None
    adverbial = ADVERBIAL.match(text)
    text = text[adverbial.end() :] if adverbial else text
    found = quantities(text)
    found = [each for each in found if text.count("(", 0, each.start) <= text.count(")", 0, each.start)] or found
    if not found or (claim.rank == Rank.CONCLUSION and VERB.search(text) and not _IS.match(text[found[0].end :])):
        return None
    asked = [each for each in found if question.asks_for(each, text)]
    odd = [each for each in found if each.value not in question.known] or asked
    only = len(found) == 1 or not odd
    odd = odd or found[:1]
    lead, tail = text[: odd[-1].start], text[odd[-1].end :]
    if question.is_undone(odd[-1], text):
        return None
    if len({each.value for each in odd}) > 1 or is_spoiled(lead, tail) or (only and is_operand(lead)):
        return None
    return odd[-1]
