"""Write docs/museum.md from the table of planted bugs, tests/mutations.toml."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
INTRODUCTION = """\
# The bug museum

Here are {count} bugs of code for reinforcement learning. Almost all are silent: training goes on, and rewards may even
rise. `make mutations` plants each in a copy of this code, where the test beside it must fail: by a hundred times the
rounding that it allows, where it compares two computations of one number. {others} bugs were reported in other
projects, as the links show, {ours} were this project's, and {made_up} are made up, to test the tests.

The table is [mutations.toml](../tests/mutations.toml); `python docs/make_museum.py` writes this page from it.

| what goes wrong | bug of | caught by |
|---|---|---|
"""

if __name__ == "__main__":
    bugs = tomllib.loads((ROOT / "tests/mutations.toml").read_text(encoding="utf-8"))["bug"]
    bugs.sort(key=lambda bug: bug.get("kind", 99 + (bug["reference"] == "made up")))
    ours, made_up = (sum(bug["reference"] == of for bug in bugs) for of in ("this project", "made up"))
    text = INTRODUCTION.format(count=len(bugs), others=len(bugs) - ours - made_up, ours=ours, made_up=made_up)
    for bug in bugs:
        file, name = bug["test"].partition("[")[0].split("::test_")
        project = re.sub(r"([^/ ]+/([^/ ]+))#(\d+)", r"[\2#\3](https://github.com/\1/issues/\3)", bug["reference"])
        text += f"| {bug['what']} | {project} | [{name.replace('_', ' ')}](../{file}) |\n"
    (ROOT / "docs/museum.md").write_text(text, encoding="utf-8", newline="\n")
