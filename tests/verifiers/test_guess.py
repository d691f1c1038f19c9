"""guess: bisection finds every number in the turns there are; nothing but the number is paid for."""

import random

import pytest

from verifiers import Guess, Problem
from verifiers.dialogues import begin, reply_to


def bisect(verifier, number, largest):
    """Return how many turns bisection takes; None if the turns run out."""
    dialogue, low, high = begin(verifier, Problem("", str(number))), 1, largest
    for turn in range(1, verifier.max_turns + 1):
        middle = (low + high) // 2
        reply = reply_to(dialogue, str(middle))
        if reply.verdict is not None:
            return turn if reply.verdict.reward == 1 else None
        low, high = (middle + 1, high) if reply.content == ">" else (low, middle - 1)
    return None


@pytest.mark.parametrize("largest", [2, 10, 63, 64, 100])
def test_bisection_finds_every_number_in_the_turns_there_are(largest):
    verifier = Guess(largest)
    turns = [bisect(verifier, number, largest) for number in range(1, largest + 1)]
    assert None not in turns and max(turns) == verifier.max_turns
    if largest == 64:
        assert sum(turns) / 64 == pytest.approx(5.1, abs=0.05)


@pytest.mark.parametrize(
    ("turn", "reply"),
    [("41", ">"), (" 43\n", "<"), ("", "?"), ("42.0", "?"), ("40 41", "?"), ("042", "?"), ("-42", "?"), ("٤٢", "?")],
)
def test_a_guess_is_one_whole_number(turn, reply):
    verifier = Guess()
    answer = reply_to(begin(verifier, Problem("1-64:", "42")), turn)
    assert answer.content == reply and answer.verdict is None and answer.reward == 0


def test_the_right_number_ends_the_episode_and_one_guess_is_a_completion():
    verifier, problem = Guess(), Problem("1-64:", "42")
    assert reply_to(begin(verifier, problem), "42").verdict.reward == 1
    assert [verifier.verify(problem, text).reward for text in ("42", "41", "x")] == [1, 0, 0]


def test_levels_halve_the_numbers():
    verifier = Guess(64, levels=3)
    for level, most in ((1, 16), (2, 32), (3, 64)):
        problems = [verifier.sample_at(random.Random(seed), level) for seed in range(200)]
        assert {problem.prompt for problem in problems} == {f"1-{most}:"}
        assert max(int(problem.answer) for problem in problems) in range(most - 3, most + 1)
        assert {problem.metadata["level"] for problem in problems} == {level}
