import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers import Problem, Regex
from verifiers.lint.report import lint


@pytest.mark.parametrize(
    ("pattern", "completion", "reward"),
    [
        (r"[0-9]+", "46", 1.0),
        (r"[0-9]+", "46 ", 0.0),
        (r"[0-9]+", "x46", 0.0),
        (r"[0-9]+", "46\n", 0.0),
        (r"[0-9]+", "", 0.0),
        (r"[0-9]+", "٤٦", 0.0),
        (r"\d+", "٤٦", 0.0),
        (r"\d+", "４６", 0.0),
        (r"[\d-]+ \w+", "4-6 août", 1.0),
        (r"[٠-٩]+", "٤٦", 1.0),
        (r"\w+", "٤٦", 1.0),
        (r"[^,]+", "٤٦", 1.0),
        (r"\w+ \d+", "٤٦ 46", 1.0),
        (r"\w+ \d+", "46 ٤٦", 0.0),
        (r"(?i)[a-z]+", "\N{KELVIN SIGN}ilo", 0.0),
        (r"(?i)is", "i\N{LATIN SMALL LETTER LONG S}", 0.0),
        (r"(?i)\w+", "Straße \N{KELVIN SIGN}", 0.0),
        (r"(?i)\w+", "Straße\N{KELVIN SIGN}", 1.0),
        (r"^a$", "a\n", 0.0),
        (r"(?m)^a$", "a\nb", 0.0),
        (r"(?m)^a$\n?", "a\n", 1.0),
        (r"yes|no", "yes", 1.0),
        (r"yes|no", "yes or no", 0.0),
        (r"(?i)yes", "YES", 1.0),
        (r"(?s)a.*b", "a\nb", 1.0),
        (r"^a$", "a", 1.0),
        (r"a*", "", 1.0),
    ],
)
def test_the_whole_completion_has_to_match(pattern, completion, reward):
    assert Regex(pattern).verify(Problem("p"), completion).reward == reward


def test_the_problem_s_own_pattern_goes_first():
    assert Regex("a").verify(Problem("p", metadata={"pattern": "b"}), "b").reward == 1.0
    assert Regex("a").verify(Problem("p", metadata={"pattern": "b"}), "a").reward == 0.0
    assert Regex("a").verify(Problem("p", metadata={"pattern": None}), "a").reward == 1.0


def test_a_completion_that_is_too_long_is_not_looked_at():
    assert Regex("x*", max_length=5).verify(Problem("p"), "x" * 5).reward == 1.0
    assert Regex("x*", max_length=5).verify(Problem("p"), "x" * 6).reward == 0.0
    assert Regex("(x+x+)+y").verify(Problem("p"), "x" * 100_000).reward == 0.0


def test_patterns_may_take_for_ever_and_so_they_run_in_worker_processes():
    assert Regex.isolated
    assert Regex.timeout <= 5.0


@pytest.mark.parametrize(
    "pattern", ["(", "[z-a]", "a{2,1}", "*", "(?P<a>x)(?P<a>y)", "\\", "(?<=a*)b", "x{99999999999999}"]
)
def test_what_is_no_pattern_is_refused_in_one_line(pattern):
    with pytest.raises(ValueError, match=re.escape(f"regex: {pattern!r} is not a pattern: ")) as caught:
        Regex(pattern)
    assert "\n" not in str(caught.value)
    verdict = Regex().verify(Problem("p", metadata={"pattern": pattern}), "x")
    assert (verdict.reward, verdict.status, verdict.reason) == (0.0, "error", str(caught.value))


@pytest.mark.parametrize("pattern", ["", 3, ["a"]])
def test_a_pattern_is_text(pattern):
    with pytest.raises(ValueError, match=r"regex: a pattern is a text such as \[0-9\]\+"):
        Regex(pattern)


def test_without_any_pattern_there_is_no_verdict():
    verdict = Regex().verify(Problem("p"), "x")
    assert (verdict.reward, verdict.status) == (0.0, "error")
    assert "no pattern" in verdict.reason


@pytest.mark.parametrize("max_length", [0, 100_001, "9"])
def test_the_longest_completion_is_bounded(max_length):
    with pytest.raises(ValueError, match="regex: max_length must be a whole number from 1 to 100000"):
        Regex("a", max_length)


def test_lint_has_two_hundred_right_answers():
    verifier = Regex()
    verifier.isolated = False  # a busy machine misses the deadline of a worker
    report = lint(verifier)
    assert [finding for finding in report.findings if finding.rule != "speed"] == []
    assert report.honest >= 200
    assert report.false_accepts == report.declared["nonsense-of-the-form"] == 3


@given(st.sampled_from(Regex().examples()), st.text(st.characters(exclude_categories=())))
def test_any_text_has_a_verdict(problem, completion):
    verdict = Regex().verify(problem, completion)
    assert verdict.status == "ok"
    assert verdict.reward in (0.0, 1.0)
