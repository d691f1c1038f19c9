"""The example package: its entry point names the class, which passes lint. Installed plugins: tests/golden."""

import tomllib
from pathlib import Path

from verifiers import list_verifiers, make_verifier
from verifiers.lint import lint

EXAMPLE = Path(__file__).parents[2] / "examples" / "rlenv-verifier-palindrome"


def test_the_example_passes_lint_under_its_name():
    assert "palindrome" not in list_verifiers()
    points = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]
    (module, name) = points["rlenv.verifiers"]["palindrome"].split(":")
    report = lint(make_verifier(f"{EXAMPLE / module}.py:{name}"))
    assert report.passed and report.attacks >= 200 and report.honest >= 200, report
