"""What the choices of a problem are called, and which of them a text names at a place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from ...reading.text import collapsed

_SAME = {
    "\N{NO-BREAK SPACE}": " ", "\N{FULLWIDTH COLON}": ":", "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT SINGLE QUOTATION MARK}": "'", "\N{LEFT DOUBLE QUOTATION MARK}": '"',
    "\N{RIGHT DOUBLE QUOTATION MARK}": '"', "\N{EN DASH}": "-", "\N{EM DASH}": "-", "\t": " ", "\r": " ",
    "\\$": "", "\\%": "%", "\\&": "&", "\\#": "#", "**": "", "__": "", "$": "", "`": "",
    "\N{CROSS MARK}": "wrong ", "\N{BALLOT X}": "wrong ",
    "\N{HEAVY BALLOT X}": "wrong ",
}  # fmt: skip
_MARKUP = re.compile(r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|tt)) ?\{([^{}]*)\}|\\[()\[\]]")
_SPACES = re.compile(" {2,}")
_SPACE = re.compile(r"\\[,;: ]|\\q?quad\b|~")
_SYMBOLS = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff\ufe0f]")
_HTML = re.compile(r"</?(?:b|i|u|em|strong|code|span|p|br|answer) ?/?>")
_OPENING = re.compile(r"[\"'(\[{*_ ]*")
_CLOSING = re.compile(r"[\"')\]}*_]*")
_BETWEEN = re.compile(r"[\"')\]}*_]*(?: ?[.:,=] ?| - ?|-)?[\"'(\[{*_ ]*")  # B) 4, (B): 4, B - 4, B = 4
_LABEL_AFTER = re.compile(r"[\"'*_]* ?[(\[,] ?(?:which is |that is |i\.e\.,? )?(?:option |choice |answer )?[(\[]?")
_REASON = re.compile(r" (?:because|since|as|which|for|due|where)\b| -|[^\w ]|$")
_SAYS = (
    "is|it|this|that|correct|right|true|answer|final|sure|i|yes|no|not|never|because|since|can|cannot|need|needs|does|do|"
    "must|would"
)
_OTHER_TEXT = re.compile(  # "A) England", where A is Egypt
    rf"[\"'*_]*[)\]][\"'*_]* ?(?!(?:[\w'-]+ ){{0,2}}(?:{_SAYS})\b)[a-z][\w'-]*(?: [\w'-]+){{0,2}} ?(?=[.,;(]|$)"
)
_VERB = re.compile(r" (?:is|was|would)\b")
_OTHERS = re.compile(
    r"[\"')\]}*_., ]*(?:or|and|nor|/|,|;|&|\+|versus|vs\.?)+ *(?:maybe |perhaps |possibly |also |even )*"
    r"(?:(?:the )?(?:option|choice|answer|letter)s? )?"
)
_ANSWERS = frozenset({"yes", "no", "true", "false"})
_STOPPED = re.compile(r"(?<![\w.])(\w)\.(?= )")
_ARTICLE = re.compile(r"(?:the|an?) (?=\S)")


class Named(NamedTuple):
    """What a text names at a place.

    Args:
        label: the choice, None for several choices or a label with the text of another choice.
        end: where the name ends.
        by: "label", "text" or "both".
    """

    label: str | None
    end: int
    by: str


@dataclass(frozen=True)
class Names:
    """The labels and texts of the choices of a problem, in small letters, each with the label that it stands for.

    A text that two choices share stands for None.
    """

    labels: Mapping[str, str]
    texts: Mapping[str, str | None]

    def stand_in(self, text: str) -> bool:
        """Tell whether a label or a text of a choice stands in a text in small letters."""
        return self._any.search(text) is not None

    @cached_property
    def _any(self) -> re.Pattern[str]:
        each = sorted(map(re.escape, (*self.labels, *self.texts)), key=len, reverse=True)
        return re.compile(rf"(?<!\w)(?:{'|'.join(each)})(?!\w)")

    def called(self, text: str) -> str | None:
        """Return the choice that a whole text names."""
        text = plain(text)
        found = self.at(text, 0)
        if found is None or text[found.end :].strip(" .,;:!\"'*_)]}"):
            return None
        return found.label

    def at(self, text: str, start: int) -> Named | None:
        """Return what a text in small letters names at a place, if anything."""
        start = _skip(_OPENING, text, start)
        label = next((each for each in self.labels if text.startswith(each, start)), None)
        if label is not None and not text[start + len(label) : start + len(label) + 1].isalnum():
            found = self._after_label(text, start + len(label), self.labels[label])
            if found is not None:
                return self._alone(text, found)
        article = _skip(_ARTICLE, text, start)
        for place in dict.fromkeys((start, article)):
            known = self._text_at(text, place)
            if known is not None:
                return self._alone(text, self._after_text(text, place + len(known), self.texts[known]))
        return None

    def with_brackets(self, text: str) -> str:
        """Return a text with "B) Lima" for "B. Lima", which is not two sentences."""
        longest = max(map(len, self.texts), default=0) + 20

        def bracketed(found: re.Match[str]) -> str:
            label = self.labels.get(found[1].casefold())
            following = normal(text[found.end() : found.end() + longest]).lstrip("*_\"'( ")
            known = self._text_at(following, 0) if label else None
            return f"{found[1]})" if known and self.texts[known] in (label, None) else found[0]

        return _STOPPED.sub(bracketed, text)

    def mentioned(self, text: str) -> list[str | None]:
        """Return the choices whose texts, other than numbers and "yes", stand anywhere in a text in small letters."""
        return [
            label
            for known, label in self.texts.items()
            if len(known) > 1 and not known.isdecimal() and known not in _ANSWERS and known in text
            and re.search(rf"(?<!\w){re.escape(known)}(?!\w)", text)
        ]  # fmt: skip

    def is_word(self, text: str) -> bool:
        """Tell whether a text is a choice that answers a question by itself."""
        return text.strip(" .,\"'") in _ANSWERS

    def _after_label(self, text: str, end: int, label: str) -> Named | None:
        place = _skip(_BETWEEN, text, end)
        known = self._text_at(text, place) if place > end else None
        if known is not None and self.texts[known] in (label, None):
            return Named(label, _skip(_CLOSING, text, place + len(known)), "both")
        if known is not None and not (". " in text[end:place] and re.match(r" [a-z]", text[place + len(known) :])):
            return Named(None, place + len(known), "both")
        if label in self.texts.values() and (other := _OTHER_TEXT.match(text, end)):
            return Named(None, other.end(), "both")
        bare, end = end, _skip(_CLOSING, text, end)
        rest = text[end:]
        if bare == end and not any(each.match(rest) for each in (_REASON, _OTHERS, _VERB)):
            return None  # "a dog" is not the choice A
        return Named(label, end, "label")

    def _after_text(self, text: str, end: int, label: str | None) -> Named:
        place = _skip(_LABEL_AFTER, text, end)
        behind = next((each for each in self.labels if text.startswith(each, place)), None)
        if behind is None or not place > end or text[place + len(behind) : place + len(behind) + 1].isalnum():
            return Named(label, _skip(_CLOSING, text, end), "text")
        if re.match(r"[\"'*_]*[, ]*$", text[end:place]) and not re.match(r"[^\w ]*$", text[place + len(behind) :]):
            return Named(label, _skip(_CLOSING, text, end), "text")  # "Mars, a planet"
        right = label is None or self.labels[behind] == label
        return Named(self.labels[behind] if right else None, _skip(_CLOSING, text, place + len(behind)), "both")

    def _text_at(self, text: str, start: int) -> str | None:
        """Return the longest text of a choice that stands at a place as a whole word."""
        fits = (each for each in self.texts if text.startswith(each, start))
        return max((each for each in fits if not _goes_on(text, start + len(each))), key=len, default=None)

    def _alone(self, text: str, found: Named) -> Named:
        """Return a name, without its label if the text goes on with another choice: "B or C", "B, C"."""
        also = _OTHERS.match(text, found.end)
        if also is None or found.label is None:
            return found
        other = self._plain_at(text, also.end())
        return found if other is None or other == found.label else Named(None, found.end, found.by)

    def _plain_at(self, text: str, start: int) -> str | None:
        start = _skip(_OPENING, text, start)
        label = next((each for each in self.labels if text.startswith(each, start)), None)
        if label is not None and re.match(
            r"[^\w ]| ?$| (?:is|are|because|since|both|but|which)\b", text[start + len(label) :] or " "
        ):
            return self.labels[label]
        known = self._text_at(text, _skip(_ARTICLE, text, start))
        return self.texts[known] if known is not None else None


@lru_cache(maxsize=4096)
def names_of(choices: tuple[tuple[str, str], ...]) -> Names:
    """Return what the choices of a problem are called, from their labels and texts."""
    texts: dict[str, str | None] = {}
    for label, text in choices:
        known = plain(text)
        if known:
            texts[known] = None if known in texts else label
    return Names({label.casefold(): label for label, _ in choices}, texts)


def normal(text: str) -> str:
    """Return a text in small letters without markup, with spaces, quotes and colons of one kind."""
    for sign, to in _SAME.items():
        text = text.replace(sign, to)
    text = _SYMBOLS.sub("", text).casefold()
    if "\\" in text:
        text = _SPACES.sub(" ", _MARKUP.sub(r"\1", _SPACE.sub(" ", text)))
    return _HTML.sub("", text) if "<" in text else text


def plain(text: str) -> str:
    """Return a name in one line, without the signs around it."""
    bare = collapsed(normal(text).replace("\n", " ")).strip("*_\"' ").rstrip(",; ")
    return bare.removesuffix(".").removesuffix("!").strip("*_\"' ") or bare


def _goes_on(text: str, end: int) -> bool:
    """Tell whether a word or a number goes on at a place."""
    return text[end - 1].isalnum() and (
        text[end : end + 1].isalnum() or re.match(r"[.,/]\d", text[end : end + 2]) is not None
    )


def _skip(pattern: re.Pattern[str], text: str, start: int) -> int:
    found = pattern.match(text, start)
    return found.end() if found else start
