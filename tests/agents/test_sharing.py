"""Identity 5: skipping, merging and sharing leave everything as it is, to the last digits; only the work shrinks."""

from dataclasses import replace
from itertools import product

import gymnasium as gym
import pytest
import torch
from diagonal import slow
from identity_checks import EXACT, assert_close, collect, double, gradient
from tiny_models import MODELS, hash_reward, tiny_policy

from agents import GRPO, PPO, RLOO
from agents.language import reading
from agents.rollout import ERROR
from verifiers.function import FunctionVerifier

PROMPTS = ["ab", "ababa", "abaab", "b", "abb", "babab"]
EPISODES, GROUP = 24, 4
SWITCHES = list(product((False, True), repeat=3))  # skip_idle_rows, merge_rows, share_prefixes


models = pytest.mark.parametrize("name", ["gpt2", "llama", slow("mistral")])


def short_envs(slots=8, **kwargs):
    """Return an environment of two letters: few different episodes."""
    settings = {"problems": PROMPTS, "test_fraction": 0.0, "max_prompt_tokens": 5, "max_new_tokens": 4, **kwargs}
    return gym.make_vec("TextGen-v0", slots, verifier=FunctionVerifier(hash_reward, alphabet="ab"), **settings)


def switch(agent, skip, merge, share):
    agent.skip_idle_rows = skip
    agent.policy.merge_rows, agent.policy.share_prefixes = merge, share


def episodes_of(rollout):
    """Return each row's prompt and completion as tuples."""
    prompts, lengths = rollout.observations["tokens"], rollout.observations["length"]
    return [
        (tuple(prompts[i, : lengths[i]].tolist()), tuple(rollout.actions[i, : rollout.lengths[i]].tolist()))
        for i in range(len(rollout))
    ]


