"""Write the table of docs/appendix/planted-bugs.md from tests/mutations.toml: python docs/make_museum.py."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "appendix" / "planted-bugs.md"
MARKS = re.compile(r"(<!-- museum -->\n).*?(<!-- end of museum -->)", re.DOTALL)
TABLE = """\
Here are {count} bugs: {others} were reported in other projects, as the links show, {ours} were this project's, and
{made_up} are made up, to test the tests.

| what goes wrong | bug of | caught by |
|---|---|---|
"""


def museum() -> str:
    """Return the table of the bugs, those of other projects first."""
    bugs = tomllib.loads((ROOT / "tests/mutations.toml").read_text(encoding="utf-8"))["bug"]
    bugs.sort(key=lambda bug: bug.get("kind", 99 + (bug["reference"] == "made up")))
    ours, made_up = (sum(bug["reference"] == of for bug in bugs) for of in ("this project", "made up"))
    text = TABLE.format(count=len(bugs), others=len(bugs) - ours - made_up, ours=ours, made_up=made_up)
    for bug in bugs:
        file, name = re.match(r"([^:]+)::(?:\w+::)?test_(\w+)", bug["test"]).groups()
        project = re.sub(r"([^/ ]+/([^/ ]+))#(\d+)", r"[\2#\3](https://github.com/\1/issues/\3)", bug["reference"])
        text += f"| {bug['what']} | {project} | [{name.replace('_', ' ')}](../../{file}) |\n"
    return text


if __name__ == "__main__":
    page = MARKS.sub(lambda found: found[1] + museum() + found[2], PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8", newline="\n")
