"""The gradient of an update does not depend on how the rows are laid out, read, shared or split."""

import copy
import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from diagonal import slow
from identity_checks import EXACT, GROUP, assert_close, collect, double, gapped, padded
from tiny_models import text_envs, tiny_policy

from rlenv._status import ERROR
from rlenv.agents import GRPO, PPO, RLOO, ReinforceBaseline
from rlenv.agents.language import policy, reading
from rlenv.agents.training.update import rows_to_train, with_gradient
from rlenv.tokenizer import character_tokenizer

EPISODES = 24
SWITCHES = list(product((False, True), repeat=3))  # skip_idle_rows, merge_rows, share_prefixes
ALONE_AND_TOGETHER = [each for each in SWITCHES if sum(each) in (1, 3)]
MIXED = {"ent_coef": 0.1, "kl_coef": 0.5, "kl_in": "loss"}
ONE_STEP = {"num_epochs": 1, "num_minibatches": 1, "clip_range": 0.02}
KINDS = {  # agent, critic, settings; test_updates.py has every agent
    "batch mean": (ReinforceBaseline, None, {"baseline": "batch-mean", "gamma": 0.9, "ent_coef": 0.1}),
    "value": (ReinforceBaseline, "head", {"baseline": "value", **MIXED, "kl_estimator": "k3"}),
    "rloo": (RLOO, None, {}),
    "grpo, everything": (GRPO, None, {**ONE_STEP, **MIXED, "kl_estimator": "exact"}),
    "ppo, everything": (PPO, "separate", {**ONE_STEP, **MIXED, "kl_estimator": "exact"}),
}
FAST = [("value", "gpt2", True), ("rloo", "llama", True), ("grpo, everything", "mistral", False)]  # last: with replies
EVERY = product(KINDS, ("gpt2", "llama", "mistral"), (False, True))


def short_envs():
    """Return an environment of two letters: few different episodes."""
    settings = {"problems": ["ab", "ababa", "abaab", "b", "abb", "babab"], "max_prompt_tokens": 5, "max_new_tokens": 15}
    return text_envs(8, group_size=GROUP, tokenizer=character_tokenizer("ab"), **settings)


def repetitive(rollout):
    """Return a rollout with equal episodes, groups that agree and groups that do not, and a verdict not reached."""
    rows = [0, 1, 2, 3, 4, 4, 4, 4, 8, 8, 10, 11, 12, 13, 12, 13, *range(16, EPISODES)]
    noise = torch.rand(rollout.mask.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rollout = replace(double(rollout), log_probs=rollout.log_probs + 0.08 * (noise - 0.5))  # ratios other than 1
    rollout = rollout.select(torch.tensor(rows))
    rollout.rewards[:GROUP] = 0
    rollout.status[9] = ERROR
    spread = rollout.returns.view(-1, GROUP).std(1)
    assert (spread == 0).tolist()[:2] == [True, True] and (spread > 0).sum() >= 3, "some groups agree"
    assert rollout.lengths.unique().numel() > 2
    return rollout


def agent_of(kind, name, replies=False):
    """Return an agent that has moved away from its reference, and a rollout for it."""
    cls, critic, settings = KINDS[kind]
    envs = short_envs()
    policy = tiny_policy(name, envs, temperature=1.3, critic=critic)
    agent = cls(policy, envs, episodes_per_update=EPISODES, max_grad_norm=1e9, device="cpu", **settings)
    agent.anchor.freeze_reference(policy)
    if agent.anchor.reference is not None:
        with torch.no_grad():
            for parameter in agent.anchor.reference.parameters():
                parameter.mul_(0.9)
    return agent, repetitive(gapped(policy) if replies else collect(policy, envs, EPISODES))


def gradient(agent, rollout):
    """Return the gradient of a real update, flat; the agent's weights are put back."""
    weights = copy.deepcopy(agent.policy.state_dict())
    optimizer = copy.deepcopy(agent.optimizer.state_dict())
    agent.update(rollout)
    parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in agent.policy.parameters() if p.requires_grad]
    flat = torch.cat([part.flatten() for part in parts]).clone()
    agent.policy.load_state_dict(weights)
    agent.optimizer.load_state_dict(optimizer)
    return flat