def repetitive(policy, envs):
    """Return a rollout with equal episodes, groups that agree and groups that do not, and a verdict not reached."""
    rows = [0, 1, 2, 3, 4, 4, 4, 4, 8, 8, 10, 11, 12, 13, 12, 13, *range(16, EPISODES)]
    rollout = double(collect(policy, envs, EPISODES))
    noise = torch.rand(rollout.mask.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rollout = replace(rollout, log_probs=rollout.log_probs + 0.08 * (noise - 0.5))  # ratios other than 1
    rollout = rollout.select(torch.tensor(rows))
    rollout.rewards[:GROUP] = rollout.rewards.new_zeros(())
    rollout.status[9] = ERROR
    episodes = episodes_of(rollout)
    spread = rollout.returns.view(-1, GROUP).std(1)
    assert len(set(episodes)) <= EPISODES - 6, "some episodes are equal"
    assert len({prompt for prompt, _ in episodes}) <= EPISODES // GROUP, "prompts are shared"
    assert len({len(prompt) for prompt, _ in episodes}) > 2 and rollout.lengths.unique().numel() > 2
    assert (spread == 0).tolist()[:2] == [True, True] and (spread > 0).sum() >= 3, "some groups agree"
    return rollout


EVERYTHING = {"ent_coef": 0.1, "kl_coef": 0.5, "kl_in": "loss", "kl_estimator": "exact"}
AGENTS = {
    "rloo": (RLOO, None, {}),
    "rloo, KL charged": (RLOO, None, {"kl_coef": 0.5}),
    "rloo, k3 in the loss": (RLOO, None, {"kl_coef": 0.5, "kl_in": "loss", "kl_estimator": "k3"}),
    "rloo, exact KL in the loss": (RLOO, None, {"kl_coef": 0.5, "kl_in": "loss", "kl_estimator": "exact"}),
    "rloo, entropy": (RLOO, None, {"ent_coef": 0.1}),
    "grpo": (GRPO, None, {"clip_range": 0.02}),
    "grpo, everything": (GRPO, None, {"clip_range": 0.02, "micro_batch_tokens": 40, **EVERYTHING}),
    "ppo, head": (PPO, "head", {"clip_range": 0.02}),
    "ppo, separate": (PPO, "separate", {"clip_range": 0.02}),
    "ppo, everything": (PPO, "separate", {"clip_range": 0.02, "micro_batch_size": 7, **EVERYTHING}),
}


def agent_of(kind, name, **kwargs):
    """Return an agent that has moved away from its reference, and a rollout for it."""
    cls, critic, settings = AGENTS[kind]
    envs = short_envs(group_size=GROUP)
    policy = tiny_policy(name, envs, temperature=1.3, critic=critic)
    settings = {"episodes_per_update": EPISODES, "max_grad_norm": 1e9, "device": "cpu", **settings, **kwargs}
    if cls is not RLOO:
        settings |= {"num_epochs": 1, "num_minibatches": 1}
    agent = cls(policy, envs, **settings)
    agent.anchor.freeze_reference(policy)
    if agent.anchor.reference is not None:
        with torch.no_grad():
            for parameter in agent.anchor.reference.parameters():
                parameter.mul_(0.9)
    return agent, repetitive(policy, envs)


# The gradient.


EVERYWHERE = [
    *(("grpo, everything", "llama"), ("ppo, everything", "gpt2")),
    *(("rloo, entropy", "gpt2"), ("rloo, k3 in the loss", "llama")),  # who agrees is needed for these
]


@pytest.mark.parametrize(
    ("kind", "name"),
    [*EVERYWHERE, *(slow(*pair) for pair in product(AGENTS, MODELS) if pair not in EVERYWHERE)],
)
def test_gradient_is_the_same_with_every_combination_of_switches_and_in_chunks(kind, name, monkeypatch):
    agent, rollout = agent_of(kind, name)
    switch(agent, False, False, False)
    plain = gradient(agent, rollout)
    scale = plain.abs().max()
    assert scale > 1e-3, "there must be a gradient"
    for switches in SWITCHES[1:]:
        switch(agent, *switches)
        assert_close(gradient(agent, rollout) / scale, plain / scale, EXACT, f"{kind} with {switches}")
    for rows in (1, 5):
        monkeypatch.setattr(reading, "ELEMENTS", rows * agent.policy.vocab_size)
        assert_close(gradient(agent, rollout) / scale, plain / scale, EXACT, f"{kind} in chunks of {rows}")


@pytest.mark.parametrize(
    ("name", "kind", "share"),
    [
        *(("gpt2", "rloo", False), ("gpt2", "ppo, everything", True)),
        *(("llama", "rloo", True), slow("llama", "ppo, everything", False)),
        *(slow("mistral", "rloo", True), slow("mistral", "ppo, everything", False)),
    ],
)
def test_gradient_is_the_same_with_activation_checkpointing(kind, name, share):
    agent, rollout = agent_of(kind, name)
    agent.policy.share_prefixes = share
    assert (agent.policy._reading(rollout).forest is not None) == (share and name != "mistral"), "not within windows"
    plain = gradient(agent, rollout)
    agent.policy.activation_checkpointing = True
    scale = plain.abs().max()
    assert scale > 1e-3, "there must be a gradient"
    assert_close(gradient(agent, rollout) / scale, plain / scale, EXACT, f"{kind} of {name}")


# What is evaluated.


@pytest.mark.parametrize(
    ("name", "critic"),
    [
        *(("gpt2", "head"), ("llama", "separate"), slow("gpt2", "separate"), slow("llama", "head")),
        *(slow("mistral", "head"), slow("mistral", "separate")),
    ],
)
def test_values_are_the_same_row_by_row(name, critic, monkeypatch):
    envs = short_envs(group_size=GROUP)
    policy = tiny_policy(name, envs, temperature=1.3, critic=critic)
    if critic == "separate":  # one that is no copy of the policy
        with torch.no_grad():
            for parameter in policy.critic.parameters():
                parameter.mul_(1.1)
    reference, rollout = tiny_policy(name, envs, seed=1), repetitive(policy, envs)
    found = []
    for merge, share, chunk in product((False, True), (False, True), (5, 1000)):
        policy.merge_rows, policy.share_prefixes = merge, share
        monkeypatch.setattr(reading, "ELEMENTS", chunk * policy.vocab_size)
        with torch.no_grad():
            alone, want = policy.evaluate(rollout), ("entropy", "log_probs", "kl", "score_norms")
            together = policy.evaluate(rollout, want, reference)
            assert tuple(together) == want and tuple(alone) == ("log_probs",)
            assert_close(alone["log_probs"], together["log_probs"], EXACT, "alone and with others")
            found.append((*alone.values(), *together.values(), policy.values(rollout)))
    for others in found[1:]:
        for ours, theirs in zip(others, found[0], strict=True):
            assert theirs[rollout.mask].unique().numel() > 5 and not ours[~rollout.mask].any()
            assert_close(ours, theirs, EXACT, "with and without sharing")


# The work.


def tokens_read(agent, rollout):
    """Return the shapes of what the trunk reads in an update."""
    read = []
    trunk = agent.policy.model.base_model
    handle = trunk.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(tuple(args[0].shape)), with_kwargs=True
    )
    try:
        gradient(agent, rollout)
    finally:
        handle.remove()
    return read


@models
def test_work_shrinks_with_every_switch(name):
    agent, rollout = agent_of("rloo", name)
    work = {}
    for switches in SWITCHES:
        switch(agent, *switches)
        [work[switches]] = tokens_read(agent, rollout)
    live = agent.updater.rows_to_train(agent.updater.with_gradient(agent.prepare(rollout)))
    contexts = [(*prompt, *done[:-1]) for prompt, done in episodes_of(rollout)]
    alive = [contexts[row] for row in live.tolist()]
    assert 0 < len(alive) < EPISODES
    assert work[False, False, False] == (EPISODES, max(map(len, contexts)))
    assert work[True, False, False] == (len(alive), max(map(len, alive)))
    assert work[False, True, False] == (len(set(contexts)), max(map(len, contexts)))
    assert work[True, True, False] == (len(set(alive)), max(map(len, alive)))
    for skip, merge in product((False, True), repeat=2):
        rows, width = work[skip, merge, True]
        merged = work[skip, True, False]
        if name == "mistral":
            assert (rows, width) == work[skip, merge, False], "not in windows"
        else:
            assert rows * width < merged[0] * merged[1]
        assert rows * width >= len({c[: n + 1] for c in (alive if skip else contexts) for n in range(len(c))})
