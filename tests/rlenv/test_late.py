"""Judging, at once or late: verdicts as futures in the infos, and replies for which slots wait, in logical time.

Verifiers of local classes go to worker processes by value, which then need not import this file and torch.
"""

import math
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from rlenv.judge import Exchange, Judge
from rlenv.vector_env import TextGenVectorEnv, make_vector_env
from rlenv.verifiers import Dialogue, Execution, Isolated, Problem, Reply, Turns, Verdict, Verifier
from rlenv.verifiers.dialogues.tools import WithTools
from rlenv.verifiers.function import FunctionVerifier

EOS, PAYS = 1, 3  # the end, and the letter for which `batched` pays
SUM = Problem("12+34=", "46")


def batched(broken=False, wordy=False, interrupted=False):
    class Batched(Verifier):
        """Two levels, three kinds of verdict, judged in batches; notes the size of each batch."""

        alphabet, prompt_length, answer_length, levels = "xabc", 2, 2, 2
        execution = Execution(prefers_batches=True)

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
                "a": Verdict(1.0, {"length": "one" if wordy else 1.0}),
                "b": Verdict(0.0, status="timeout", reason="slow"),
                "c": Verdict(0.0, status="not_applicable"),
            }
            return [verdicts.get(text, Verdict(0.0)) for text in completions]

    return Batched()


def late(slots, verifier=None, **settings):
    settings = {"verifier": verifier or batched(), "late_verdicts": True, "test_fraction": 0.0, **settings}
    return make_vector_env(num_envs=slots, **settings)


def ended(env, letters=(PAYS,) * 4, seed=None):
    """Start all slots, say a letter in each and end them; return the rewards and the infos of the last step."""
    env.reset(seed=seed)
    env.step([*letters][: env.num_envs])
    _, rewards, over, _, infos = env.step([EOS] * env.num_envs)
    assert over.all()
    return rewards.tolist(), infos


def futures(env, *letters):
    return ended(env, *letters)[1]["verdict_future"].tolist()


# Verdicts.


def test_a_verifier_that_prefers_batches_judges_once_when_the_first_result_is_asked_for():
    env = late(3)
    found = [future for _ in range(2) for future in futures(env, [3, 4, 5])]
    assert env.task.verifier.sizes == [] and not any(future.done() for future in found)
    with ThreadPoolExecutor(4) as threads:
        rewards = list(threads.map(lambda future: future.result()["reward"], found))
    assert rewards == [1.0, 0.0, 0.0] * 2
    assert env.task.verifier.sizes == [6]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_failing_verifier_fails_its_verdict_alone_and_no_future_raises(workers):
    env = late(3, batched(broken=True), flag_errors=True, verifier_workers=workers)
    rewards, infos = ended(env, [3, 4, 5])
    assert all(map(math.isnan, rewards)) and not infos["verdict_future"][0].cancel()
    results = [future.result(timeout=60) for future in infos["verdict_future"]]
    assert [result["verdict_status"] for result in results] == ["ok", "error", "not_applicable"]
    assert [result["verifier_failed"] for result in results] == [False, True, False]
    assert "broken" in results[1]["verdict_reason"] and results[2]["verdict_reason"].startswith("prompt ")
    assert (results[0]["reward"], results[0]["verdict"], results[0]["level"]) == (1.0, {"length": 1.0}, 1)
    env.close()


def test_a_part_that_is_not_a_number_leaves_nobody_waiting():
    with pytest.raises(ValueError, match="one"):
        futures(late(1, batched(wordy=True)))[0].result(timeout=60)


def test_an_exception_can_be_asked_for_and_ends_one_reset():
    env = late(2, batched(broken=True), curriculum=0.5)
    first, second = futures(env)
    assert isinstance(first.exception(), ZeroDivisionError)
    for future in (first, second):
        with pytest.raises(ZeroDivisionError):
            future.result()
    with pytest.raises(ZeroDivisionError):
        env.reset()
    env.reset()


