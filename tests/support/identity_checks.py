"""The identities of the design: acting = training = the model's own forward pass, whatever the layout.

`tests/plant_mutations.py` has bugs missed by a factor of at least 100: it sets a tolerance a hundred times as large.
"""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Any

import torch

from rlenv.agents import Collector, LanguageModelPolicy, Policy, Rollout
from rlenv.agents.rollout import map_obs

EXACT, ROUNDING = 1e-12, 1e-5  # nats, in float64 and float32
GROUP, JUNK = 4, 3
SLACK = float(os.environ.get("RLENV_TEST_SLACK", 1))  # 100 if a bug is planted


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float, what: str) -> None:
    gap, tolerance = (ours.double() - theirs.double()).abs().max().item(), SLACK * tolerance
    assert gap <= tolerance, f"{what}: differ by {gap:.3g}, allowed {tolerance:.3g}"


def collect(policy: Policy, envs: Any, episodes: int = 24, seed: int = 0) -> Rollout:
    """Return a rollout that depends on nothing but the seed."""
    collector = Collector(envs, torch.device("cpu"))
    collector.seed(seed)
    rollout = collector.collect(policy, episodes, torch.Generator().manual_seed(seed))
    assert rollout is not None
    return rollout


@torch.no_grad()
def plain_laws(policy: LanguageModelPolicy, rollout: Rollout) -> dict[str, torch.Tensor]:
    """Return what `evaluate` returns: each episode read by itself in one forward pass, without cache or padding."""
    found = {name: torch.zeros(rollout.mask.shape).double() for name in ("log_probs", "entropy", "score_norms")}
    assert isinstance(rollout.observations, dict)
    for row, columns in enumerate(rollout.columns):
        at = columns[rollout.mask[row]]
        context = rollout.observations["tokens"][row].clone()
        context[at] = rollout.actions[row, : len(at)]
        logits = policy.model(context[None, : int(at.max()) + 1]).logits[0].double() / policy.temperature
        law = torch.log_softmax(logits[:, : policy.vocab_size], -1)[at - 1]
        chosen = law.gather(1, context[at][:, None])[:, 0]
        found["log_probs"][row, : len(at)] = chosen
        found["entropy"][row, : len(at)] = -(law.exp() * law).sum(1)
        found["score_norms"][row, : len(at)] = 1 - 2 * chosen.exp() + law.exp().square().sum(1)
    return found


def check_law(policy: LanguageModelPolicy, envs: Any, tolerance: float, episodes: int = 24) -> Rollout:
    """Acting = training = log_softmax(model(ids).logits / T), over unequal prompts and slots that restart."""
    rollout = collect(policy, envs, episodes)
    assert rollout.lengths.unique().numel() > 2 and len(rollout) > envs.num_envs, "slots must restart at other times"
    plain = plain_laws(policy, rollout)
    with torch.no_grad():
        trained, alone = policy.evaluate(rollout, tuple(plain)), policy.evaluate(rollout)["log_probs"]
    acted, wanted = rollout.log_probs[rollout.mask], plain["log_probs"][rollout.mask]
    assert_close(acted, wanted, tolerance, "acting and a plain forward pass")
    assert_close(alone, plain["log_probs"], tolerance, "training and a plain forward pass")
    for name, values in plain.items():
        assert_close(trained[name], values, tolerance, f"{name} of training and of a plain forward pass")
    return rollout


def double(rollout: Rollout) -> Rollout:
    """Return the rollout with rewards in double precision, so that sums in another order agree to 1e-12."""
    return replace(rollout, rewards=rollout.rewards.double(), log_probs=rollout.log_probs.double())


