"""Verdicts that arrive after the step that ended the episode: futures in the infos, reward NaN until known."""

import copy
import gc
import math
import pickle
import time
import weakref
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import pytest
from textgen_reference import slot_info

from rlenv.autoreset import make_vector_env
from rlenv.judge import Judge
from rlenv.slots import LateVerdicts
from rlenv.vector_env import TextGenVectorEnv
from verifiers import Arith, Problem, Verdict, Verifier

EOS = 1


def batched(broken=False, undecided=False, interrupted=False):
    """Return a verifier of a local class: a worker gets it by value, and need not import this file and torch."""

    class Batched(Verifier):
        """Two levels, three kinds of verdict, judged in batches; notes the size of each batch."""

        alphabet = "abcx"
        prompt_length, answer_length, levels = 2, 2, 2
        prefers_batches = True

        def __init__(self):
            self.sizes, self.interrupts = [], interrupted

        def sample(self, rng):
            return self.sample_at(rng, rng.randint(1, 2))

        def sample_at(self, rng, level):
            return Problem("x" * level, "a", {"level": level})

        def verify_batch(self, problems, completions):
            if self.interrupts:  # once, as Ctrl-C does
                self.interrupts = False
                raise KeyboardInterrupt
            if broken and (len(completions) > 1 or completions == ["b"]):
                raise ZeroDivisionError("broken")
            self.sizes.append(len(completions))
            verdicts = {
                "a": Verdict(1.0, {"length": 1.0}),
                "b": Verdict(0.0, status="timeout", reason="slow"),
                "c": Verdict(0.0, status="not_applicable"),
            }
            return [verdicts.get(text, Verdict(0.0)) for text in completions]

        def is_success(self, verdict):
            if undecided:
                raise KeyError("undecided")
            return super().is_success(verdict)

    return Batched()


def late(slots, verifier=None, **settings):
    """Return an environment with late verdicts."""
    settings = {"verifier": verifier or batched(), "late_verdicts": True, "test_fraction": 0.0, **settings}
    return make_vector_env(num_envs=slots, **settings)


def played(env, rounds=1):
    """Return the infos of each slot at the end of `rounds` episodes, whose completions differ, and the rewards."""
    ends = []
    letters = env.task.encoding.encode(["abc"])[0]
    env.reset(seed=3)
    for _ in range(rounds):
        env.step([letters[slot % 3] for slot in range(env.num_envs)])
        _, rewards, terminated, _, infos = env.step([EOS] * env.num_envs)
        assert terminated.all()
        ends += [(reward, slot_info(infos, slot)) for slot, reward in enumerate(rewards.tolist())]
        env.reset(options={"reset_mask": terminated})
    return ends


@pytest.mark.parametrize("workers", [0, 2])
def test_a_future_has_the_reward_and_the_infos_that_the_step_would_have_had(workers):
    env = late(4, verifier_workers=workers, flag_errors=True)
    at_once = TextGenVectorEnv(4, verifier=batched(), test_fraction=0.0, flag_errors=True)
    for (nan, info), (reward, expected) in zip(played(env, 2), played(at_once, 2), strict=True):
        assert math.isnan(nan) and info.keys() == {"completion", "verdict_future"}
        assert isinstance(info["verdict_future"], Future) and not info["verdict_future"].cancel()
        result = info["verdict_future"].result(timeout=60)
        assert {"completion": info["completion"], **result} == {"reward": reward, **expected}
        kinds = {"a": (True, False, "ok"), "b": (False, True, "timeout"), "c": (False, False, "not_applicable")}
        told = tuple(result[key] for key in ("is_success", "verifier_failed", "verdict_status"))
        assert told == kinds[info["completion"]]
    env.close()


def test_a_verifier_that_prefers_batches_judges_once_when_the_first_result_is_asked_for():
    env = late(3)
    futures = [info["verdict_future"] for _, info in played(env, 2)]
    assert env.task.verifier.sizes == [] and not any(future.done() for future in futures)
    with ThreadPoolExecutor(4) as threads:
        rewards = list(threads.map(lambda future: future.result()["reward"], futures))
    assert rewards == [1.0, 0.0, 0.0] * 2
    assert env.task.verifier.sizes == [6]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failing_verifier_fails_its_verdict_alone_and_no_future_raises(workers):
    env = late(3, batched(broken=True), flag_errors=True, verifier_workers=workers)
    results = [info["verdict_future"].result(timeout=60) for _, info in played(env)]
    assert [result["verdict_status"] for result in results] == ["ok", "error", "not_applicable"]
    assert [result["verifier_failed"] for result in results] == [False, True, False]
    assert "broken" in results[1]["verdict_reason"]
    env.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_bug_in_is_success_leaves_nobody_waiting(workers):
    env = late(1, batched(undecided=True), verifier_workers=workers)
    [(_, info)] = played(env)
    with pytest.raises(KeyError, match="undecided"):
        info["verdict_future"].result(timeout=60)
    env.close()


@pytest.mark.parametrize(("asked", "verifier"), [(True, Arith()), (False, batched())])
def test_verdicts_are_late_only_if_that_is_asked_for_and_helps(asked, verifier):
    env = TextGenVectorEnv(2, verifier=verifier, late_verdicts=asked, test_fraction=0.0)
    assert not env.metadata["late_verdicts"]
    env.reset(seed=0)
    assert "verdict_status" in env.step([EOS, EOS])[4]


FOUR = [True] * 4 + [False]


class Graded(Arith):
    prefers_batches = True