def test_an_interrupted_batch_is_judged_by_the_next_who_asks():
    first, second = futures(late(2, batched(interrupted=True)))
    with pytest.raises(KeyboardInterrupt):
        first.result()
    assert first.result(timeout=60)["reward"] == second.result(timeout=60)["reward"] == 1.0


# What the curriculum hears: its first level is mastered after 256 successes.


def test_a_curriculum_that_is_restored_does_not_hear_of_episodes_from_before():
    env = late(2, curriculum=0.5)
    env.reset(seed=0)
    state = env.state_dict()
    for heard in (2, 0):
        futures(env)
        if not heard:
            env.load_state_dict(state)
        env.reset()
        assert len(env.state_dict()["stream"]["curriculum"]["verdicts"]) == heard


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_curriculum_hears_where_slots_restart_by_themselves(mode):
    env = late(4, autoreset_mode=mode, curriculum=0.5)
    env.reset(seed=0)
    for _ in range(100):
        env.step([PAYS] * 4)
        env.step([EOS] * 4)
        if mode == "NextStep":
            env.step([EOS] * 4)  # only starts the next episodes
    assert env.unwrapped.task.stream.curriculum.level == 2


class Paying(Dialogue):
    def reply(self, turn):
        return Reply(verdict=Verdict(1.0))


@pytest.mark.parametrize(("late_verdicts", "talks"), [(True, False), (False, False), (False, True)])
def test_the_level_stays_the_same_within_a_rollout(late_verdicts, talks):
    """However the verdicts come: the processes of a training that has several hear of them after it."""
    verifier = batched()
    if talks:
        type(verifier).dialogue = lambda self, problem: Paying()
    env = late(4, verifier, late_verdicts=late_verdicts, curriculum=0.5)
    env.reset(seed=0)
    for _ in range(100):
        env.step([PAYS] * 4)
        env.step([EOS] * 4)
        env.reset(options={"reset_mask": np.ones(4, dtype=bool)})
    assert env.task.stream.curriculum.level == 1
    env.reset()
    assert env.task.stream.curriculum.level == 2


# Replies. That episodes are the same with them is `laws/test_environment.py`.


def named(slots, mode=AutoresetMode.DISABLED):
    class Named(Verifier):
        """The reply is the problem's letter, so that it says whose it is."""

        alphabet, prompt_length, answer_length, turns = "abcdefghijklmnop", 1, 9, Turns(3, reply_length=1)

        def dialogue(self, problem):
            class Name(Dialogue):
                def reply(self, turn):
                    return Reply(problem.text, 0.5)

            return Name()

    settings = {"problems": [*Named.alphabet], "test_fraction": 0.0, "verifier_workers": 1, "late_replies": True}
    return gym.make_vec("TextGen-v0", slots, verifier=Named(), autoreset_mode=mode, **settings)


def ending(envs, slots):
    """Return actions that end the turns of these slots, and go on elsewhere."""
    return torch.tensor([EOS if slot in slots else 2 for slot in range(envs.num_envs)])


def check_whose(obs, slots):
    for slot in slots:
        tokens, length = obs["tokens"][slot], obs["length"][slot]
        assert tokens[length - 1] == tokens[0], "the reply names the problem of the slot"