def padded(rollout: Rollout, steps: int = 5, columns: int = 7, junk: int = 3) -> Rollout:
    """Return the rollout with more masked steps and, for text, more columns of junk right of the prompts."""

    def widen(value: torch.Tensor, by: int, fill: Any) -> torch.Tensor:
        return torch.cat([value, value.new_full((value.shape[0], by, *value.shape[2:]), fill)], dim=1)

    wider = {}
    for field in fields(rollout):
        value = getattr(rollout, field.name)
        if isinstance(value, torch.Tensor) and value.dim() >= 2 and field.name != "observations":
            wider[field.name] = widen(value, steps, False if value.dtype is torch.bool else junk)
    observations = rollout.observations
    if isinstance(observations, dict):  # text: the first observations, or the final tokens
        column = torch.arange(observations["tokens"].shape[1])
        known = observations["length"]
        if rollout.positions is not None:  # up to the last action, replies included
            known = rollout.positions.where(rollout.mask, 0).amax(1)
        inside = column < known[:, None]
        tokens = widen(observations["tokens"].where(inside, torch.tensor(junk)), columns, junk)
        wider["observations"] = {**observations, "tokens": tokens}
    else:
        wider["observations"] = map_obs(lambda x: widen(x, steps, junk), observations)
    return replace(rollout, **wider)


def contexts(rollout):
    """Return the tokens of each episode up to its end, and the columns of its actions."""
    for row in range(len(rollout)):
        columns, actions = (each[row][rollout.mask[row]] for each in (rollout.columns, rollout.actions))
        tokens = torch.nn.functional.pad(rollout.observations["tokens"][row], (0, 1))
        tokens[columns] = actions
        yield tokens[: int(columns[-1]) + 1].tolist(), columns.tolist()


# Handmade episodes in which replies of an environment stand between the sampled tokens.


def rollout_of(episodes, width=0):
    """Return a rollout with junk wherever nothing counts; without `positions` if no episode has a second turn.

    Args:
        episodes: each a list of turns, which are (reply, actions); the first reply is the prompt.
        width: of the contexts, L, if no episode needs more.
    """
    contexts, places = [], []
    for turns in episodes:
        context, at = [], []
        for reply, actions in turns:
            context += reply
            at += range(len(context), len(context) + len(actions))
            context += actions
        contexts.append(context)
        places.append(at)
    steps = max(1, *map(len, places))
    tokens = torch.full((len(episodes), max(width, *map(len, contexts))), JUNK)
    positions, actions = torch.ones(len(episodes), steps, dtype=torch.int64), torch.full((len(episodes), steps), JUNK)
    for row, (context, at) in enumerate(zip(contexts, places, strict=True)):
        tokens[row, : len(context)] = torch.tensor(context)
        positions[row, : len(at)] = torch.tensor(at, dtype=torch.int64)
        actions[row, : len(at)] = tokens[row, at]
    mask = torch.arange(steps) < torch.tensor([len(at) for at in places])[:, None]
    length = torch.tensor([len(turns[0][0]) for turns in episodes])
    made = Rollout.of_demonstrations({"tokens": tokens, "length": length}, actions, mask)
    return replace(made, positions=positions if max(map(len, episodes)) > 1 else None)


def gapped(policy, episodes=24, gaps=True, seed=0):
    """Return groups of random episodes with rewards and the log-probabilities of a plain pass.

    There are two letters, so that episodes share beginnings and some are equal. Replies have 0 to 3 tokens.
    """
    rng = torch.Generator().manual_seed(seed)
    draw = lambda most, least=1: int(torch.randint(least, most + 1, (), generator=rng))  # noqa: E731
    some = lambda count: torch.randint(0, 2, (count,), generator=rng).tolist()  # noqa: E731
    prompts = [some(draw(5)) for _ in range(episodes // GROUP)]
    turns = [[(some(draw(3, 0)), some(draw(4))) for _ in range(draw(3) if gaps else 1)] for _ in range(episodes)]
    for row, said in enumerate(turns):
        said[0] = prompts[row // GROUP], said[0][1]
    made = rollout_of(turns, policy.max_length)
    assert (made.positions is not None) == gaps
    rewards = torch.randint(0, 4, made.mask.shape, generator=rng).double() * made.mask
    made = replace(made, groups=torch.arange(episodes) // GROUP, rewards=rewards)
    return replace(made, log_probs=plain_laws(policy, made)["log_probs"])
