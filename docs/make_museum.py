"""Write the page docs/museum.md from the tests in tests/museum."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from museum import MADE_UP, OURS, Entry, entries  # noqa: E402 (its folder is no package)

KINDS = {  # kinds of bugs by number, as found in public issues and pull requests
    "The policy that is trained is not the one that was sampled": range(1, 17),
    "The gradient is not the one that was meant": range(17, 33),
    "Episodes, time limits and restarts": range(33, 38),
    "Verifiers": range(38, 47),
    "Saving, loading and going on": range(47, 53),
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
| {ours} | of this project, mended since |
| {made_up} | made up, to test the tests |

To add one, write a function in `tests/museum` that plants it; `tests/support/museum.py` says how. Then
`python docs/make_museum.py` writes this page.
"""


def page() -> str:
    """Return the page."""
    every = sorted(entries(), key=lambda entry: entry.number or 0)
    sections = {title: [one for one in every if one.number in kinds] for title, kinds in KINDS.items()}
    sections["Bugs of this project"] = [one for one in every if one.reference == OURS]
    sections["Made up, to test the tests"] = [one for one in every if one.reference == MADE_UP]
    ours, made_up = (sum(one.reference == kind for one in every) for kind in (OURS, MADE_UP))
    counts = {"count": len(every), "public": len(every) - ours - made_up, "ours": ours, "made_up": made_up}
    return "\n".join([INTRODUCTION.format(**counts), *(_section(*section) for section in sections.items())])


def _section(title: str, bugs: list[Entry]) -> str:
    if not any(bug.number for bug in bugs):
        rows = ["| what goes wrong | caught by |", "|---|---|"]
        rows += [f"| {bug.text} | {_test(bug.caught_by)} |" for bug in bugs]
    else:
        rows = ["| what goes wrong | reported in | caught by |", "|---|---|---|"]
        rows += [f"| {bug.text} | {_links(bug.reference)} | {_test(bug.caught_by)} |" for bug in bugs]
    return "\n".join([f"## {title}", "", *rows, ""])


def _links(reference: str) -> str:
    issues = [issue.split("#") for issue in reference.split(", ")]
    return ", ".join(
        f"[{name.split('/')[1]}#{number}](https://github.com/{name}/issues/{number})" for name, number in issues
    )


def _test(name: str) -> str:
    file, _, test = name.partition("::")
    return f"[{test.removeprefix('test_').replace('_', ' ')}](../tests/{file})"


if __name__ == "__main__":
    (ROOT / "docs" / "museum.md").write_text(page(), encoding="utf-8")