def test_the_oldest_eighth_is_taken_in_the_order_asked_when_more_than_half_wait():
    envs = named(16)
    envs.reset(seed=0)
    for slots in ([9], [4, 2], [1, 11, 12], [5, 6]):  # 8 wait, which is half
        *_, infos = envs.step(ending(envs, slots))
        assert "appended" not in infos
    assert infos["waiting"].sum() == 8
    obs, rewards, _, _, infos = envs.step(ending(envs, [7]))
    assert np.flatnonzero(infos["_appended"]).tolist() == [2, 9], "that of slot 9, then those of the next step, by slot"
    assert rewards.nonzero()[:, 0].tolist() == [2, 9] and infos["waiting"].sum() == 7
    check_whose(obs, [2, 9])
    envs.close()


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_resets_and_restored_states_drop_what_was_asked_before(mode):
    """Waiting slots are not finished ones, which NEXT_STEP restarts; an old reply reaches no new episode."""
    envs = named(8, mode)
    envs.reset(seed=0)
    state = envs.unwrapped.state_dict()
    envs.step(ending(envs, [0, 1]))
    obs, *_, infos = envs.step(torch.full((8,), 4))
    assert "_group" not in infos and infos["waiting"].tolist() == [True, True] + [False] * 6
    if mode is AutoresetMode.DISABLED:
        obs, _ = envs.reset(options={"reset_mask": np.arange(8) == 0})
        assert obs["length"].tolist() == [1, 2] + [3] * 6
        obs, *_, infos = envs.step(torch.full((8,), 4))
        assert infos["waiting"].tolist() == [False, True] + [False] * 6 and obs["length"][0] == 2
    for again in (lambda: envs.reset(), lambda: envs.unwrapped.load_state_dict(state) or envs.reset()):
        again()
        *_, infos = envs.step(torch.full((8,), 4))
        assert "waiting" not in infos
        obs, *_, infos = envs.step(ending(envs, [0, 1, 2, 3, 4]))
        assert np.flatnonzero(infos["_appended"]).tolist() == [0], "the first one asked for since"
        check_whose(obs, [0])
    envs.close()


# The judge.


@pytest.mark.parametrize(("rewards", "workers"), [([], 0), ([1.0, 1.0, 1.0], 1)])
def test_another_number_of_rewards_is_never_flagged(rewards, workers):
    function = FunctionVerifier(lambda completions: rewards)
    for verifier in (function, WithTools(function, ["calculator"])):
        pool = Isolated(verifier, workers) if workers else None
        judge, said = Judge(verifier, pool, flag_errors=True), [Exchange(SUM, False, [], ["46"])] * 2
        wrong = rf"returned {len(rewards)} rewards for [12] completion"
        with pytest.raises(ValueError, match=wrong):
            judge([SUM] * 2, ["46", "47"])
        with pytest.raises(ValueError, match=wrong):
            judge.replies(said)
        if pool is not None:
            pool.close()


def test_a_bug_of_the_verifier_is_not_swallowed_unless_errors_are_flagged():
    class HostileError(Exception):
        def __str__(self):
            raise RuntimeError("cannot be shown")

    class Broken(Verifier):
        def verify(self, problem, completion):
            raise HostileError

    env = TextGenVectorEnv(1, verifier=Broken(), problems=["a"], test_fraction=0.0, max_new_tokens=1)
    env.reset(seed=0)
    with pytest.raises(HostileError):
        env.step([2])
    assert env.step([2])[0]["length"].tolist() == [2], "its episode is over"
    [verdict] = Judge(Broken(), flag_errors=True)([SUM], ["46"])
    assert verdict.status == "error" and verdict.reason.startswith("HostileError (test_late.py:")
    [verdict] = Judge(FunctionVerifier(lambda completions: sys.exit(3)), flag_errors=True)([SUM], ["46"])
    assert verdict.reason.startswith("SystemExit: 3 (test_late.py:"), "it ends the program of nobody"


def test_replies_are_asked_for_together_and_the_end_of_the_process_waits_for_none_that_was_given_up():
    """A reply may take as long as a server that is away: after Ctrl-C nobody reads it."""
    gone, asked = threading.Event(), threading.Barrier(3)  # of both replies and this test

    class Serving(Verifier):
        execution = Execution(waits=True)

        def dialogue(self, problem):
            dialogue = Dialogue()
            dialogue.reply = lambda turn: asked.wait(60) >= 0 and gone.wait(60) and Reply("")
            return dialogue

    before = set(threading.enumerate())
    exchanges = [Exchange(Problem(f"{row}"), False, [], ["a"]) for row in range(2)]
    beside = threading.Thread(target=Judge(Serving()).replies, args=(exchanges,))
    beside.start()
    asked.wait(60)
    started = set(threading.enumerate()) - before - {beside}
    gone.set()
    beside.join()
    assert started and all(thread.daemon for thread in started)
