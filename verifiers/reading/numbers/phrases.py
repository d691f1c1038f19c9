"""The English phrases around a number in an answer: what denies it, bounds it or makes another one of it."""

from __future__ import annotations

import re

from ..statements.wording import changed

_CLAUSE = re.compile(r"[,;(]|\b(?:(?<!thing )(?<!all )but|and|so|then)\b", re.IGNORECASE)
_DENIAL = re.compile(
    r"\b(?:no|not(?! only| just)|never|none|nor|neither|cannot|isnt|wrong|incorrect|false|untrue|impossible|"
    r"unlikely|hardly|different from|unequal|except|excluding|instead of|rather than)\b|n't\b|"
    r"\b(?:any|every)thing (?:but|other)|\ball but\b",
    re.IGNORECASE,
)
DENIED_BEFORE = re.compile(
    r"\b(?:no|not (?:the|an?|my)(?: \w+)?|wrong|incorrect|false) (?:answer|result|solution)\b[^,;.]*$|"
    r"\b(?:not|never|cannot|neither|nor|n't)\W*(?:be|is|are)?\W*$",
    re.IGNORECASE,
)
_IS = r"(?:is|are|was|were|would be|seems|looks)"
DENIED_AFTER = re.compile(
    r"[\s\"'*)\]$}]*(?:"
    rf"(?:,? ?(?:which|but that|that) )?{_IS}(?:n't| not| never)?(?: \w+)? "
    r"(?:wrong|incorrect|false|impossible|unlikely)\b"
    rf"|{_IS}(?:n't| not)\b(?! \w+(?:ed|ing)\b)|\(?(?:wrong|incorrect|false)\b|\?)",
    re.IGNORECASE,
)
ALONE_LEAD = re.compile(
    r"(?:[^\w$€£¥₹+-]|\b(?:about|approximately|approx|around|roughly|circa|exactly|precisely|just|only|a|an|the|"
    r"total|of|sum|result|value|equal|to|only|at|some|final|correct)\b)*",
    re.IGNORECASE,
)
OR = re.compile(r"[^;]{0,40}\bor\b[^;,]{0,30}", re.IGNORECASE)
LIST = re.compile(r"[\s\"'*)$]*(?:(?:[A-Za-z]+\s+){0,3}[\s\"'*)$]*(?:,|;|and|&|,? and)|/|\|)[\s\"'*($]*", re.IGNORECASE)
RANGE = re.compile(r"[\s\"'*)$%]*(?:-|–|—|to|through|and|\.\.+)[\s\"'*($]*", re.IGNORECASE)
COMPARES = re.compile(
    r"\W*(?:more|less|fewer|greater|bigger|larger|smaller|longer|shorter|higher|lower) than\b|"
    r"\W*(?:\w+ ){0,2}(?:times|plus|minus|multiplied|divided|added|subtracted|x)\b|"
    r"\W*of\b(?!(?: [a-z]+){1,3}[\s*]*[(,;])|\s*[-+*/×÷·^!<>|±]|\\",
    re.IGNORECASE,
)
BOUNDARY = re.compile(
    r"[(,;:]|\b(?:less|more|greater|smaller) than\b|"
    r"[-–—] ?[A-Za-z]|\. |\b(?:after|in|for|at|per|with|when|if|on|from|by|every|each|over|within|during|"
    r"out of|because|since|as|left|so|but|given|using|rounded|while|whereas|not|until|"
    r"before|below|above|under|among|total|which|that|who|remaining|instead|"
    r"of (?:the|his|her|their|its|this|those|these|my|your|our)|and (?!\W*[0-9$€£¥]))\b|\bremainder\b|\br\b",
    re.IGNORECASE,
)
_FUNCTION = re.compile(
    r"\b(?:root|squares?|cubes?|half|third|quarter|factors?|multiples?|reciprocal|opposite|value|double|triple|factorial|"
    r"logs?|logarithm|digits?|power|inverse|negative|percent(?:age)?|fraction|parts?|out|sum|product|difference|quotient|row|pairs?|"
    r"numerator|denominator)"
    r"(?: \w+){0,2} of\W*$|%\s*of\W*$",
    re.IGNORECASE,
)
_OF_ANOTHER = re.compile(r"\b(?:sine|cosine|tangent) of\W*$|\b(?:these|those)\W*$", re.IGNORECASE)
_PLACES = re.compile(r"\W*(?:decimal|significant) (?:places?|digits?|figures?)\b", re.IGNORECASE)
_TORN = re.compile(r"[-–—][\s\"']*")  # "a 3-", where the completion was cut off
_BY = re.compile(
    r"\b(?:by|adding|add|subtracting|subtract|multiplying|multiply|dividing|divide|added to|multiplied|divided|"
    r"between|step|steps|into|number of digits|than|from|with|after|until|every|each|per)\W*$",
    re.IGNORECASE,
)
_CHANGES_BY = re.compile(
    r"\b(?:increas|ris|rose|grew|grow|fell|fall|drop|decreas|chang|reduc|declin|went|"
    r"go(?:es)? (?:up|down)|up|down|exceed|short|differ|won|lost|late|early|ahead|behind)\w*(?: \w+)? by\W*$",
    re.IGNORECASE,
)
GOES_ON = re.compile(  # working: the next step is in the same sentence
    r"[^.;:]{0,40}?(?:,|\band\b|\bthen\b)(?: we| you| i| it)?(?: then)? "
    r"(?:divide|multiply|subtract|add|double|halve|square|take|round)\b",
    re.IGNORECASE,
)

ADVERBIAL = re.compile(
    r"(?:In|After|For|At|With|If|When|On|From|By|Since|As|Given|Every|Each|Over|Within|During|Because)\b[^,]*, "
)


def is_spoiled(lead: str, tail: str) -> bool:
    """Tell whether the words around a quantity deny it, bound it or make another one of it."""
    if changed(lead, tail) or DENIED_AFTER.match(tail) or re.search(r"\w\($", lead):
        return True
    if _OF_ANOTHER.search(lead) or _PLACES.match(tail) or _TORN.fullmatch(tail):
        return True
    return _DENIAL.search(_CLAUSE.split(lead)[-1]) is not None


def is_operand(lead: str) -> bool:
    """Tell whether the words before a quantity calculate with it: "the root of", "divided by"; not "rose by"."""
    function = lead.rstrip(" $").endswith(" of") and _FUNCTION.search(lead) is not None
    return function or (_BY.search(lead) is not None and not _CHANGES_BY.search(lead))
