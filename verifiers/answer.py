r"""The place of an answer: where in a completion a verifier finds the text to judge.

| place | the answer is |
|---|---|
| boxed | what stands in `\boxed{}` |
| hash | the rest of a line after `####` |
| tag | what stands in `<answer></answer>` |
| stated | what follows "answer ... is", "answer:", or "A:" in the last line; without any, the last "= X" or "is X" |
| last | the last number for `numeric`, the last line that is not empty for every other verifier |
| any | the first of these, in this order, that occurs in the text |

Thoughts, `<think>...</think>`, are cut off first, and so is one that never ends. All answers that stand in
one place, or follow "answer is", have to agree; a text where they differ gives none. Of longer completions the last
20,000 characters are read. A box that also stands in the prompt counts only if it is the only one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import TypeVar

from .text import conclusion, last_line

PLACES = ("any", "boxed", "hash", "tag", "stated", "last")
REQUESTS = {  # ask a model for a place
    **dict.fromkeys(("any", "boxed"), r"Put the answer in \boxed{}."),
    "hash": "End with a line that has #### and the answer.",
    "tag": "Put the answer in <answer></answer>.",
    "stated": 'End with "The answer is" and the answer.',
}
_FORMS = {"boxed": "\\boxed{{{}}}", "hash": "#### {}", "tag": "<answer>{}</answer>", "stated": "The answer is {}."}
_LONGEST_TEXT = 20_000  # characters, the last ones of a completion
_LONGEST = 100  # characters of a statement
_MOST = 300  # statements, from the last one

T = TypeVar("T")
_BRACE = re.compile(r"(\\boxed ?\{)|\\.|[{}]", re.DOTALL)
_FENCE = re.compile(r"( {0,3})(`{3,}+|~{3,}+)([^`]*)")
_HASH = re.compile(r"####([^\n]*)")
_TAG = re.compile(r"<answer>([^<]*+(?:<(?!/?answer>)[^<]*+)*+)</answer>")
_STATED = re.compile(
    rf"\banswer\b(?:[^\n.:=]{{0,60}}?\bis\b:?|[\s*_]{{0,9}}[:=])"
    rf"(?=(?:[\s*_]{{0,9}}\n {{0,4}}- |[\s*_]{{0,9}})([^\n]{{1,{_LONGEST}}}))",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?]\s")
_ANSWERED = re.compile(rf"[ *_]{{0,9}}A[*_]{{0,2}}:([^\n]{{1,{_LONGEST}}})")  # a last line, "A: 18"
_CONCLUDED = re.compile(r"(?:=+|\b(?:is|are|equals)\b)[ \t]*", re.IGNORECASE)


def answer_in(
    text: str,
    place: str,
    read: Callable[[str], T | None],
    begins: Callable[[str], T | None] | None = None,
    last: Callable[[str], T | None] | None = None,
    prompt: str = "",
    labels: bool = False,
) -> T | None:
    r"""Return the answer that a completion gives in a place; None without one, or with several that differ.

    Args:
        text: the completion.
        place: one of `PLACES`.
        read: reads the text in a place: of "x = 4" the number 4; None without an answer in it.
        begins: reads what follows "=" or "is", which has to begin with the answer; by default `read`.
        last: reads a whole text that has no place; by default `read` on its last line.
        prompt: the question, whose boxes an answer may quote.
        labels: whether the A of "A: 18" is the label of a choice.
    """
    whole = conclusion(text)
    text = whole[-_LONGEST_TEXT:]
    for name, marked in _MARKED.items():
        if place in ("any", name) and (found := [each for each in marked(text) if each.strip()]):
            quoted = {*boxes(prompt)} if name == "boxed" else ()
            return _agreed(map(read, [each for each in found if each not in quoted] or found))
    if place in ("any", "stated"):
        said = _statements(text)
        if not labels and (answered := _ANSWERED.match(last_line(text))):
            said.append(answered[1])
        stated = [each for each in map(read, said) if each is not None]
        if stated:
            return _agreed(stated)
        for verb in reversed([*_CONCLUDED.finditer(text)][-_MOST:]):
            value = (begins or read)(text[verb.end() : verb.end() + _LONGEST].partition("\n")[0])
            if value is not None:
                return value
    if place in ("any", "last"):
        if last:
            return last(text)
        cut = len(whole) > len(text) and "\n" not in text.strip()  # in its last line: it might begin with a label now
        return None if cut else read(last_line(text))
    return None


def ending(text: str) -> str:
    """Return the part of a completion that is read: the last 20,000 characters after the thoughts."""
    return conclusion(text)[-_LONGEST_TEXT:]


def placed(answer: str, place: str) -> str:
    """Return a reference answer with its last line in a place."""
    *above, last = answer.strip().split("\n")
    form = _FORMS.get(place)
    return "\n".join([*above, form.format(last.removeprefix("####").strip())]) if form else answer


def boxes(text: str) -> list[str]:
    r"""Return the texts in `\boxed{}` with balanced braces; of nested boxes only the outermost."""
    found, start, depth = [], 0, 0
    for brace in _BRACE.finditer(text):
        if depth == 0 and brace[1]:
            start, depth = brace.end(), 1
        elif depth:
            depth += {"{": 1, "}": -1}.get(brace[0][-1] if brace[1] or len(brace[0]) == 1 else "", 0)
            if depth == 0:
                found.append(text[start : brace.start()])
    return found


def document_in(text: str) -> str:
    """Return the first block between Markdown's code fences, after the thoughts; without a block, the whole text.

    A fence is a line of three or more backticks or tildes, up to three spaces from the left. A block without its
    closing fence runs to the end.
    """
    text = conclusion(text)
    block: list[str] = []
    indent = fence = ""
    for line in text.split("\n"):
        found = _FENCE.fullmatch(line.rstrip())
        if fence:
            if found and found[2].startswith(fence) and not found[3]:
                break
            block.append(line[len(indent) :] if line.startswith(indent) else line.lstrip(" "))
        elif found:
            indent, fence = found[1], found[2]
    return "\n".join(block) if fence else text


_MARKED: dict[str, Callable[[str], list[str]]] = {"boxed": boxes, "hash": _HASH.findall, "tag": _TAG.findall}


def _statements(text: str) -> list[str]:
    """Return the text after each "answer is", up to the next statement if a sentence ends before it."""
    begun = [*_STATED.finditer(text)][-_MOST:]
    said = [each[1] for each in begun]
    for number, (each, following) in enumerate(pairwise(begun)):
        alone = text[each.start(1) : min(each.end(1), following.start())]
        if _SENTENCE_END.search(alone):
            said[number] = alone
    return said


def _agreed(values: Iterable[T | None]) -> T | None:
    """Return the value that all of these are, as far as they could be read; None without one."""
    read = [value for value in values if value is not None]
    return read[0] if read and all(value == read[0] for value in read) else None
