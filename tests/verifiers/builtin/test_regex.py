import pytest

from verifiers import Problem, Regex


@pytest.mark.parametrize(
    ("pattern", "completion", "reward"),
    [
        (r"[0-9]+", "46", 1.0),
        (r"[0-9]+", "46 ", 0.0),
        (r"[0-9]+", "46\n", 0.0),
        (r"[0-9]+", "٤٦", 0.0),
        (r"\d+", "٤٦", 0.0),
        (r"[\d-]+ \w+", "4-6 août", 1.0),
        (r"[٠-٩]+", "٤٦", 1.0),
        (r"[^,]+", "٤٦", 1.0),
        (r"\w+ \d+", "46 ٤٦", 0.0),
        (r"(?i)[a-z]+", "\N{KELVIN SIGN}ilo", 0.0),
        (r"(?i)\w+", "Straße\N{KELVIN SIGN}", 1.0),
        (r"^a$", "a\n", 0.0),
        (r"(?m)^a$", "a\nb", 0.0),
        (r"yes|no", "yes or no", 0.0),
        (r"(?i)yes", "YES", 1.0),
        (r"(?s)a.*b", "a\nb", 1.0),
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
    assert Regex.isolated and Regex.timeout <= 5.0
