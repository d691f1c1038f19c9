import random

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

from rlenv.problems import in_test_split
from rlenv.stream import ProblemStream
from verifiers import Arith, Problem

ONE_DIGIT = {f"{a}+{b}=" for a in range(10) for b in range(10)}


def stream(split="train", seed=0, **arguments):
    made = ProblemStream(arguments.pop("verifier", Arith()), split, **arguments)
    made.seed = seed
    return made


def take(problems, count, start=0):
    return [problems[index].prompt for index in range(start, start + count)]


@drawn(40)
@given(st.integers(10, 99), st.integers(10, 99), st.sampled_from("+*"), st.floats(0, 1))
def test_a_sum_and_its_mirror_image_are_on_the_same_side(a, b, symbol, fraction):
    key = Arith(operators="+-*").split_key
    one, other = Problem(f"{a}{symbol}{b}="), Problem(f"{b}{symbol}{a}=")
    assert in_test_split(key(one), fraction) == in_test_split(key(other), fraction)


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.5])
def test_the_test_split_has_the_share_it_was_given(fraction):
    share = sum(in_test_split(str(key), fraction) for key in range(20_000)) / 20_000
    assert share == pytest.approx(fraction, abs=0.01)


def test_the_border_is_the_same_in_every_process_and_version():
    assert [in_test_split(f"{n}+{n}", 0.2) for n in range(30)] == [n in (0, 8, 25, 28) for n in range(30)]


@drawn(40)
@given(st.integers(0, 2**62), st.sampled_from(["train", "test"]), st.lists(st.integers(0, 10**9), max_size=5))
def test_a_problem_is_a_function_of_seed_split_and_number(seed, split, indices):
    forwards, backwards = stream(split, seed), stream(split, seed)
    expected = [forwards[index] for index in indices]
    assert [backwards[index] for index in reversed(indices)] == expected[::-1]


def test_asking_for_problems_leaves_the_random_state_of_python_alone():
    random.seed(5)
    before = random.getstate()
    take(stream(), 5), take(stream(problems=["a", "b"], test_fraction=0.0), 5)
    assert random.getstate() == before


@drawn(40)
@given(st.integers(1, 12), st.integers(0, 2**62), st.integers(0, 20))
def test_listed_problems_come_once_an_epoch(size, seed, epoch):
    listed = [f"prompt {index // 2}" for index in range(size)]  # twice what is listed twice
    problems = stream(seed=seed, problems=listed, test_fraction=0.0)
    assert sorted(take(problems, size, start=epoch * size)) == sorted(listed)


def test_listed_problems_are_shuffled_by_seed_and_epoch():
    listed = [str(index) for index in range(20)]
    problems, other = (stream(seed=seed, problems=listed, test_fraction=0.0) for seed in (0, 1))
    orders = [take(problems, 20), take(problems, 20, start=20), take(other, 20), listed]
    assert len({tuple(order) for order in orders}) == 4


def test_listed_problems_are_split_as_sampled_ones_are():
    listed = sorted(ONE_DIGIT)
    train, test = (set(take(stream(split, verifier=Arith(1), problems=listed), 100)) for split in ("train", "test"))
    assert train | test == ONE_DIGIT and not train & test
    assert [set(take(stream(split, verifier=Arith(1)), 2000)) for split in ("train", "test")] == [train, test]


def test_listed_problems_may_name_their_split():
    listed = [{"prompt": f"{split} {n}", "split": split} for split in ("train", "test", "validation") for n in range(9)]
    train, test = (set(take(stream(split, problems=listed, test_fraction=0.5), 40)) for split in ("train", "test"))
    assert train == {f"train {n}" for n in range(9)}
    assert test == {f"{split} {n}" for split in ("test", "validation") for n in range(9)}


def test_a_problem_named_in_both_splits_is_warned_about():
    listed = [
        {"prompt": prompt, "split": split} for prompt, split in (("1+2=", "train"), ("2+1=", "test"), ("3+3=", "test"))
    ]
    with pytest.warns(UserWarning, match="problems that are in both splits: 1"):
        stream(problems=listed)


def test_sampled_problems_that_do_not_fit_are_left_out():
    short = stream(verifier=Arith(1), fits=lambda problem: problem.prompt < "0+2")
    assert set(take(short, 30)) <= {"0+0=", "0+1="}
