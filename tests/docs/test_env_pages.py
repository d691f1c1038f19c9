"""The pages docs/env-*.md say what the environments are."""

import re
from pathlib import Path

import rlenv  # noqa: F401 (registers TextGen-v0)

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_of_textgen_runs():
    [code] = re.findall(r"```py\n(.*?)```", (DOCS / "env-textgen.md").read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, "env-textgen.md", "exec"), {})
