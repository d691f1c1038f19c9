"""`rlenv verifiers`, as a person runs it."""

import importlib.util
import json
import sys

import pytest
from _rlenv_scripts.main import main
from click.testing import CliRunner

from verifiers import Verifier
from verifiers.plugins.registry import ENTRY_POINT_GROUP

LENIENT = """
def lenient(prompts, completions, answer):
    return [float(right in text) for text, right in zip(completions, answer)]


def strict(prompts, completions, answer):
    return [float(text == right) for text, right in zip(completions, answer)]
"""


@pytest.fixture
def judges(tmp_path, monkeypatch):
    (tmp_path / "judges.py").write_text(LENIENT)
    (tmp_path / "towns.jsonl").write_text(
        '{"question": "Capital of France?", "answer": "Paris"}\n{"question": "Capital of Peru?", "answer": "Lima"}\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield ["--problems", str(tmp_path / "towns.jsonl"), "--column", "prompt=question"]
    sys.modules.pop("judges", None)


def run(*args, code=0):
    outcome = CliRunner(env={"COLUMNS": "160"}).invoke(main, ["verifiers", *map(str, args)])
    assert outcome.exit_code == code, outcome.output
    return outcome


def data(*args, code=0):
    return json.loads(run(*args, "--json", code=code).stdout.splitlines()[-1])


def test_list_says_which_extra_is_missing(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jsonschema" else found(name))
    rows = {row["name"]: row["missing"] for row in data("list")}
    assert (rows["json_schema"], rows["arith"]) == ("json", "")
    assert "rlenv-lm[json]" in run("list").stdout


@pytest.mark.parametrize("source", ["raise SystemExit", "raise RuntimeError('no licence')", "import no_such_module_y"])
def test_list_and_lint_go_on_after_a_plugin_that_ends_while_it_is_imported(tmp_path, monkeypatch, source):
    distribution = tmp_path / "leaver-1.0.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: leaver\nVersion: 1.0\n")
    (distribution / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\nleaver = leaver_plugin:Leaver\n")
    (tmp_path / "leaver_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    rows = {row["name"]: row for row in data("list")}
    assert rows["leaver"]["from"] == "leaver 1.0" and "cannot be loaded" in rows["leaver"]["summary"]
    assert rows["weighted"]["summary"].startswith("Several verifiers")
    outcome = run("lint", "leaver", code=2)
    assert outcome.stderr.count("\n") == 1
    assert "leaver 1.0 cannot be loaded" in outcome.stderr


def test_lint_ends_with_1_where_a_rule_is_broken(judges):
    outcome = run("lint", "judges:lenient", "judges:strict", *judges, code=1)
    assert "judges:lenient: attack: several-answers" in outcome.stdout
    assert "judges:strict: attack" not in outcome.stdout
    good, bad = data("lint", "judges:strict", "judges:lenient", *judges, code=1)["verifiers"]
    assert (good["passed"], bad["passed"]) == (True, False)
    assert bad["false_accepts"] > 10


def test_lint_all_takes_those_that_need_nothing_else_and_names_the_others(monkeypatch):
    class Needy(Verifier):
        """Needs a number."""

        def __init__(self, number):
            self.number = number

    from verifiers.plugins.registry import _REGISTRY

    monkeypatch.setattr("verifiers.list_verifiers", lambda: ["length", "needy"])
    monkeypatch.setitem(_REGISTRY, "needy", Needy)
    result = data("lint", "--all")
    assert [report["verifier"] for report in result["verifiers"]] == ["length"]
    assert "number" in result["skipped"]["needy"]
    assert "needy: not linted: verifier Needy: " in run("lint", "--all").stdout
