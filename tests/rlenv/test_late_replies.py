"""Late replies: slots wait for them while others go on, in logical time, and episodes are what they are without."""

import pickle
from concurrent.futures import Future

import gymnasium as gym
import numpy as np
import pytest
import torch
from dialogues import number_of, talking
from gymnasium.vector import AutoresetMode

import rlenv  # noqa: F401
from agents import Collector, Policy
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier
from verifiers.dialogues import replay
from verifiers.sandbox import pool as pools

EOS, CPU = 1, torch.device("cpu")
modes = pytest.mark.parametrize("mode", list(AutoresetMode))


class Gated:
    """Stands in for the worker processes' threads: a question is answered when somebody waits for it, or never.

    Attributes:
        asked: the first problem's text and the turns of each question, in order.
        taken: the numbers of the questions whose answers were waited for, in order.
    """

    def __init__(self, verifier, *_):
        self.verifier, self.asked, self.taken = verifier, [], []

    def submit(self, question, read):
        number, gate = len(self.asked), self
        problem, turns, out_of_budget = question
        self.asked.append((problem.text, turns))

        class Waited(Future):
            def result(self, timeout=None):
                if not out_of_budget:
                    gate.taken.append(number)
                return replay(gate.verifier, problem, turns, out_of_budget)

        return Waited()

    def close(self):
        pass


@pytest.fixture
def gates(monkeypatch):
    """Return the gates of the environments that are made, which need no worker process."""
    made = []

    def threads(verifier, *_):
        made.append(Gated(pickle.loads(verifier)[1] if isinstance(verifier, bytes) else verifier))
        return made[-1]

    monkeypatch.setattr(pools, "_Threads", threads)
    return made


class Named(Verifier):
    """Problems are numbered; the reply is the problem's letter, so that it says whose it is."""

    alphabet, prompt_length, answer_length, reply_length, max_turns = "abcdefghijklmnop", 1, 3, 1, 3

    def dialogue(self, problem):
        class Name(Dialogue):
            def reply(self, turn):
                return Reply(problem.text, 0.5)

        return Name()


def named(slots, mode=AutoresetMode.DISABLED, **kwargs):
    problems = [Problem(letter) for letter in Named.alphabet]
    settings = {"problems": problems, "test_fraction": 0.0, "verifier_workers": 1, "late_replies": True, **kwargs}
    return gym.make_vec("TextGen-v0", slots, verifier=Named(), autoreset_mode=mode, **settings)


def ending(envs, slots):
    """Return actions that end the turns of these slots, and go on elsewhere."""
    return torch.tensor([EOS if slot in slots else 2 for slot in range(envs.num_envs)])


def text(envs, obs, slot):
    return envs.unwrapped.task.tokenizer.decode(obs["tokens"][slot, : obs["length"][slot]]).replace("<eos>", "$")


def test_the_oldest_eighth_is_taken_in_the_order_asked_when_more_than_half_wait(gates):
    envs = named(16, max_new_tokens=9)
    obs, _ = envs.reset(seed=0)
    whose = [text(envs, obs, slot) for slot in range(16)]
    for slots in ([9], [4, 2], [1, 11, 12], [5, 6]):  # 8 wait, which is half
        *_, infos = envs.step(ending(envs, slots))
    assert gates[0].taken == [] and infos["waiting"].sum() == 8
    obs, rewards, _, _, infos = envs.step(ending(envs, [7]))
    assert gates[0].taken == [0, 1], "two of sixteen: that of slot 9, then those of the next step, by slot"
    assert np.flatnonzero(infos["_appended"]).tolist() == [2, 9] and infos["waiting"].sum() == 7
    assert rewards.nonzero()[:, 0].tolist() == [2, 9]
    for slot in (2, 9):
        assert text(envs, obs, slot).endswith("$" + whose[slot]), "a reply reaches the slot that asked"


@modes
def test_resets_and_restored_states_drop_what_was_asked_before(gates, mode):
    """Waiting slots are not finished ones, which NEXT_STEP restarts; an old reply reaches no new episode."""
    envs = named(8, mode, max_new_tokens=9)
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
        *_, infos = envs.step(ending(envs, [0, 1, 2, 3, 4]))
        first = sum(len(turns) > 0 for _, turns in gates[0].asked) - 5
        assert gates[0].taken[-1] == first, "the first one asked for since"


