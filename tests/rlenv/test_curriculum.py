"""Which problems are posed: by a curriculum, or by Thompson draws; after a break, `laws/test_resume.py` says."""

import random
from collections import Counter

import numpy as np
import pytest

from rlenv.curriculum import Curriculum, ThompsonChoice
from rlenv.stream import ProblemStream
from rlenv.task import TextGenTask
from rlenv.turns import verdict_info
from rlenv.vector_env import TextGenVectorEnv
from rlenv.verifiers import Arith, Problem, Verdict, Verifier

LISTED = [{"prompt": f"{level}{letter}", "level": level} for level in (1, 2, 4) for letter in "abcdefghij"]
PROBLEMS = [{"prompt": f"{n}:", "answer": str(n)} for n in range(10)]


class Digits(Verifier):
    """Three levels; pays for the answer of a problem."""

    levels = 3
    alphabet = "0123456789:"
    prompt_length, answer_length = 2, 1

    def sample(self, rng):
        return self.sample_at(rng, rng.randint(1, 3))

    def sample_at(self, rng, level):
        return Problem(f"{level}{rng.randrange(10)}", str(level))

    def verify(self, problem, completion):
        return Verdict(float(completion == problem.answer))


def stream(problems=None, **arguments):
    return ProblemStream(Digits(), problems=problems, **{"test_fraction": 0.0, "curriculum": 0.8, **arguments})


@pytest.mark.parametrize(
    ("threshold", "window", "verdicts", "level"),
    [
        (0.75, 4, [(1, True)] * 3, 1),
        (0.75, 4, [(1, True)] * 3 + [(1, False)], 2),
        (1.0, 3, [(1, success) for success in (True, True, False, True, True, True)], 2),
        (0.5, 2, [(1, True)] * 2 + [(1, True), (3, True)] * 10 + [(2, True), (2, False)], 3),
    ],
)
def test_the_next_level_comes_when_the_last_verdicts_on_this_one_reach_the_threshold(
    threshold, window, verdicts, level
):
    curriculum = Curriculum([1, 2, 3], threshold, window=window)
    for verdict in verdicts:
        curriculum.record(*verdict)
        curriculum.update()
    assert curriculum.level == level


@pytest.mark.parametrize("problems", [None, LISTED], ids=["sampled", "listed"])
def test_a_stream_poses_the_levels_reached_so_far(problems):
    posed = stream(problems, curriculum=0.5)
    levels = [1, 2, 3] if problems is None else [1, 2, 4]
    for reached in range(1, 4):
        counts = Counter(posed[index].metadata["level"] for index in range(300 * reached, 300 * (reached + 1)))
        newest = counts[levels[reached - 1]]
        assert sorted(counts) == levels[:reached] and (120 <= newest <= 180 or reached == 1), "half, and all before"
        while reached < 3 and posed.curriculum.level == levels[reached - 1]:
            posed.curriculum.record(levels[reached - 1], True)
            posed.update()


def test_a_curriculum_that_goes_back_draws_anew_from_there_on():
    posed = stream(curriculum=0.5)
    before = posed.prompts(range(60))
    for _ in range(256):
        posed.curriculum.record(1, True)
    posed.update()
    posed.load_state_dict(posed.state_dict(), first=20)
    after = posed.prompts(range(60))
    assert after[:20] == before[:20] and {each.problem.metadata["level"] for each in after[20:]} == {1, 2}


def test_the_test_split_has_all_levels_and_neither_a_curriculum_nor_a_choice():
    posed = stream(split="test", test_fraction=0.5)
    assert posed.curriculum is None and {posed[index].prompt[0] for index in range(100)} == {*"123"}
    assert TextGenTask(Digits(), split="test", test_fraction=0.5, curriculum=0.5).stream.curriculum is None
    chosen = {"problems": PROBLEMS, "test_fraction": 0.5, "split": "test", "curriculum": None}
    plain, other = stream(**chosen), stream(**chosen, prompt_choice="thompson")
    assert other.curriculum is None and [plain[i] for i in range(20)] == [other[i] for i in range(20)]


def test_a_task_learns_from_verdicts_and_not_from_failures_or_other_seeds():
    env = TextGenVectorEnv(2, verifier=Digits(), test_fraction=0.0, curriculum=1.0)
    env.reset(seed=0)
    problems = [prompt.problem for prompt in env.task.prompts(range(255))]

    def end(problem, verdict):
        env.task.record(problem, verdict_info(env.task.verifier, problem, verdict))

    for problem in problems:
        end(problem, Verdict(1.0))
    for status in ("timeout", "error", "not_applicable"):
        end(problems[0], Verdict(0.0, status=status))
    env.reset()
    assert env.task.stream.curriculum.level == 1
    end(problems[0], Verdict(1.0))
    env.reset(seed=1)
    assert env.task.stream.curriculum.level == 2
    env.task.reseed(np.random.default_rng(0))
    assert env.task.stream.curriculum.level == 2


# Thompson draws: the posterior by hand, and draws near one half.


def test_the_posterior_by_hand():
    choice = ThompsonChoice([3, 5], half_life=8)
    for success in [True] * 2 + [False] * 6:
        choice.record(3, success)
    assert choice.posterior(3) == choice.posterior(5) == (1, 1), "verdicts count from the next update on"
    choice.update()
    assert choice.posterior(3) == (3, 7) and choice.posterior(5) == (1, 1)
    for _ in range(16):
        choice.record(5, True)
    choice.update()  # 8 verdicts per arm: half of what was known is forgotten, also of the other arm
    assert choice.posterior(3) == (2, 4) and choice.posterior(5) == (17, 1)
    choice.update()
    assert choice.posterior(3) == (2, 4), "without verdicts nothing is forgotten"


def test_a_stream_is_chosen_from_by_problem_or_by_level():
    listed = stream(PROBLEMS, curriculum=None, prompt_choice="thompson")
    assert len(listed.curriculum.arms) == 10
    assert listed[4] is listed[4], "the episodes of a group share it"
    posed = listed[4]
    listed.record(posed, True)
    listed.update()
    known = [arm for arm in listed.curriculum.arms if listed.curriculum.posterior(arm) == (2, 1)]
    assert [PROBLEMS[arm]["prompt"] for arm in known] == [posed.text]
    mirrored = ProblemStream(Arith(), problems=["1+2=", "2+1=", "3+4="], test_fraction=0.0, prompt_choice="thompson")
    assert mirrored.curriculum.arms == [0, 1], "problems that a learner cannot tell apart are one arm"
    sampled = stream(curriculum=None, prompt_choice="thompson")
    assert sampled.curriculum.arms == [1, 2, 3]
    for number in range(400):
        for level, success in ((1, True), (2, random.Random(number).random() < 0.5), (3, False)):
            sampled.record(Problem(f"{level}:", str(level), {"level": level}), success)
        sampled.update()
    assert Counter(sampled[i].metadata["level"] for i in range(200))[2] > 100
