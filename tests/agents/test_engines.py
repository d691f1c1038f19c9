"""An engine acts in place of a policy: the environment's tokens, the policy's weights, the guard, a rollout ahead."""

import math
import sys
import threading
from dataclasses import replace
from functools import partial

import gymnasium as gym
import numpy as np
import pytest
import torch
from diagonal import diagonal
from dialogues import calling, number_of, talking
from engine_models import EPISODES, SETTINGS, answers, check_replayed, trained
from fake_engine import FakeEngine
from refused import refusal
from tiny_models import move_adapter, tiny_model, tiny_policy

from rlenv import agents
from rlenv.agents import EngineError, processes
from rlenv.agents.engines.base import weights_of
from rlenv.agents.policies.base import weights_digest
from rlenv.agents.training.player import Player
from rlenv.curriculum import Curriculum
from rlenv.verifiers import Problem, Verdict, Verifier


def dialogues(**kwargs):
    return talking(EPISODES, group_size=4, **kwargs)


def made(envs=None, faults=None, policy=None, cls=agents.GRPO, **settings):
    envs = answers() if envs is None else envs
    policy = policy or tiny_policy("llama", envs, 0.7, dtype="float32")
    return cls(policy, envs, engine=FakeEngine(policy, **faults or {}), **SETTINGS | settings)


@pytest.mark.parametrize("make", [talking, calling])
def test_episodes_are_what_single_steps_make(make):
    """With replies, results of a tool, failed calls, stop strings, parts of turns, surplus tokens, and in any order."""
    agent = made(make(10), {"short": 3, "surplus": 2, "shuffles": True}, cls=agents.Reinforce, episodes_per_update=20)
    check_replayed(agent, make, 20, turns=30, calls=7, errors=1)


def test_weights_are_sent_whole_once_and_adapters_merged():
    envs = answers()
    policy = tiny_policy("llama", envs, dtype="float32", lora_rank=2)
    plain = dict(weights_of(policy))
    assert plain.keys() == dict(tiny_policy("llama", envs, dtype="float32").model.named_parameters()).keys()
    move_adapter(policy)
    changed = {name for name, weight in weights_of(policy) if not torch.equal(weight, plain[name])}
    assert changed and all("proj" in name for name in changed)
    assert all(torch.equal(weight, plain[name]) for name, weight in weights_of(policy, merges=False))


def test_tied_weights_are_sent_under_both_names_and_padded_ones_without_what_pads_them():
    policy = tiny_policy("gpt2", answers())
    sent = dict(weights_of(policy))
    assert sent.keys() - dict(policy.model.named_parameters()).keys() == {"lm_head.weight"}
    assert torch.equal(sent["lm_head.weight"], sent["transformer.wte.weight"])
    spaces = answers().single_observation_space, answers().single_action_space
    padded = agents.LanguageModelPolicy(*spaces, tiny_model("llama", 14))
    rows, cut = ({name: len(weight) for name, weight in weights_of(padded, cuts=cuts)} for cuts in (False, True))
    changed = {name: (rows[name], cut[name]) for name in rows if rows[name] != cut[name]}
    assert changed == {"model.embed_tokens.weight": (14, 10), "lm_head.weight": (14, 10)}


FAULTS = {
    "no sync": {"sent": ""},
    "half of the tensors": {"sent": "layers.0"},
    "old prefixes": {"keeps_prefixes": True},
    "another temperature": {"temperature": 1.3},
}


@diagonal("name, staleness", list(FAULTS), [0, 1])
def test_the_guard_sends_the_weights_again_and_then_ends_the_run(name, staleness):
    agent = made(faults=FAULTS[name], staleness=staleness)
    with pytest.raises(EngineError, match=r"differ by .* after the weights were sent again"), pytest.warns(UserWarning):
        trained(agent, 4)
    late = name != "another temperature"  # at first the engine has the weights it was made with
    assert agent.num_updates == late * (1 + staleness) and not agent.updating
    assert agent.player.dropped == 2


def test_an_unanswered_request_is_refused():
    agent = made()
    write = agent.engine.write
    agent.engine.write = lambda requests: list(write(requests))[1:]
    refusal(partial(trained, agent, 1), f"left 1 of {EPISODES} requests", kind=EngineError)


