"""ifeval: instructions that a program can check, such as "at least 300 words" (Zhou et al. 2023, arXiv:2311.07911)."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from typing_extensions import override

from rlenv._checks import check_flag

from ..base import Problem, Verdict, Verifier
from ..plugins.registry import register_verifier
from ..problem import examples_beside
from ..text import conclusion

_RELATIONS: dict[str, Callable[[int, int], bool]] = {"at least": operator.ge, "less than": operator.lt}
_WORD = re.compile(r"\w+")
_CAPITALS = re.compile(r"\w+(?:[-./]\w+)*")  # AND/OR is one word
_BULLET = re.compile(r"\s*(?:\*(?!\*)|-)")
_HIGHLIGHTS = re.compile(r"\*([^\n*]*)\*"), re.compile(r"\*\*([^\n*]*)\*\*")
_POSTSCRIPTS = {"P.S.": r"p\.\s?s\.", "P.P.S": r"p\.\s?p\.\s?s"}
_OPTIONS = "My answer is yes.", "My answer is no.", "My answer is maybe."
_FENCE = re.compile(r"^```(?:json|Json|JSON)?")
_CLOSING = "\"'”’)]}*_,:;"  # behind the end of a sentence
_ABBREVIATED = re.compile(
    r"[a-z]|[ap]\.m|adm|approx|bros|capt|co|col|corp|d\.c|dept|dr|e\.g|fig|gen|gov|hon|i\.e|inc|jr|l\.a|lt|ltd|maj|mr|mrs|"
    r"ms|mt|ph\.d|prof|rep|rev|sen|sr|st|u\.[kn]|u\.s(?:\.a)?|vol|vs"
)


def sentences(text: str) -> int:
    """Return the number of sentences: each ends with `.`, `!` or `?` before a space, or with the text.

    Initials and abbreviations end none; numbers such as "1." do, unless a small letter follows, as for NLTK's Punkt.
    """
    words = [word for word in text.split() if word.strip(_CLOSING)]
    return bool(words) + sum(_ends(word, after) for word, after in pairwise(words))


def _ends(word: str, after: str) -> bool:
    word = word.rstrip(_CLOSING)
    if not word.endswith("."):
        return word.endswith(("!", "?"))
    stem = word.rstrip(".").lstrip("\"'“‘([*_").lower()
    if word.endswith("..") or stem.isdecimal() or stem == "etc":
        return not after[0].islower()
    return not _ABBREVIATED.fullmatch(stem)


def count(text: str, word: str) -> int:
    """Return how often a text has a word, ignoring case; also as a part of longer words."""
    return len(re.findall(re.escape(word.strip()), text, re.IGNORECASE))


def paragraphs(text: str, divider: str) -> list[str]:
    """Return the parts between dividers, of which the first and the last may be empty; nothing if another one is."""
    parts = [part.strip() for part in text.split(divider)]
    return [part for part in parts if part] if all(parts[1:-1]) else []


def begins_paragraph(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    """Tell whether there are as many paragraphs, with blank lines between them, and one begins with a word."""
    parts = text.split("\n\n")
    there = sum(bool(part.strip()) for part in parts)
    words = parts[nth_paragraph - 1].split() if 0 < nth_paragraph <= there else []
    first = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'))[0].lower() if words else None
    return there == num_paragraphs and first == first_word.lower()


def placeholders(text: str) -> int:
    """Return the number of texts in square brackets, each in one line."""
    return sum("[" in part for line in text.split("\n") for part in line.split("]")[:-1])


def postscript(text: str, postscript_marker: str) -> bool:
    """Tell whether a text has a postscript, also with spaces in its marker."""
    marker = postscript_marker.strip()
    return bool(re.search(_POSTSCRIPTS.get(marker, re.escape(marker.lower())), text.lower()))


def sections(text: str, section_spliter: str) -> int:
    """Return the number of headings such as "Section 2"."""
    return len(re.findall(rf"{re.escape(section_spliter.strip())}\s?\d", text))


def has_title(text: str) -> bool:
    """Tell whether a line has a title in double angle brackets, such as <<Joy>>."""
    titles = (line.partition("<<")[2].rpartition(">>")[0] for line in text.split("\n"))
    return any(title.strip().lstrip("<").rstrip(">").strip() for title in titles)


def is_json(text: str) -> bool:
    """Tell whether a text is one JSON document, perhaps between code fences."""
    try:
        json.loads(_FENCE.sub("", text.strip()).removesuffix("```"))
    except (ValueError, RecursionError):
        return False
    return True


def _is(number: int, relation: str, bound: int) -> bool:
    return _RELATIONS[relation](number, bound)


CHECKS: dict[str, Callable[..., bool]] = {  # by instruction; the arguments have IFEval's names
    "keywords:existence": lambda text, keywords: all(count(text, each) for each in keywords),
    "keywords:frequency": lambda text, keyword, frequency, relation: _is(count(text, keyword), relation, frequency),
    "keywords:forbidden_words": lambda text, forbidden_words: (
        not any(re.search(rf"\b{re.escape(each)}\b", text, re.IGNORECASE) for each in forbidden_words)
    ),
    "keywords:letter_frequency": lambda text, letter, let_frequency, let_relation: _is(
        text.lower().count(letter.lower()), let_relation, let_frequency
    ),
    "length_constraints:number_sentences": lambda text, num_sentences, relation: _is(
        sentences(text), relation, num_sentences
    ),
    "length_constraints:number_paragraphs": lambda text, num_paragraphs: len(paragraphs(text, "***")) == num_paragraphs,
    "length_constraints:number_words": lambda text, num_words, relation: _is(
        len(_WORD.findall(text)), relation, num_words
    ),
    "length_constraints:nth_paragraph_first_word": begins_paragraph,
    "detectable_content:number_placeholders": lambda text, num_placeholders: placeholders(text) >= num_placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": lambda text, num_bullets: (
        sum(bool(_BULLET.match(line)) for line in text.split("\n")) == num_bullets
    ),
    "detectable_format:constrained_response": lambda text: any(option in text for option in _OPTIONS),
    "detectable_format:number_highlighted_sections": lambda text, num_highlights: (
        sum(bool(part.strip()) for form in _HIGHLIGHTS for part in form.findall(text)) >= num_highlights
    ),
    "detectable_format:multiple_sections": lambda text, section_spliter, num_sections: (
        sections(text, section_spliter) >= num_sections
    ),
    "detectable_format:json_format": is_json,
    "detectable_format:title": has_title,
    "combination:two_responses": lambda text: len(two := paragraphs(text, "*" * 6)) == len({*two}) == 2,
    "combination:repeat_prompt": lambda text, prompt_to_repeat: (
        text.strip().lower().startswith(prompt_to_repeat.strip().lower())
    ),
    "startend:end_checker": lambda text, end_phrase: (
        text.strip().strip('"').lower().endswith(end_phrase.strip().lower())
    ),
    "startend:quotation": lambda text: bool(re.fullmatch(r'".*"', text.strip(), re.DOTALL)),
    "change_case:capital_word_frequency": lambda text, capital_frequency, capital_relation: _is(
        sum(map(str.isupper, _CAPITALS.findall(text))), capital_relation, capital_frequency
    ),
    "change_case:english_capital": str.isupper,
    "change_case:english_lowercase": str.islower,
    "punctuation:no_comma": lambda text: "," not in text,
}


@register_verifier("ifeval")
class IFEval(Verifier):
    """Instructions that a program can check, as in IFEval; reward 1.0 if all of them are followed, else 0.0.

    A problem has the columns of IFEval's rows: `instruction_id_list`, such as ["punctuation:no_comma",
    "length_constraints:number_words"], and `kwargs`, for each instruction its arguments by name, such as
    {"num_words": 300, "relation": "at least"}; None means unset. `CHECKS` has the instructions. Any other is the
    verdict "error", such as "language:response_language" (31 of IFEval's 541 rows), which needs a model of languages.

    Thoughts are cut off first; a blank completion follows nothing. The parts `followed` and `instructions` are numbers:
    the mean of one divided by the mean of the other is the accuracy by instruction.

    The checks are the paper's, with these differences: `sentences` counts without the data of NLTK's Punkt; words in
    capitals are not split at "'"; english_capital and english_lowercase read the case, not the language; keywords are
    texts, not patterns.

    Prompts and alphabet: from the listed problems. Not caught: what a completion says is not read.

    Args:
        partial: reward the share of the instructions that are followed.
        loose: an instruction also counts if the completion follows it without its first line, its last line, or its
            asterisks.
    """

    columns = ("instruction_id_list", "kwargs")
    examples = examples_beside(__file__)

    def __init__(self, partial: bool = False, loose: bool = False) -> None:
        self.partial, self.loose = check_flag("ifeval: partial", partial), check_flag("ifeval: loose", loose)

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        names, arguments = (problem.metadata.get(column) for column in self.columns)
        if not (isinstance(names, list) and isinstance(arguments, list) and 0 < len(names) == len(arguments)):
            return Verdict(
                0.0, status="error", reason="ifeval: instruction_id_list and kwargs are not lists of one length"
            )
        text = conclusion(completion)
        texts = variants(text) if self.loose else [text]
        try:
            pairs = zip(names, arguments, strict=True)
            followed = sum(any(is_followed(each, name, given) for each in texts) for name, given in pairs)
        except ValueError as error:
            return Verdict(0.0, status="error", reason=str(error))
        share = followed / len(names)
        parts = {"followed": float(followed), "instructions": float(len(names))}
        return Verdict(share if self.partial else float(share == 1), parts)


def is_followed(text: str, name: Any, arguments: Any) -> bool:
    """Tell whether a text follows an instruction; one that is blank does not.

    Raises:
        ValueError: for an unknown instruction, or arguments that it does not take.
    """
    if not isinstance(name, str) or name not in CHECKS:
        raise ValueError(f"ifeval: instruction {name!r} is none of rlenv.verifiers.builtin.ifeval.CHECKS")
    try:
        followed = CHECKS[name](text, **{key: value for key, value in arguments.items() if value is not None})
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"ifeval: instruction {name!r} with {arguments!r:.100}: {error}") from error
    return bool(text.strip()) and followed


def variants(text: str) -> list[str]:
    """Return a text, and without its first line, its last line or both, each with and without asterisks."""
    lines = text.split("\n")
    cut = [text, *("\n".join(each).strip() for each in (lines[1:], lines[:-1], lines[1:-1]))]
    return [*cut, *(each.replace("*", "") for each in cut)]