def graded(verifier=None, **settings):
    """Return an environment with the curriculum 1+1=, 2+2=, ..., whose first level is mastered after 256 successes."""
    problems = [{"prompt": f"{level}+{level}=", "answer": str(2 * level), "level": level} for level in (1, 2)]
    return late(5, verifier or Graded(), problems=problems, curriculum=0.5, max_new_tokens=256, **settings)


def ended(env, rounds):
    """End episodes in four slots with the right answer and leave them finished; the fifth runs on. Return futures."""
    (right,) = env.task.encoding.encode(["2"])[0]
    futures = []
    for number in range(rounds):
        if number:
            env.reset(options={"reset_mask": FOUR})
        env.step([right] * 5)
        futures += env.step([EOS] * 4 + [right])[4]["verdict_future"][:4].tolist()
    return futures


@pytest.mark.parametrize("mask", [None, [True, True, False, False, True]])
def test_the_curriculum_hears_of_all_late_verdicts_when_no_other_slot_runs(mask):
    env = graded()
    env.reset(seed=0)
    ended(env, 64)
    assert env.task.level == 1, "256 successes, of which nobody has asked for one"
    env.reset(options=None if mask is None else {"reset_mask": mask})
    assert env.task.level == 2


def test_the_curriculum_hears_at_any_reset_of_what_was_asked_for_in_the_order_the_episodes_ended():
    env = graded()
    env.reset(seed=0)
    first, *others = ended(env, 64)
    for future in others:
        future.result()
    env.reset(options={"reset_mask": FOUR})
    assert env.task.level == 1, "the first is still to come"
    first.result()
    env.reset(options={"reset_mask": FOUR})
    assert env.task.level == 2


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_pickled_environment_judges_again_what_its_curriculum_has_not_heard(workers):
    env = graded(Arith() if workers else Graded(), verifier_workers=workers)
    env.reset(seed=0)
    asked = ended(env, 64)[:10]
    for future in asked:
        future.result()
    again = pickle.loads(pickle.dumps(env))
    for each in (env, again):
        each.reset(options={"reset_mask": FOUR})
        assert each.task.level == 1
        each.reset()
        assert each.task.level == 2
        each.close()


@pytest.mark.parametrize("asked", [0, 2])
def test_a_copy_of_late_verdicts_tells_all_of_them_in_order_and_knows_who_was_asked_for(asked):
    heard = []
    late = LateVerdicts(Judge(batched()), lambda problem, info: heard.append(problem.prompt))
    problems = [Problem(name, "a") for name in "uvwxyz"]
    first, *others = late.submit(problems[:3], ["a"] * 3)
    first.result()
    late.tell(going=1)
    for future in others[:asked]:
        future.result()
    late = copy.copy(late)
    late.submit(problems[3:], ["a"] * 3)
    late.tell(going=1)
    assert heard == list("uvw"[: 1 + asked])
    late.tell(going=0)
    assert heard == list("uvwxyz")


def letters_then_end(env):
    """End every slot's episode at once; return the infos of the last step."""
    env.step([env.unwrapped.task.encoding.encode(["a"])[0][0]] * env.num_envs)
    return env.step([EOS] * env.num_envs)[-1]


def test_an_environment_nobody_holds_gives_back_its_workers():
    env = late(2, verifier_workers=1)
    env.reset(seed=0)
    infos = env.step([EOS] * 2)[-1]
    assert [future.result(timeout=60)["verdict_status"] for future in infos["verdict_future"]] == ["ok", "ok"]
    pool = weakref.ref(env.task.judge.pool)
    del env, infos
    for _ in range(500):  # the worker's thread lets go of the last verdict a moment after it is there
        gc.collect()
        if pool() is None:
            break
        time.sleep(0.004)
    assert pool() is None


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_the_curriculum_hears_in_every_mode(mode):
    env = late(4, autoreset_mode=mode, curriculum=0.5)
    env.reset(seed=0)
    for _ in range(100):
        letters_then_end(env)
        if mode == "NextStep":
            env.step([EOS] * 4)  # only starts the next episodes
        elif mode == "Disabled":
            env.reset(options={"reset_mask": np.ones(4, dtype=bool)})
    assert env.unwrapped.task.level == 2


def test_an_interrupted_batch_is_judged_by_the_next_who_asks():
    env = late(2, batched(interrupted=True))
    env.reset(seed=0)
    first, second = letters_then_end(env)["verdict_future"]
    with pytest.raises(KeyboardInterrupt):
        first.result()
    assert first.result(timeout=60)["reward"] == second.result(timeout=60)["reward"] == 1.0


def test_a_closed_pool_leaves_nothing_to_wait_for():
    env = late(2, verifier_workers=1, curriculum=0.5)
    env.reset(seed=0)
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        letters_then_end(env)
    env.reset(seed=0)


def test_an_exception_is_raised_once_and_can_be_asked_for():
    env = late(2, batched(broken=True), curriculum=0.5)
    env.reset(seed=0)
    first, second = letters_then_end(env)["verdict_future"]
    assert isinstance(first.exception(), ZeroDivisionError)
    for future in (first, second):
        with pytest.raises(ZeroDivisionError):
            future.result()
    env.reset()
    letters_then_end(env)
    with pytest.raises(ZeroDivisionError):
        env.reset()


def test_a_curriculum_that_is_restored_does_not_hear_of_episodes_from_before():
    env = graded()
    env.reset(seed=0)
    state = env.state_dict()
    ended(env, 64)
    env.load_state_dict(state)
    env.reset()
    assert env.task.level == 1 and env.state_dict()["stream"]["curriculum"]["verdicts"] == []