def test_a_pickled_environment_asks_again(gates):
    envs = named(8, max_new_tokens=9)
    envs.reset(seed=0)
    envs.step(ending(envs, [0, 1]))
    again = pickle.loads(pickle.dumps(envs))
    ours, theirs = (each.step(ending(envs, [2, 3, 4])) for each in (envs, again))
    assert (
        torch.equal(ours[0]["tokens"], theirs[0]["tokens"])
        and ours[0]["length"].tolist() == theirs[0]["length"].tolist()
    )
    assert np.flatnonzero(ours[4]["_appended"]).tolist() == np.flatnonzero(theirs[4]["_appended"]).tolist() == [0]


def test_replies_are_late_only_if_that_is_asked_for_and_there_are_workers():
    assert not talking(2, late_replies=True).metadata["late_replies"]
    assert not gym.make_vec("TextGen-v0", 2, verifier="arith", late_replies=True).metadata["late_replies"]


# Rollouts.


class Scripted(Policy):
    """Acts by what it sees alone, so that an episode is the same however long its replies take."""

    obs_from_actions = True

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def act(self, obs, state, episode_start, deterministic=False, generator=None, playing=None):
        rows = zip(obs["tokens"].tolist(), obs["length"].tolist(), strict=True)
        chances = [number_of(tokens[:length]) for tokens, length in rows]
        actions = torch.tensor([EOS if chance % 3 == 0 else 1 + chance // 3 % 5 for chance in chances])
        return actions, -actions.double(), state


def collected(slots, mode, episodes=60, **kwargs):
    envs = talking(slots, mode, max_turns=5, group_size=3, **kwargs)
    collector, taken, waits = Collector(envs, CPU), [], []

    def on_step(counted, local):
        taken.append(counted)
        waits.append(int(local["infos"].get("waiting", np.zeros(1)).sum()))
        return True

    collector.seed(0)
    rollout = collector.collect(Scripted(), episodes, on_step=on_step)
    envs.close()
    return rollout, sum(taken), sum(waits)


def assert_same(ours, theirs):
    for name in ("actions", "log_probs", "rewards", "mask", "positions", "groups", "terminated", "truncated", "status"):
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    for row, length in enumerate(theirs.positions.where(theirs.mask, 0).amax(1).tolist()):
        tokens = [rollout.observations["tokens"][row, : length + 1] for rollout in (ours, theirs)]
        assert torch.equal(*tokens)
    assert torch.equal(ours.observations["length"], theirs.observations["length"])


@modes
@pytest.mark.parametrize("slots", [1, 5, 16])
def test_a_rollout_with_late_replies_is_the_one_with_immediate_replies(gates, mode, slots):
    """Also in its number of actions: waiting is not one, and the step that brings a reply is not."""
    expected, steps, _ = collected(slots, mode)
    rollout, late_steps, waits = collected(slots, mode, verifier_workers=1, late_replies=True)
    assert_same(rollout, expected)
    assert (waits > 100) == (slots > 1) and (expected.rewards.where(expected.mask, 0)[:, :-1] > 0).any()
    if mode is AutoresetMode.DISABLED:
        assert late_steps == steps == int(expected.mask.sum())


def faulty():
    """Return a verifier of a local class: a worker gets it by value, and need not import this file and torch."""

    class Faulty(Verifier):
        """In the second turn a reply does what the problem says."""

        alphabet, prompt_length, answer_length, reply_length, max_turns = "abcdefgh", 1, 2, 8, 3

        def dialogue(self, problem):
            class Bad(Dialogue):
                replies = iter(["b", {"a": "", "b": None, "c": "a" * (1 << 21), "d": "<eos>"}[problem.text], "over"])

                def reply(self, turn):
                    said = next(self.replies)
                    return Reply(verdict=Verdict(1.0)) if said == "over" else Reply(said + "")

            return Bad()

    return Faulty()


def test_replies_that_fail_end_their_episodes_alone_and_are_counted():
    """Exceptions, floods and what the alphabet lacks, such as control tokens; an empty reply is a reply."""
    settings = {"problems": [Problem(letter) for letter in "abcd"], "test_fraction": 0.0, "verifier_workers": 1}
    envs = gym.make_vec("TextGen-v0", 4, verifier=faulty(), late_replies=True, **settings)
    collector = Collector(envs, CPU)
    rollout = collector.collect(Scripted(), 4)
    envs.close()
    status = dict(zip(rollout.observations["tokens"][:, 0].tolist(), rollout.status.tolist(), strict=True))
    assert status == {2: 0, 3: 2, 4: 2, 5: 2} and collector.statuses == [1, 0, 3, 0] and collector.failure