def switch(agent, skip, merge, share):
    agent.skip_idle_rows = skip
    agent.policy.merge_rows, agent.policy.share_prefixes = merge, share


def poisoned(rollout):
    """Return the rollout with junk in its masked cells."""
    junk = {"actions": 2, "log_probs": torch.nan, "rewards": torch.nan}
    junk |= {} if rollout.positions is None else {"positions": 19}
    return replace(rollout, **{key: getattr(rollout, key).where(rollout.mask, value) for key, value in junk.items()})


def check(agent, plain, rollout, what):
    """Compare with the plain gradient; the gap is relative to its largest entry."""
    scale = plain.abs().max()
    assert scale > 1e-3, "there must be a gradient"
    assert_close(gradient(agent, rollout) / scale, plain / scale, EXACT, what)


@pytest.mark.parametrize(("kind", "name", "replies"), [*FAST, *(slow(*each) for each in EVERY if each not in FAST)])
def test_gradient_does_not_depend_on_the_layout(kind, name, replies, monkeypatch):
    monkeypatch.setattr(reading, "WORTH_IT", 100.0)  # a forest, however little is shared
    agent, rollout = agent_of(kind, name, replies)
    switch(agent, False, False, False)
    plain = gradient(agent, rollout)
    order = torch.randperm(len(rollout), generator=torch.Generator().manual_seed(0))
    check(agent, plain, rollout.select(order), "row order")
    check(agent, plain, padded(rollout), "padding")
    assert torch.equal(gradient(agent, poisoned(rollout)), plain), "masked cells"
    for switches in ALONE_AND_TOGETHER:
        switch(agent, *switches)
        check(agent, plain, rollout, f"skip, merge, share: {switches}")
    for size, budget in ((3, None), (None, 30)):
        agent.micro_batch_size, agent.micro_batch_tokens = size, budget
        check(agent, plain, padded(rollout), f"micro-batches of {size} rows, {budget} tokens")
    agent.micro_batch_size = agent.micro_batch_tokens = None
    agent.policy.activation_checkpointing = True
    check(agent, plain, rollout, "activation checkpointing")
    for rows in (1, 5):
        monkeypatch.setattr(policy, "ELEMENTS", rows * agent.policy.vocab_size)
        check(agent, plain, rollout, f"chunks of {rows}")


# The work shrinks.


@pytest.mark.parametrize("name", ["gpt2", "llama", slow("mistral")])
def test_work_shrinks_with_every_switch(name):
    agent, rollout = agent_of("rloo", name)
    work, read = {}, []
    agent.policy.model.base_model.register_forward_pre_hook(
        lambda module, args, kwargs: read.append(tuple(args[0].shape)), with_kwargs=True
    )
    for switches in SWITCHES:
        switch(agent, *switches)
        gradient(agent, rollout)
        work[switches] = read.pop()
        assert not read
    tokens, length = rollout.observations["tokens"], rollout.observations["length"]
    contexts = [
        (*tokens[row, : length[row]].tolist(), *rollout.actions[row, : rollout.lengths[row] - 1].tolist())
        for row in range(EPISODES)
    ]
    live = rows_to_train(agent, with_gradient(agent, agent.prepare(rollout)))
    alive = [contexts[row] for row in live.tolist()]
    assert 0 < len(set(alive)) < len(alive) < EPISODES > len(set(contexts))
    for skip, merge in product((False, True), repeat=2):
        episodes = alive if skip else contexts
        plain, shared, merged = work[skip, merge, False], work[skip, merge, True], work[skip, True, False]
        assert plain == (len(set(episodes) if merge else episodes), max(map(len, episodes)))
        assert shared == plain if name == "mistral" else math.prod(shared) < math.prod(merged), "not in windows"
        assert math.prod(shared) >= len({each[: n + 1] for each in episodes for n in range(len(each))})
