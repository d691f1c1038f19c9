"""The tables of the pages about verifiers are those of the code; every verifier passes lint with the counts there."""

import pytest
from loaded import loaded

MAKER = loaded("docs/make_verifiers.py")
QUICK = {"arith", "length"}  # one that makes problems, one with a declared false accept


def test_the_tables_are_those_of_the_code():
    for path, text in MAKER.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python docs/make_verifiers.py"


def test_every_verifier_was_linted():
    assert list(MAKER.results()) == sorted(MAKER.linted())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name not in QUICK else []) for name in MAKER.linted()]
)
def test_lint_counts_what_the_page_shows(name):
    kept, now = MAKER.results()[name], MAKER.counts(name)
    if "skipped" in now:
        pytest.skip(now["skipped"])  # what it needs is not here
    assert now == kept
    assert now["passed"]


def test_the_corpus_is_as_large_as_was_asked_for():
    kept = [result for result in MAKER.results().values() if "skipped" not in result]
    assert all(result["attacks"] >= 200 for result in kept)
    assert sum(result["honest"] for result in kept) >= 200
    assert all(result["false_rejects"] == 0 for result in kept)
    assert all(result["false_accepts"] == sum(result["declared"].values()) for result in kept)
