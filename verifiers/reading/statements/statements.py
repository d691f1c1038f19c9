"""Splits a completion into statements: sentences, list items, displayed formulas, and headings with what they head."""

from __future__ import annotations

import re
from itertools import pairwise

from ..text import conclusion

LONGEST_TEXT = 10_000  # characters, from the end: what is judged
LONGEST_STATEMENT = 1_000  # a longer one states nothing
_MOST_LINES = 500
MOST_STATEMENTS = 100  # the last ones

_SAME = dict.fromkeys("\r\t\u00a0\u2003", " ") | {"\N{RIGHT SINGLE QUOTATION MARK}": "'"}
_RULE = re.compile(r"[-=*_| :]*")
_FENCE = re.compile(r" {0,3}(?:```|~~~)(.*)")
_QUOTE = re.compile(r"[ \t]*(?:>[ \t]+(?=[^ \t0-9.$-])|#{1,3}[ \t]+|#{5,6}[ \t]+)+")
_ITEM = re.compile(r"[ \t]*(?:([*•+]|[-–](?=[ \t]+[^ \t0-9.$]))|([-–])|\(?([0-9]{1,2})[.)])[ \t]+")
_STEP = re.compile(r"(?:\*\*)?(?:step|part) [0-9]{1,2}\b(?:\*\*)?[ \t]*[:.)–-][ \t]*", re.IGNORECASE)
_BOLD = re.compile(r"(?<![\w)*])(?:\*\*|__)(?=\S)|(?<=\S)(?:\*\*|__)(?![\w(*])")
_ITALIC = re.compile(r"(?<![\w)*])\*([^\s*](?:[^*\n]{0,200}[^\s*])?)\*(?![\w(*])")
_CODE = re.compile(r"(?<!\w)`([^`\n]{1,200})`(?!\w)")  # "`1`0" is not 10
_END = re.compile(
    r"(?<=[.?;])[\"')\]*]*[ ]+(?=[^a-z ])|(?<=[^0-9 ]!)[\"')\]*]*[ ]+(?=[^a-z =<>])|(?<=[0-9]!) +(?=[A-Z])"
    r"|[,;] +(?=(?:and )?(?:so(?! that| much| many| far| on)|therefore|thus|hence)\b)"
    r"|(?<=\S) ++(?=#### *[^ #])"
    r"|, +(?=(?:but|or) (?:it|that|this|maybe|perhaps|possibly|could|might)\b|otherwise\b|alternatively\b)"
    r"|(?:\.\.\.|…|[,;:–—]| -)[ ]*(?=(?:no, )?(?:wait|actually|scratch that|oops)\b)"
)
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|approx|ca|cf|vs|etc|mr|mrs|ms|dr|st|no|nr|fig|eq|resp|incl|a\.m|p\.m|min|sec|[a-z])\.)$",
    re.IGNORECASE,
)
_SENTENCE_ENDS_ANYWAY = re.compile(r"\b(?:[ap]\.m|min|sec|etc|[Nn]o|[A-Z]|[a-z])\.$")
_ANSWER_HEADING = re.compile(
    r"(?:[\w ,']{0,60}\b)?(?:answers?|ans|result|solution)\b[\w ,']{0,60}(?::|=|\b(?:is|are))?", re.IGNORECASE
)
_HEADING = re.compile(r".{0,200}(?::|=|\b(?:is|are|equals|be|to)|\b(?:answer|result))", re.IGNORECASE)


def statements(text: str) -> list[str]:
    """Return what a completion says, piece by piece: without thoughts, markdown, programs and numbers of lists.

    LaTeX stays as it is, displayed formulas in one line. What is said often counts where it is said first and last.
    A heading that ends in ":" or "is" is one statement with what follows it: "The answer is:\\n\\n43".
    """
    text = conclusion(text)[-LONGEST_TEXT:]
    for sign, to in _SAME.items():
        text = text.replace(sign, to)
    lines = _joined(_lines(_without_programs(_in_one_line(text))))
    said = [statement for line in lines for statement in _sentences(line) if len(statement) <= LONGEST_STATEMENT]
    last = {statement: place for place, statement in enumerate(said)}
    first = {statement: place for place, statement in reversed(list(enumerate(said)))}
    return [said[place] for place in sorted({*first.values(), *last.values()})][-MOST_STATEMENTS:]