UNCHECKED = 4  # the place of an episode that is not among the eight of the guard


def spoiling(engine, **changes):
    """Have an engine send one answer of each round with these attributes, given functions of the present ones."""
    write = engine.write

    def writing(requests):
        for written in write(requests):
            at = written.place == UNCHECKED
            yield replace(written, **{n: f(getattr(written, n)) for n, f in changes.items()}) if at else written

    engine.write = writing


def ending(value):
    return lambda values: [*values[:-1], value]


SPOILED = {  # what one answer of a round has instead of its own; what the line names beside the request
    "nan": ({"log_probs": ending(math.nan)}, "log-probability nan"),
    "beyond float32": ({"log_probs": ending(-1e39)}, r"log-probability -1e\+39"),
    "a probability": ({"log_probs": lambda given: np.exp(given)}, "log-probability 0.*at most 0"),
    "a list of lists": ({"log_probs": lambda given: [[x] for x in given]}, "log-probabilities that are not numbers"),
    "one too many": ({"log_probs": lambda given: [-1.0, *given]}, "tokens with .* log-probabilities"),
    "a fraction": ({"tokens": ending(1.5)}, "tokens that are not whole numbers.*1.5"),
    "below the vocabulary": ({"tokens": ending(-1)}, "token -1.*0 to 9"),
    "beyond the vocabulary": ({"tokens": ending(99)}, "token 99.*0 to 9"),
    "no token": ({"tokens": lambda _: [], "log_probs": lambda _: []}, "0 tokens"),
    "a place again": ({"place": lambda _: 0}, "two answers to request 1 of 12"),
    "a place before all": ({"place": lambda _: -1}, "request 0"),
    "a place behind all": ({"place": lambda _: EPISODES}, "request 13"),
    "a word for a place": ({"place": lambda _: "x"}, "'x'"),
}


@pytest.mark.parametrize(("name", "greedy"), [*((name, False) for name in SPOILED), ("nan", True)])
def test_one_answer_that_cannot_be_ends_the_run_whether_the_guard_sees_it_or_not(name, greedy):
    agent, (changes, said) = made(), SPOILED[name]
    spoiling(agent.engine, **changes)
    with pytest.raises(EngineError, match=said) as refused:
        agent.evaluate(answers(), EPISODES) if greedy else trained(agent, 1)
    line = str(refused.value)
    assert "place" in changes or f"request {UNCHECKED + 1} of {EPISODES}" in line
    assert "\n" not in line and len(line) < 600


def test_a_log_probability_above_0_by_rounding_is_0():
    """Kernels that subtract two large numbers send 1e-6 for a certain token."""
    agent = made()
    spoiling(agent.engine, log_probs=ending(1e-6))
    rollout = agent.collector.collect(agent.player, EPISODES, torch.Generator().manual_seed(0))
    last = rollout.log_probs[UNCHECKED, : rollout.lengths[UNCHECKED]][-1]
    assert last == 0 and (rollout.log_probs <= 0).all()


def test_greedy_evaluation_is_that_of_our_own_decoder():
    agent, played = made(), []
    trained(agent, 2)
    for player in (agent.player, Player(agent)):
        agent.player = player
        figures, rollout = agent.evaluate(answers(), EPISODES, seed=3)
        played.append((figures, rollout.actions.where(rollout.mask, 0).tolist()))
    assert played[0] == played[1]


def test_several_processes_need_a_server(monkeypatch):
    monkeypatch.setitem(sys.modules, "vllm", sys)  # any module
    monkeypatch.setattr(processes, "size", lambda: 2)
    make = partial(agents.GRPO, "tiny", answers(), engine="vllm")
    refusal(make, "2 processes need one engine that all of them ask: pass engine_url")


def test_a_wrapper_that_cannot_step_some_slots_is_refused():
    envs = dialogues()
    stepping = envs.step
    envs.step = lambda actions: stepping(actions)
    refusal(partial(trained, made(envs), 1), "cannot step some of its slots")


