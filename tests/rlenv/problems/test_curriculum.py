"""The curriculum: when it goes on, what it poses, and that a stream with one can be repeated."""

import copy
import random
from collections import Counter

import numpy as np
import pytest

from rlenv.envs.task import TextGenTask
from rlenv.envs.vector import TextGenVectorEnv
from rlenv.problems.curriculum import Curriculum
from rlenv.problems.stream import ProblemStream, level_of
from verifiers import Problem, Verdict, Verifier

LISTED = [{"prompt": f"{level}{letter}", "level": level} for level in (1, 2, 4) for letter in "abcdefghij"]


class Graded(Verifier):
    """A prompt of as many letters as its level says."""

    alphabet = "abc"
    levels = 3

    def sample(self, rng):
        return self.sample_at(rng, rng.randint(1, 3))

    def sample_at(self, rng, level):
        return Problem("".join(rng.choices("abc", k=level)), "a", {"note": "kept"})

    def verify(self, problem, completion):
        return Verdict(float(completion == "a"))


def climb(curriculum, steps=1):
    for _ in range(steps):
        level = curriculum.level
        while curriculum.level == level:
            curriculum.record(level, True)


@pytest.mark.parametrize(
    ("threshold", "window", "verdicts", "level"),
    [
        (0.75, 4, [(1, True)] * 3, 1),
        (0.75, 4, [(1, True)] * 3 + [(1, False)], 2),
        (1.0, 3, [(1, success) for success in (True, True, False, True, True)], 1),
        (1.0, 3, [(1, success) for success in (True, True, False, True, True, True)], 2),
        (0.5, 2, [(1, True)] * 2 + [(1, True), (3, True)] * 10 + [(2, True)], 2),
        (0.5, 2, [(1, True)] * 2 + [(1, True), (3, True)] * 10 + [(2, True), (2, False)], 3),
    ],
)
def test_the_next_level_comes_when_the_last_verdicts_on_this_one_reach_the_threshold(
    threshold, window, verdicts, level
):
    curriculum = Curriculum([1, 2, 3], threshold, window=window)
    for verdict in verdicts:
        curriculum.record(*verdict)
    assert curriculum.level == level


def test_half_of_the_problems_are_of_the_newest_level_and_the_others_of_those_before():
    curriculum = Curriculum([1, 2, 3, 4], 1.0, window=1)
    rng = random.Random(0)
    assert {curriculum.draw(rng) for _ in range(20)} == {1}
    climb(curriculum, 2)
    counts = Counter(curriculum.draw(rng) for _ in range(8000))
    assert set(counts) == {1, 2, 3}
    assert counts[3] / 8000 == pytest.approx(0.5, abs=0.02)
    assert counts[1] / 8000 == pytest.approx(0.25, abs=0.02)


def stream(problems=None, **arguments):
    arguments = {"test_fraction": 0.0, "curriculum": 0.8} | arguments
    return ProblemStream(Graded(), problems=problems, **arguments)


@pytest.mark.parametrize("problems", [None, LISTED], ids=["sampled", "listed"])
def test_a_stream_poses_the_levels_reached_so_far(problems):
    posed = stream(problems)
    levels = [1, 2, 3] if problems is None else [1, 2, 4]
    for reached in range(1, 4):
        counts = Counter(level_of(posed[index]) for index in range(300))
        assert sorted(counts) == levels[:reached]
        assert counts[levels[reached - 1]] >= 120
        if reached < 3:
            climb(posed.curriculum)


@pytest.mark.parametrize("problems", [None, LISTED], ids=["sampled", "listed"])
def test_a_group_keeps_its_problem_when_the_level_changes_in_its_middle(problems):
    task = TextGenTask(Graded(), problems=problems, test_fraction=0.0, group_size=4, curriculum=0.5)
    drawn_anew = []
    for seed in range(20):
        task = copy.deepcopy(task)
        task.stream.curriculum = Curriculum(task.stream.curriculum.levels, 0.5)
        task.stream.seed = seed
        begun = task.prompts(range(6))[4].problem
        climb(task.stream.curriculum)
        assert [prompt.problem for prompt in task.prompts(range(6, 9))[:2]] == [begun, begun]
        drawn_anew.append(task.stream[1] != begun)
    assert any(drawn_anew)  # so that it was kept, and not found again


def test_the_test_split_has_all_levels_and_no_curriculum():
    posed = stream(split="test", test_fraction=0.5)
    assert posed.curriculum is None
    assert {len(posed[index].prompt) for index in range(100)} == {1, 2, 3}
    assert TextGenTask(Graded(), split="test", test_fraction=0.5, curriculum=0.5).level is None


def test_listed_problems_without_a_level_are_of_the_first():
    posed = stream(["x", {"prompt": "y", "level": 2}])
    assert {posed[index].prompt for index in range(20)} == {"x"}


def test_a_level_that_is_none_matters_only_to_a_curriculum():
    listed = ["x", Problem("y", metadata={"level": "hard"})]
    assert {level_of(stream(listed, curriculum=None)[index]) for index in range(2)} == {1}


def test_a_task_learns_from_verdicts_and_not_from_failures():
    task = TextGenTask(Graded(), test_fraction=0.0, curriculum=1.0)
    assert task.level == 1
    problems = [prompt.problem for prompt in task.prompts(range(255))]
    for problem in problems:
        task.conclude(problem, Verdict(1.0))
    for status in ("timeout", "error", "not_applicable"):
        task.conclude(problems[0], Verdict(0.0, status=status))
    assert task.level == 1
    task.conclude(problems[0], Verdict(1.0))
    assert task.level == 2


def test_another_seed_starts_no_curriculum_anew():
    env = TextGenVectorEnv(2, verifier=Graded(), test_fraction=0.0, curriculum=0.5)
    env.reset(seed=0)
    climb(env.task.stream.curriculum)
    env.reset(seed=1)
    assert env.task.level == 2
    env.task.reseed(np.random.default_rng(0))
    assert env.task.level == 2
