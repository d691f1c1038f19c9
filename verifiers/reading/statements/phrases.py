"""The English phrases by which a completion states, concludes, withdraws, doubts or checks a result."""

from __future__ import annotations

import re


def _any(*phrases: str) -> str:
    return "|".join(phrases)


_BE = _any(
    "is|are|was|were|equals?|becomes?|is equal to|equal to",
    "(?:must|should|would|will|could|can|has to|have to|to) be",
    "comes? (?:out )?(?:to|as|at)|works? out (?:to|as|at)",
)
_YOU = "(?: us| you| me| him| her| them)?"

SAID = re.compile(  # the answer is ...
    r"(?<!\bto )(?<!\bcan )\b(?:answer|ans|final (?:result|total|value))\b"
    r"(?! (?:choice|option|key|the|this|your|that))(?P<mid>[^:=?]{0,100}?)"
    rf"(?P<verb>'s\b|\b(?:{_BE})\b|[:=]|(?<=answer) (?=[-$\\0-9(]))"
    r"(?: ?(?:therefore|thus|then|simply|indeed|also|just|hence|now|still|again)\b,?)?(?: ?:)?",
    re.IGNORECASE,
)
IS_THE_ANSWER = re.compile(  # ... is the answer
    r"(?P<verb>,? (?:is|was|would be|must be|should be|as))"
    r" (?:(?:the|my|your|our) )?(?:(?:final|correct|right|best|only) )*(?:answer|correct|right)\b(?! (?:is|to be)\b)",
    re.IGNORECASE,
)
_EQUAL = r"(?<![<>!≠:=\\])==?(?![=>])|≈|≅|\\(?:approx|equiv|cong|simeq)(?![a-z])"
_ARROW = r"[-=]{1,2}>|→|⇒|⟹|\\(?:Right|right|Longright)arrow(?![a-z])|\\implies(?![a-z])"
_COLON = r"(?<![0-9]):(?![/:])|(?<=[0-9]):(?= )"
_VERBS = _any(
    _BE,
    f"gives?{_YOU}|giving{_YOU}|leaves?{_YOU}(?: with)?|leaving{_YOU}(?: with)?|left with",
    "makes?(?: it)?|making|totals|totall?ing|yields?|yielding|produces?|gets?|getting|ha(?:s|ve|d)|costs?|pays?",
    "appears?|occurs?|needs?|takes?|took|lasts|lasted|earns?|earned|remains?|contains?|holds?|means?",
    "results? in|resulting in|amounts? to|adds? up to",
    "sums? to|evaluates? to|simplif(?:y|ies) to|reduces? to|round(?:s|ed)?(?: up| down)? to|(?:a|the) total of",
    "bringing (?:it|the total) to|(?:find|obtain|arrive at|ends? up with|ended up with|choose|pick|say|guess|go with)",
)
_DOES = "(?:make|take|pay|need|have|earn|cost|contain|hold|produce)"  # "to make 100 widgets" concludes nothing
_IT = "(?:it|that|this|there|here|he|she|answer|total|sum|result)"
VERB = re.compile(rf"{_EQUAL}|{_ARROW}|{_COLON}|\b{_IT}'s(?= )|\b(?!(?<=\bto ){_DOES})(?:{_VERBS})\b", re.IGNORECASE)
REASON = re.compile(  # what follows it explains
    r",? \(?(?:because|since|due to|given that|which|where|found by|obtained by|calculated (?:by|as)|meaning|seeing as|"
    r"considering|as (?=(?:it|the|we|this|that|there|you|he|she|they|each|an?|[0-9$])\b))\b",
    re.IGNORECASE,
)
WHY = re.compile(  # a reason, or something in brackets
    r"(?<![-−+*/×÷·^=(]) \(|,? (?:because|since|due to|given that|as (?=(?:it|the|we|there|you|he|she|they|each)\b))\b",
    re.IGNORECASE,
)
CONCLUDES = re.compile(
    r"\b(?:so|therefore|thus|hence|altogether|in total|total|in all|finally|in the end|now|consequently|overall|left|"
    r"in conclusion|remaining)\b|∴|\\therefore",
    re.IGNORECASE,
)
_MINE = _any("that|this|it|which|i", "my (?:(?:previous |earlier |first )?answer|calculation|math|arithmetic)")
_MISTAKEN = _any(
    "made an? (?:\\w+ )?(?:mistake|error|slip)|miscalculated|misread|miscounted|forgot|overlooked|meant|missed",
    "need to correct|should correct|mis-?spoke",
)
WITHDRAWS = re.compile(
    r"(?:[\w',… -]{0,40}\b)?(?:"
    rf"(?:{_MINE})(?:'s| is| was|'m| am)?(?: \w+)? "
    r"(?:wrong|incorrect|not (?:right|correct)|a mistake|mistaken|an error)\b"
    rf"|i(?:'ve| have)? (?:{_MISTAKEN})\b"
    r"|(?:scratch that|my mistake|my bad|i apologi[sz]e|apologies|not quite right|isn't (?:quite )?right|"
    r"that (?:isn't|doesn't|can't be|cannot be) (?:right|correct)|"
    r"let me (?:correct|redo|fix|try (?:that |it )?again|start over|recalculate|recompute))\b"
    r")|(?:no|nope|oops|whoops|correction|edit)\b ?(?:[,.:!—–-]|\.\.\.|…)",
    re.IGNORECASE,
)
RECONSIDERS = re.compile(
    r"(?:but |oh |hm+,? |ah,? |um,? )?(?:wait|actually|hm+|hold on|on second thoughts?|sorry|rather|"
    r"let me (?:double[- ]?|re-?)?check|thinking again|looking again|upon (?:re-?)?(?:check|reflection|review)\w*)\b",
    re.IGNORECASE,
)
OTHERWISE = re.compile(  # another answer beside the one before
    r"[^\w$\\]*(?:but )?(?:or|alternatively|otherwise|maybe|perhaps|possibly|it (?:could|might|may)(?: also)? be|"
    r"could (?:also )?be|another (?:possible )?(?:answer|option|possibility)|option [0-9a-z]|possibility [0-9a-z]|"
    r"if (?:you|instead|not))\b",
    re.IGNORECASE,
)
CHECKS = re.compile(
    r"(?:[\w,' ]{0,30}\b)?(?:to (?:check|verify|double-check|confirm)|check(?:ing)?|verif(?:y|ication|ying)|proof|"
    r"sanity check)\b",
    re.IGNORECASE,
)
LEAD = re.compile(  # what may stand before any statement
    r"(?:(?:and|so|then|thus|therefore|hence|now|but|also|again|i think|i believe|i guess|well|ok(?:ay)?|sure|right|"
    r"in (?:conclusion|total|all|the end)|great|actually|wait|hm+|sorry|altogether|overall|finally|ultimately|clearly|"
    r"consequently|or|maybe|perhaps|possibly|alternatively)\b[ ,:!—–-]*"
    r"|(?:yes|no|nope|oops|whoops|correction|edit)\b ?[,.:!—–-]+ *|∴ *|\\therefore\b *)*",
    re.IGNORECASE,
)