def test_a_rollout_is_written_while_the_update_before_it_runs():
    """Each is of the weights before the last update; at the end none is left over."""
    agent = made(staleness=1)
    started, update, write = threading.Event(), agent.update, agent.engine.write

    def writing(requests):
        started.set()
        return write(requests)

    def updating(rollout):
        if agent.num_updates < 3:
            assert started.wait(60), "nothing is written while the update runs"
        started.clear()
        return update(rollout)

    agent.engine.write, agent.update = writing, updating
    metrics = trained(agent, 4)
    assert agent.engine.loads == 4
    assert [each["train/engine_dropped"] for each in metrics] == [0.0] * 4
    assert metrics[0]["train/mismatch_kl"] < 1e-9 < metrics[1]["train/mismatch_kl"]


AHEAD = {"staleness": 1, "num_minibatches": 2}


def in_order(agent, first):
    """Let what runs at once run one after the other: the rollout that is written ahead, or the update, is first."""
    update, play, updated = agent.update, agent.player.play, threading.Event()

    def updating(rollout):
        if first == "rollout":
            agent.player.wait()
        found = update(rollout)
        updated.set()
        return found

    def playing(*args):
        if first == "update" and threading.current_thread() is not threading.main_thread():
            assert updated.wait(60)
        updated.clear()
        return play(*args)

    agent.update, agent.player.play = updating, playing
    return agent


def test_the_order_of_mini_batches_goes_on_where_a_rollout_written_ahead_is_dropped(tmp_path):
    """The place before that rollout is put back, not the order that an update has drawn since."""
    agent = made(**AHEAD)
    for _ in agent.updates(total_episodes=EPISODES * 3):
        if agent.num_updates == 2:
            agent.save(tmp_path / "saved")
            break
    drawn = made(**AHEAD).shuffle_generator
    for _ in range(2):
        torch.randperm(EPISODES, generator=drawn)
    again = agents.GRPO.load(tmp_path / "saved", env=answers(), continue_env=True, engine=FakeEngine(agent.policy))
    for each in (agent, again):
        assert torch.equal(each.shuffle_generator.get_state(), drawn.get_state())


def test_a_rollout_of_the_weights_before_trains_without_a_correction():
    """The gap between acting and training is then by right, and no bug that would have to end the run."""
    agent = made(staleness=1, mismatch="none", max_grad_norm=1e9)
    metrics = trained(agent, 4)
    assert metrics[0]["train/logp_gap_max"] < 1e-3 and metrics[-1]["train/logp_gap_max"] > 0.05
    assert agent.num_updates == 4


class Rising(Verifier):
    """Three levels, whose problems say which; most answers are right."""

    alphabet, levels, prompt_length, answer_length = "abcd", 3, 1, 4

    def sample_at(self, rng, level):
        return Problem("abc"[level - 1])

    def verify(self, problem, completion):
        return Verdict(float(number_of(problem.text, completion) % 4 > 0))


def rising():
    """Return an environment whose curriculum rises with what the policy says."""
    envs = gym.make_vec("TextGen-v0", EPISODES, verifier=Rising(), curriculum=0.6, group_size=4)
    envs.unwrapped.task.stream.curriculum = Curriculum([1, 2, 3], 0.6, window=12)
    return envs


def test_what_is_trained_does_not_depend_on_which_of_both_threads_is_faster():
    """Neither episodes of several rounds, nor the levels of a curriculum, nor the order of mini-batches."""
    ways = []
    for first in ("rollout", "update"):
        agent = in_order(made(rising(), cls=agents.DAPO, max_rounds=2, **AHEAD), first)
        updates = agent.updates(total_episodes=4 * EPISODES)
        ways.append([(rollout.observations["tokens"].tolist(), metrics) for rollout, metrics in updates])
    one, other = ways
    assert one == other and one[0][1]["train/approx_kl"] > 0 == one[-1][1]["train/engine_dropped"]
    assert {len(rows) for rows, _ in one} == {2 * EPISODES}
    assert {each[0] for rows, _ in one for each in rows} == {2, 3, 4}, "every level"


def test_an_evaluation_between_updates_changes_nothing():
    """It sends the present weights, while the rollout that was written ahead is of those before."""
    found = []
    for evaluates in (False, True):
        agent, metrics = made(staleness=1), []
        for _, figures in agent.updates(total_episodes=3 * EPISODES):
            metrics.append(figures)
            if evaluates:
                agent.evaluate(answers(), EPISODES, seed=3)
        found.append((metrics, weights_digest(agent.policy)))
    assert found[0] == found[1] and found[0][0][-1]["train/engine_dropped"] == 0


