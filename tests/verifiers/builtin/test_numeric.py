from verifiers import Numeric, Problem


def test_votes_are_for_what_a_number_means():
    verifier, problem = Numeric(), Problem("How much is left?", "1/4")
    texts = ("0.25", "25%", "It is 1/4.", "\\boxed{0.250}")
    assert {verifier.extract(problem, text) for text in texts} == {"1/4"}
    assert verifier.extract(problem, "nothing") is None
