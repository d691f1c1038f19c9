"""`rlenv verifiers`, as a person runs it."""

from inprocess import done, result_of, run

from rlenv.verifiers import Verifier
from rlenv.verifiers.plugins.registry import _REGISTRY

JUDGES = """
def lenient(prompts, completions, answer):
    return [float(right in text) for text, right in zip(completions, answer)]


def strict(prompts, completions, answer):
    return [float(text == right) for text, right in zip(completions, answer)]
"""


def test_lint_ends_with_1_where_a_rule_is_broken(tmp_path):
    (tmp_path / "judges.py").write_text(JUDGES)
    rows = '{"question": "Capital of France?", "answer": "Paris"}\n{"question": "Capital of Peru?", "answer": "Lima"}\n'
    (tmp_path / "towns.jsonl").write_text(rows)
    lenient, strict = (f"{tmp_path / 'judges.py'}:{name}" for name in ("lenient", "strict"))
    lint = ["verifiers", "lint", lenient, strict, "--problems", tmp_path / "towns.jsonl", "--column", "prompt=question"]
    shown = run(*lint).stdout
    assert f"{lenient}: attack: several-answers" in shown and f"{strict}: attack" not in shown
    bad, good = result_of(run(*lint, "--json"), code=1)["verifiers"]
    assert (good["passed"], bad["passed"]) == (True, False) and bad["false_accepts"] > 10
    assert (good["findings"], good["honest"], good["problems"]) == ([], 2, 2)
    assert {each["family"] for each in bad["findings"]} == {"several-answers", "place-repeated", "junk"}


def test_show_has_the_error_of_a_verifier_in_its_table(tmp_path):
    (tmp_path / "f.py").write_text("def twice(completions):\n    return [2 * int(completions[0])]\n")
    (tmp_path / "sums.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    show = ["verifiers", "show", f"{tmp_path / 'f.py'}:twice", "--problems", tmp_path / "sums.jsonl", "--json"]
    rows = result_of(run(*show))
    shown = {row["kind"]: (row["status"], row["reason"][-9:]) for row in rows}
    assert shown["demonstration"] == ("ok", "") and shown["empty"] == ("error", " (f.py:2)")


def test_lint_names_the_option_for_answers_in_another_column(tmp_path):
    (tmp_path / "towns.jsonl").write_text('{"prompt": "Capital of Peru?", "town": "Lima"}\n')
    (tmp_path / "f.py").write_text(
        "def lima(prompts, completions, **columns):\n    return [float(text == 'Lima') for text in completions]\n"
    )
    lint = ["verifiers", "lint", f"{tmp_path / 'f.py'}:lima", "--problems", tmp_path / "towns.jsonl"]
    assert "--column answer=" in done(*lint).stdout
    assert "--column answer=" not in done(*lint, "--column", "answer=town").stdout


def test_lint_all_takes_those_that_need_nothing_else_and_names_the_others(monkeypatch):
    class Needy(Verifier):
        """Needs a number."""

        def __init__(self, number):
            self.number = number

    monkeypatch.setattr("rlenv.verifiers.list_verifiers", lambda: ["length", "needy"])
    monkeypatch.setitem(_REGISTRY, "needy", Needy)
    result = result_of(run("verifiers", "lint", "--all", "--json"))
    assert [report["verifier"] for report in result["verifiers"]] == ["length"]
    assert "number" in result["skipped"]["needy"]
    assert "needy: not linted: verifier needy: " in done("verifiers", "lint", "--all").stdout
