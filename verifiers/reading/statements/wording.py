"""What the words and signs next to an answer do to it: deny it, change its value, or ask about it."""

from __future__ import annotations

import re

_SENTENCE = re.compile(r"[.!?;][\"')\]]*\s+")
_INTERJECTION = re.compile(r"[\s*_\"'(]*(?:no|nope)\s*[,.!;]\s+", re.IGNORECASE)
_DENIAL = re.compile(
    r"\b(?:no(?! more| less| fewer)|not|never|none|nor|neither|nothing|cannot|isnt|different from|unequal)\b|n't\b"
    r"|\b(?:wrong|incorrect|false|untrue|impossible|unlikely|hardly)\b"
    r"|\b(?:(?:any|every)thing (?:but|except|other)|all (?:but|except))\b",
    re.IGNORECASE,
)
_NUMBERS = (
    "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|"
    "(?:twen|thir|for|fif|six|seven|eigh|nine)ty|dozen|hundred|thousand|million|billion|trillion|lakh|crore"
)
_NEAR = 80  # characters: nothing further away is next to a number
_OPENING, _CLOSING = " \t$#*_`\"'([{“‘", " \t$*_`\"')]}”’"
_BEFORE = re.compile(
    r"(?:[-+/^<>|≠≤≥±∓√∛×÷·¬%\\]=*|!=+"
    r"|\\(?:ne|neq|not|leq?|geq?|lt|gt|pm|mp|sqrt|times|cdot|div|log|ln|sin|cos|tan|exp|mid|nmid|bmod)\s*=*"
    r"|\b(?:sqrt|log|ln|sin|cos|tan|exp|abs|mod|modulo)"
    r"|\b(?:half|third|quarter|tenth|root|square|cube|factorial|percent|opposite|reciprocal|absolute value)(?: of)?"
    r"|\b(?:double|twice|thrice|triple|times|plus|minus|negative|divided by|multiplied by|out of|than)"
    r"|\b(?:at least|at most|over|under|above|below|beyond|nearly|almost|close to|far from|short of|except|instead of)"
    r"|(?<!add )(?<!adds )\bup to"
    rf"|\b(?:{_NUMBERS}|point)(?: and| or| to| point)?|\b(?:either|or))$",
    re.IGNORECASE,
)
_BRACE = re.compile(r"[\w}^_]\{[\s$]*$")
_STAR_BEFORE, _STAR_AFTER = re.compile(r"\S\s+\*{1,2}\s+$"), re.compile(r"\s+\*{1,2}\s+\S")
_FACTORIAL = re.compile(r"[\s)\]}]*!")
_SUBSCRIPT = re.compile(r"_+[A-Za-z0-9{]")
_AFTER = re.compile(
    r"[+/^<>|≠≤≥±∓√∛×÷·%‰?\\]|=[\s$)\]}.]*$|-\s*(?:[A-Za-z]\b|\()|(?-i:[b-zA-HJ-Z])\b(?!')|pi\b|π"
    rf"|(?:and |or |to |point |and a )*(?:{_NUMBERS})\b|(?:halves|thirds|fourths|fifths|eighths|tenths|hundredths)\b"
    r"|and a (?:half|third|quarter)\b|(?:thousandths?|squared|cubed|factorial|plus|minus|mod|bn|or)\b"
    r"|at (?:least|most)\b|to the (?:power|\w+ power)\b|(?:divided|multiplied) by\b",
    re.IGNORECASE,
)


def denied(before: str, after: str = "") -> bool:
    """Tell whether the words of the sentence before an answer, or those after it, deny it or ask whether it is right.

    "No, 18" is an answer; "not 18", "no answer: 18", "18 is wrong" and "is it 18?" are not.
    """
    sentence = _SENTENCE.split(_INTERJECTION.sub("", before, count=1))[-1]
    spoken = f"{sentence} ; {after}".replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return "?" in after or _DENIAL.search(spoken) is not None


def changed(before: str, after: str) -> bool:
    """Tell whether what is next to a number makes another number of it, or only a bound.

    Such as "minus", "half of" or "at least" before it, "thousand", "!" or "+ x" after it.
    """
    before, after = before[-_NEAR:], after[:_NEAR]
    if _BRACE.search(before) or _STAR_BEFORE.search(before) or _BEFORE.search(before.rstrip(_OPENING)):
        return True
    if _STAR_AFTER.match(after) or _FACTORIAL.match(after) or _SUBSCRIPT.match(after):
        return True
    return _AFTER.match(after.lstrip(_CLOSING)) is not None
