from verifiers import Problem, Regex


def test_a_problem_without_a_pattern_of_its_own_is_judged_by_the_verifiers():
    assert Regex("a").verify(Problem("p", metadata={"pattern": None}), "a").reward == 1.0


def test_a_completion_that_is_too_long_is_not_looked_at():
    assert Regex("x*", max_length=5).verify(Problem("p"), "x" * 5).reward == 1.0
    assert Regex("x*", max_length=5).verify(Problem("p"), "x" * 6).reward == 0.0
    assert Regex("(x+x+)+y").verify(Problem("p"), "x" * 100_000).reward == 0.0


def test_patterns_may_take_for_ever_and_so_they_run_in_worker_processes():
    assert Regex.isolated and Regex.timeout <= 5.0