def _in_one_line(text: str) -> str:
    """Return a text with each displayed formula in one line, as $...$."""
    if "\\[" in text:
        first, *rest = text.split("\\[")
        parts = [part.partition("\\]") for part in rest]
        text = first + "".join(f"${_flat(inner)}$ {after}" if end else f"\\[{inner}" for inner, end, after in parts)
    pieces = text.split("$$")
    if len(pieces) > 2:
        last = len(pieces) - 1
        text = "".join(f"${_flat(each)}$ " if n % 2 and n < last else each for n, each in enumerate(pieces))
    return text


def _flat(formula: str) -> str:
    """Return a displayed formula in one line; the rows of an alignment become one chain."""
    formula = re.sub(r"\\(?:begin|end)\{(?:align|aligned|equation|gather|split)\*?\}", " ", formula)
    if "\\begin" not in formula:
        formula = formula.replace("\\\\", " ").replace("&", " ")
    return " ".join(formula.split())


def _without_programs(text: str) -> str:
    """Return a text without fences, and without what is in them if it is a program in a text."""
    if "```" not in text and "~~~" not in text:
        return text
    kept: list[str] = []
    inside: list[str] | None = None
    language = ""
    for line in text.split("\n"):
        fence = _FENCE.match(line)
        if not fence and inside is None:
            kept.append(line)
        elif not fence and inside is not None:
            inside.append(line)
        elif fence and inside is None:
            inside, language = [], fence[1].strip()
        elif inside is not None:
            kept += inside if language in ("", "text", "plaintext", "latex", "math", "txt", "output") else []
            inside = None
    return "\n".join([*kept, *(inside or [])])


def _lines(text: str) -> list[tuple[str, bool]]:
    """Return the lines without marks of markdown, each with whether it is an item of a list."""
    lines = [_unquoted(line) for line in text.split("\n")[-_MOST_LINES:]]
    items = [_ITEM.match(line) for line in lines]
    numbered = [int(item[3]) for item in items if item and item[3]]
    dashes = sum(bool(item and item[2]) for item in items)
    found = []
    for line, item in zip(lines, items, strict=True):
        number = int(item[3]) if item and item[3] else None
        in_list = number is not None and (len(numbered) > 2 or not {number - 1, number + 1}.isdisjoint(numbered))
        listed = item and (item[1] or (item[2] and dashes > 1) or in_list)
        rest = line[item.end() :] if item and listed else line
        step = _STEP.match(rest)
        found.append((_plain(rest[step.end() :] if step else rest), bool(listed)))
    return found


def _unquoted(line: str) -> str:
    """Return a line without marks of quotes and headings; the cells of a table become "name: value"."""
    line = line.strip()
    if line and _RULE.fullmatch(line):
        return ""
    if line.startswith("|") and line.endswith("|") and line.count("|") > 2:
        return ": ".join(cell for cell in (cell.strip() for cell in line.strip("|").split("|")) if cell)
    quoted = _QUOTE.match(line)
    return line[quoted.end() :] if quoted else line


def _plain(line: str) -> str:
    """Return a line without bold, italics and code marks; 2**3 keeps its stars."""
    if "`" in line:
        line = _CODE.sub(r"\1", line)
    if "**" in line or "__" in line:
        line = _BOLD.sub("", line)
    return _ITALIC.sub(r"\1", line).strip() if "*" in line else line


def _joined(lines: list[tuple[str, bool]]) -> list[str]:
    """Return the lines, each heading with the line that follows it; one of answers with all items of its list."""
    found: list[str] = []
    heading, items = "", 0  # an open heading, and the items it has got
    for (line, listed), (following, _) in pairwise([*lines, ("", False)]):
        if not line:
            if items:
                heading, items = "", 0
            continue
        if heading and (not items or listed):
            found[-1] = f"{found[-1]}, {line}" if items else f"{found[-1]} {line}"
            items += 1
            if not (listed and _ANSWER_HEADING.fullmatch(heading)) or not following:
                heading, items = "", 0
            continue
        found.append(line)
        opens = _ANSWER_HEADING.fullmatch(line) or (_HEADING.fullmatch(line) and not line.endswith((".", "!", "?")))
        heading, items = (line if opens else ""), 0
    return found


def _sentences(line: str) -> list[str]:
    found, start = [], 0
    for end in _END.finditer(line):
        before = line[max(start, end.start() - 10) : end.start()]
        if _ABBREVIATION.search(before) and not _is_end(before, line[end.end() : end.end() + 1]):
            continue
        found.append(line[start : end.end()].strip())
        start = end.end()
    return [sentence for sentence in (*found, line[start:].strip()) if sentence]


def _is_end(before: str, following: str) -> bool:
    """Tell whether a full stop that may belong to an abbreviation ends a sentence."""
    return following.isupper() and _SENTENCE_ENDS_ANYWAY.search(before) is not None
