"""Several processes are one: the same gradient, the same problems, the same checkpoints, one error for all."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from _rlenv_scripts.completions import blocks
from agent_kinds import fitting, is_taught
from diagonal import diagonal
from tabular import T, make_agent
from tiny_models import ALPHABET, PROMPTS, text_envs, tiny_policy
from updates import sample, some_cut_off

from agents import AGENTS, Agent, Collector, make_envs, processes
from agents.policies.base import weights_digest
from agents.rollouts.envs import seed_of
from agents.training.proximal import PassesAgent
from agents.training.supervised import demonstration_loss, warm_start
from verifiers.function import FunctionVerifier

OPTIONS = {
    "KL in the reward": {"kl_coef": 0.3, "gamma": 0.9},
    "KL in the loss": {"kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "exact", "ent_coef": 0.1},
    "another policy acted": {
        "mismatch": "sequence-truncate",
        "kl_coef": 0.3,
        "kl_in": "loss",
        "kl_estimator": "k3",
        "kl_ratio": "constant",
    },
}
ARITH = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}


@pytest.fixture(scope="module")
def two(two):
    """Return those of the session; a file with a fixture of its own goes to one worker, so that one starts them."""
    return two


def updated(name, options, **more):
    """Return the weights after a real update of an agent of the tiny world, and its metrics."""
    cls = AGENTS[name]
    passes = {"num_epochs": 2, "num_minibatches": 2} if issubclass(cls, PassesAgent) else {}
    longest = {"max_steps": T} if name == "dr-grpo" else {}
    options = fitting(name, options) | ({"estimator": "centred"} if is_taught(name) else {})
    agent = make_agent(cls, 4, episodes_per_update=32, **passes, **longest, **options, **more)
    rollout = some_cut_off(sample())
    if "mismatch" in options:
        rollout.log_probs = rollout.log_probs + 0.3 * torch.sin(torch.arange(rollout.mask.numel())).view_as(
            rollout.mask
        )
    metrics = agent.update(rollout)
    return torch.cat([p.detach().flatten() for p in agent.policy.parameters()]), metrics


def difference(name, options):
    """Return how far several processes' weights are from a single one's after an update, and the metrics of both."""
    together, metrics = updated(name, options, micro_batch_size=2)
    with processes.alone():
        single, expected = updated(name, options)
    assert metrics.keys() == expected.keys()
    return float((together - single).abs().max()), {key: (metrics[key], expected[key]) for key in metrics}


def check_same(ranks, name, options):
    for distance, metrics in ranks(difference, name, options):
        assert distance < 1e-12
        for key, (found, expected) in metrics.items():
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), key


@diagonal("name, options", list(AGENTS), OPTIONS)
def test_two_processes_make_the_update_of_one(two, name, options):
    check_same(two, name, options)


# Episodes.


def text_agent(name="grpo", env_kwargs=ARITH, **settings):
    chosen = {"episodes_per_update": 8, "num_envs": 4, "group_size": 2, "seed": 3, "device": "cpu", **settings}
    return AGENTS[name]("tiny", "TextGen-v0", env_kwargs=env_kwargs, **chosen)


def prompts_of(agent, rollout):
    tokens, lengths = rollout.observations["tokens"], rollout.observations["length"].tolist()
    return [agent.env.task.tokenizer.decode(row[:n]) for row, n in zip(tokens, lengths, strict=True)]


def played(updates, path, begin=True):
    """Return the prompts of each update, the hash of the weights at the end, and the steps counted; save there."""
    agent = text_agent() if begin else Agent.load(path)
    run = agent.updates(total_episodes=8 * updates, reset_num_timesteps=begin)
    prompts = [prompts_of(agent, rollout) for rollout, _ in run]
    agent.save(path)
    return prompts, weights_digest(agent.policy), agent.num_timesteps


def test_the_problems_of_an_update_do_not_depend_on_the_number_of_processes(two, tmp_path):
    """Also where another number goes on."""
    single, _, _ = played(3, tmp_path / "one")
    (first, weights, steps), (second, same_weights, same_steps) = two(played, 2, tmp_path / "two")
    assert first == second == single[:2]
    assert weights == same_weights
    assert steps == same_steps > 0
    assert played(1, tmp_path / "two", begin=False)[0] == single[2:]


def greedy(num_episodes):
    agent = text_agent()
    figures, _ = agent.evaluate(make_envs("TextGen-v0", 4, {**ARITH, "split": "test"}), num_episodes, seed=5)
    return figures


def test_an_evaluation_has_the_figures_of_one_process(two):
    single = greedy(11)
    assert two(greedy, 11) == [single, single]


def cartpole():
    agent = AGENTS["ppo"]("MlpPolicy", "CartPole-v1", episodes_per_update=8, num_envs=4, num_epochs=1, seed=1)
    firsts = [str(rollout.observations[:, 0].tolist()) for rollout, _ in agent.updates(total_episodes=16)]
    return weights_digest(agent.policy), firsts, agent.num_episodes


def test_control_is_played_with_other_seeds_and_trained_alike(two):
    (weights, firsts, episodes), other = two(cartpole)
    assert (weights, firsts, episodes) == other
    assert episodes == 16
    (first, *_) = firsts
    assert len(set(first.replace("]", "").split("["))) > 8, "every episode begins in another state"


def test_slots_of_unequal_shares_have_seeds_of_their_own(monkeypatch):
    shares = [34, 33, 33]
    monkeypatch.setattr(processes, "size", lambda: 3)
    monkeypatch.setattr(processes, "gather", lambda mine: shares)
    seeds = []
    for rank, share in enumerate(shares):
        monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
        first = seed_of(SimpleNamespace(num_envs=share, metadata={}), 7)
        seeds += range(first, first + share)
    assert seeds == list(range(7, 107))


# One error for all.


def failing(rank):
    def work():
        if processes.rank() == rank:
            raise ValueError("the disk is full")
        return processes.rank()

    try:
        return str(processes.together(work))
    except ValueError as error:
        return f"{error} {getattr(error, '__notes__', [])}"


def test_an_error_of_one_process_is_raised_in_all(two):
    assert two(failing, 1) == ["the disk is full ['in process 1']", "the disk is full []"]
    assert two(failing, 2) == ["[0, 1]", "[0, 1]"]


def refused():
    try:
        text_agent(episodes_per_update=6)
    except ValueError as error:
        return str(error)
    return ""


def test_groups_that_cannot_be_dealt_out_are_refused(two):
    expected = "episodes_per_update=6 cannot be divided among 2 processes x group_size=2; use a multiple of 4"
    assert two(refused) == [expected] * 2


def other_weights(path):
    agent = text_agent()
    if processes.rank() == 1:
        next(agent.policy.parameters()).data.add_(1)
    try:
        agent.save(path)
    except RuntimeError as error:
        return str(error)
    return ""


def test_processes_whose_weights_have_come_apart_are_stopped(two, tmp_path):
    assert all(
        "the policy of process 1 is not that of process 0" in said
        for said in two(other_weights, str(tmp_path / "saved"))
    )


@pytest.mark.parametrize("costs", [[1, 1, 1, 1], [9, 1, 1, 1], [1, 1, 1, 9], [5]])
def test_every_row_belongs_to_one_process(monkeypatch, costs):
    for size in (1, 2, 3, 5):
        rows = []
        for rank in range(size):
            monkeypatch.setattr(processes, "size", lambda size=size: size)
            monkeypatch.setattr(processes, "rank", lambda rank=rank: rank)
            own = processes.own_rows(torch.tensor(costs))
            rows += range(len(costs))[own]
        assert rows == list(range(len(costs)))


def imitated():
    """Return how far two processes' weights are from one's after a warm start, and the losses of both."""

    def trained():
        policy = tiny_policy("llama", envs)
        before = demonstration_loss(policy, shown, 3)
        losses = warm_start(policy, lambda size: shown, 3, len(shown), 1e-3, max_grad_norm=0.1, micro_batch_size=2)
        after = demonstration_loss(policy, shown, micro_batch_tokens=20)
        return torch.cat([p.detach().flatten() for p in policy.parameters()]), [before, *losses, after]

    envs = text_envs(num_envs=4)
    with processes.alone():
        collector = Collector(envs, torch.device("cpu"))
        collector.seed(0)
        shown = collector.collect(tiny_policy("llama", envs), 7, torch.Generator())
        assert shown is not None and len(set(shown.lengths.tolist())) > 2
        single, expected = trained()
    together, losses = trained()
    return float((together - single).abs().max()), losses, expected


def test_a_warm_start_is_shared(two):
    for distance, losses, expected in two(imitated):
        assert distance < 1e-12
        assert losses == pytest.approx(expected, rel=1e-12)
        assert losses[-1] < losses[0]


@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_every_problem_is_in_one_block_and_sampled_blocks_are_those_of_one_process(processes):
    planned = blocks({"greedy": 1, "sampled": 500}, 7, processes)
    for mode in ("greedy", "sampled"):
        own = [block for block in planned if block.mode == mode]
        assert [number for block in own for number in range(block.start, block.start + block.count)] == list(range(7))
        assert mode == "sampled" or len(own) >= min(processes, 4), "each process has some"
    assert planned[-4:] == blocks({"greedy": 1, "sampled": 500}, 7)[-4:]


# Bugs after which the processes do not meet again: they end in an error, as no process waits forever.


def split_reward(prompts, completions):
    """Return a reward that depends on the completion for short prompts only."""
    return [len(text) * (len(prompt) < 4) / 8 for prompt, text in zip(prompts, completions, strict=True)]


def refilled():
    """Return the episodes and the weights of updates for some of which DAPO collects several times."""
    world = {"verifier": FunctionVerifier(split_reward, alphabet=ALPHABET), "problems": PROMPTS, "test_fraction": 0.0}
    agent = text_agent("dapo", env_kwargs={**world, "max_new_tokens": 6, "max_prompt_tokens": 8}, max_rounds=3)
    return [(len(rollout), weights_digest(agent.policy)) for rollout, _ in agent.updates(total_episodes=96)]


def test_refilling_is_decided_together(two):
    first, second = two(refilled)
    assert first == second
    assert len({episodes for episodes, _ in first}) > 1


def idle():
    """Return the distance of an update in which a single episode has a gradient, and how many of its rows are here."""

    def step():
        agent = make_agent(AGENTS["reinforce"], 4, episodes_per_update=32, skip_idle_rows=True)
        loss = agent.loss
        agent.loss = lambda batch: passes.append(len(batch)) or loss(batch)
        rollout = sample()
        only = torch.arange(len(rollout)) == 5
        agent.update(replace(rollout, rewards=torch.ones_like(rollout.rewards).where(only[:, None], 0)))
        return torch.cat([p.detach().flatten() for p in agent.policy.parameters()])

    passes = []
    together, own = step(), sum(passes)
    with processes.alone():
        return float((together - step()).abs().max()), own


def test_a_process_may_have_nothing_to_learn(two):
    distances, rows = zip(*two(idle), strict=True)
    assert max(distances) < 1e-12
    assert sorted(rows) == [0, 1]
