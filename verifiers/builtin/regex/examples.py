"""The examples of `regex`: tasks, patterns, and texts that match."""

from __future__ import annotations

# Task, the pattern, right answers (the first one is the reference), and nonsense that the pattern lets through.
EXAMPLES: list[tuple[str, str, list[str], list[str]]] = [
    (
        "Write a date such as 2001-12-31.", r"[0-9]{4}-[0-9]{2}-[0-9]{2}",
        ["1999-02-28", "2024-02-29"], ["2001-13-99", "0000-00-00"],
    ),
    ("Write yes or no, in small or capital letters.", r"(?i)yes|no", ["yes", "no", "Yes", "NO"], []),
    ("Write a temperature such as 21 degrees.", r"-?\d+ degrees", ["-4 degrees", "100 degrees"], ["-99999 degrees"]),
    ("Write two lines, each of one small letter.", r"[a-z]\n[a-z]\n?", ["x\ny", "a\nb\n"], []),
    ("Write a Greek word of four small letters.", r"[α-ω]{4}", ["λογο", "γατα"], []),
    ("Write three times the same digit, such as 0-0-0.", r"([0-9])(?:-\1){2}", ["1-1-1", "9-9-9"], []),
    ("Write an amount such as $1,234.50.", r"\$[1-9][0-9]{0,2}(?:,[0-9]{3})*\.[0-9]{2}", ["$9.99", "$1,000.00"], []),
    ("Write a box in tags such as <b>text</b>.", r"<([a-z]+)>[^<>]+</\1>", ["<b>bold</b>", "<i>1 + 1</i>"], []),
]  # fmt: skip
