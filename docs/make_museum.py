"""Write docs/museum.md and the pages in docs/museum/ from the tests in tests/museum."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from museum import MADE_UP, OURS, Entry, entries  # noqa: E402 (its folder is no package)

KINDS = {  # kinds of bugs by number, as found in public issues and pull requests, and the name of their page
    "The policy that is trained is not the one that was sampled": ("sampling", range(1, 17)),
    "The gradient is not the one that was meant": ("gradient", range(17, 33)),
    "Episodes, time limits and restarts": ("episodes", range(33, 38)),
    "Verifiers": ("verifiers", range(38, 47)),
    "Saving, loading and going on": ("saving", range(47, 53)),
}
INTRODUCTION = """\
# The bug museum

Bugs that code for reinforcement learning has had. Almost all of them are silent: training goes on, and rewards may even
rise. Each is planted here by a test in `tests/museum`, which asserts that a named test of the suite passes without it
and fails with it.

    make museum   # plants them all and shows which test caught which, in one or two minutes

| {count} bugs | |
|---|---|
| {public} | reported in other projects; the links lead to the reports, and the bug is built anew in this code |
| {ours} | of this project, fixed since |
| {made_up} | made up, to test the tests |

| where | bugs |
|---|---|
{rows}

To add one, write a function in `tests/museum` that plants it; `tests/support/museum.py` says how. Then
`python docs/make_museum.py` writes these pages.
"""
ABOUT = "Part of [the bug museum](../museum.md): each bug is planted, and the test beside it notices."


def pages() -> dict[str, str]:
    """Return the pages by their path in docs/."""
    every = sorted(entries(), key=lambda entry: entry.number or 0)
    sections = {(title, name): [one for one in every if one.number in kinds] for title, (name, kinds) in KINDS.items()}
    sections["Bugs of this project", "ours"] = ours = [one for one in every if one.reference == OURS]
    sections["Made up, to test the tests", "made-up"] = made_up = [one for one in every if one.reference == MADE_UP]
    counts = {"count": len(every), "ours": len(ours), "made_up": len(made_up)}
    counts["public"] = len(every) - len(ours) - len(made_up)
    rows = "\n".join(f"| [{title}](museum/{name}.md) | {len(bugs)} |" for (title, name), bugs in sections.items())
    return {"museum.md": INTRODUCTION.format(**counts, rows=rows)} | {
        f"museum/{name}.md": _section(title, bugs) for (title, name), bugs in sections.items()
    }


def _section(title: str, bugs: list[Entry]) -> str:
    if not any(bug.number for bug in bugs):
        rows = ["| what goes wrong | caught by |", "|---|---|"]
        rows += [f"| {bug.text} | {_test(bug.caught_by)} |" for bug in bugs]
    else:
        rows = ["| what goes wrong | reported in | caught by |", "|---|---|---|"]
        rows += [f"| {bug.text} | {_links(bug.reference)} | {_test(bug.caught_by)} |" for bug in bugs]
    return "\n".join([f"# {title}", "", ABOUT, "", *rows, ""])


def _links(reference: str) -> str:
    issues = [issue.split("#") for issue in reference.split(", ")]
    return ", ".join(
        f"[{name.split('/')[1]}#{number}](https://github.com/{name}/issues/{number})" for name, number in issues
    )


def _test(name: str) -> str:
    file, _, test = name.partition("::")
    return f"[{test.removeprefix('test_').replace('_', ' ')}](../../tests/{file})"


if __name__ == "__main__":
    for name, text in pages().items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8", newline="\n")