def test_a_resumed_run_asks_for_the_same(tmp_path):
    """Of the rollout that was written ahead nothing is kept: it is written again, with the weights as they are."""
    first = made(staleness=1)
    trained(first, 1)
    first.save(tmp_path / "saved")
    asked = len(first.engine.rounds)
    trained(first, 2, reset_num_timesteps=False)
    anew = {"engine": FakeEngine(first.policy), "staleness": 1}
    again = agents.GRPO.load(tmp_path / "saved", env=answers(), continue_env=True, **anew)
    trained(again, 2, reset_num_timesteps=False)
    assert first.engine.rounds[asked:] == again.engine.rounds
    assert weights_digest(first.policy) == weights_digest(again.policy)


def test_a_checkpoint_during_a_rollout_ahead_begins_before_it(tmp_path):
    """The resumed run asks for the same turns, of which it writes others: with the weights as they are."""
    agent = made(staleness=1)
    for _ in agent.updates(total_episodes=4 * EPISODES):
        if agent.num_updates == 2:
            agent.save(tmp_path / "saved")
    again = agents.GRPO.load(tmp_path / "saved", env=answers(), continue_env=True, engine=FakeEngine(agent.policy))
    trained(again, 2, reset_num_timesteps=False)
    assert again.num_updates == agent.num_updates == 4
    assert agent.engine.rounds[2] == again.engine.rounds[0] != []


def test_a_loop_that_is_left_early_goes_back_to_before_the_rollout_ahead():
    asked = []
    for stops in (False, True):
        agent = made(dialogues(), staleness=1)
        for _ in agent.updates(total_episodes=(4 if stops else 2) * EPISODES):
            if agent.num_updates == 2:
                break
        before = len(agent.engine.rounds)
        trained(agent, 1, reset_num_timesteps=False)
        asked.append([(request.context, request.seed) for request in agent.engine.rounds[before]])
        assert agent.player.dropped == stops
    assert asked[0] == asked[1]


def test_each_request_has_a_seed_of_its_own():
    agent = made(dialogues(), {"short": 2})
    trained(agent, 2)
    seeds = [request.seed for requests in agent.engine.rounds for request in requests]
    assert len({*seeds}) == len(seeds) > 100


def test_what_is_dropped_counts_nowhere():
    agent = made()
    load, calls = agent.engine.load, []

    def loading(policy):
        calls.append(policy)
        if len(calls) != 2:
            load(policy)

    agent.engine.load = loading
    with pytest.warns(UserWarning, match="the weights are sent again"):
        rollouts, metrics = zip(*agent.updates(total_episodes=3 * EPISODES), strict=True)
    assert [each["train/engine_dropped"] for each in metrics] == [0, 1, 1]
    assert agent.num_timesteps == sum(int(rollout.lengths.sum()) for rollout in rollouts)
    assert agent.num_episodes == 3 * EPISODES and max(each["train/engine_gap"] for each in metrics) < 1e-5


def test_the_guard_hears_of_the_episodes_of_other_processes(monkeypatch):
    def gather(value):
        of_the_guard = isinstance(value, tuple) and isinstance(value[0], float)
        return [value, (5.0, 50)] if of_the_guard else [value]

    monkeypatch.setattr(processes, "gather", gather)
    with pytest.raises(EngineError, match="other weights"), pytest.warns(UserWarning):
        trained(made(), 1)


def test_the_mode_of_weights_follows_the_engine_and_not_the_checkpoint(tmp_path):
    """A checkpoint keeps what was given."""
    for given, plain, through in ((None, None, "token-truncate"), ("none", None, None), ("token-mask",) * 3):
        agent = made(mismatch=given)
        assert agent.mismatch_mode == through
        agent.save(tmp_path / f"{given}")
        for engine, expected in ((None, plain), (agent.engine, through)):
            loaded = agents.GRPO.load(tmp_path / f"{given}", env=answers(), engine=engine)
            assert (loaded.mismatch, loaded.mismatch_mode) == (given, expected)
