"""Handmade episodes in which replies of an environment stand between the sampled tokens."""

import copy
from dataclasses import replace

import torch

from agents import Rollout

GROUP = 4


def gapped(policy, episodes=24, gaps=True, letters=2, seed=0):
    """Return groups of random episodes of a prompt, turns and replies, with the log-probabilities of a plain pass.

    Few letters, so that episodes share beginnings and some are equal. Replies have 0 to 3 tokens.

    Args:
        policy: with a vocabulary of more than `letters` tokens.
        episodes: N.
        gaps: False for episodes of one turn, whose rollout has no positions.
        letters: number of different tokens.
        seed: of everything.
    """
    rng = torch.Generator().manual_seed(seed)
    draw = lambda most, least=1: int(torch.randint(least, most + 1, (), generator=rng))  # noqa: E731
    some = lambda count: torch.randint(0, letters, (count,), generator=rng).tolist()  # noqa: E731
    prompts = [some(draw(5)) for _ in range(episodes // GROUP)]
    rows = []  # context, columns and rewards of the actions
    for row in range(episodes):
        context, columns, rewards = list(prompts[row // GROUP]), list[int](), list[int]()
        for turn in range(draw(3) if gaps else 1):
            context += some(draw(3, 0)) if turn else []
            columns += range(len(context), len(context) + draw(4))
            context += some(columns[-1] + 1 - len(context))
            rewards += [0] * (len(columns) - len(rewards) - 1) + [draw(3, 0)]
        rows.append((context, columns, rewards))
    if gaps:
        assert any(columns[-1] - columns[0] >= len(columns) for _, columns, _ in rows)
    steps = max(len(columns) for _, columns, _ in rows)
    tokens = torch.full((episodes, policy.max_length), 3)
    positions, actions, rewards_at = (torch.full((episodes, steps), fill) for fill in (1, 3, 0))
    for row, (context, columns, rewards) in enumerate(rows):
        tokens[row, : len(context)] = torch.tensor(context)
        positions[row, : len(columns)] = torch.tensor(columns)
        actions[row, : len(columns)] = tokens[row, columns]
        rewards_at[row, : len(columns)] = torch.tensor(rewards)
    mask = torch.arange(steps) < torch.tensor([len(columns) for _, columns, _ in rows])[:, None]
    first = {"tokens": tokens, "length": torch.tensor([len(prompts[row // GROUP]) for row in range(episodes)])}
    made = Rollout.of_demonstrations(first, actions, mask)
    made = replace(made, positions=positions if gaps else None, groups=torch.arange(episodes) // GROUP)
    return replace(made, rewards=rewards_at.double(), log_probs=plain_laws(policy, made)[0])


@torch.no_grad()
def plain_laws(policy, rollout):
    """Return log-probabilities and entropies [N, T]: each episode's tokens read by themselves in one forward pass."""
    model = copy.deepcopy(policy.model).eval()
    out, entropies = torch.zeros_like(rollout.mask, dtype=torch.float64), torch.zeros(rollout.mask.shape).double()
    assert isinstance(rollout.observations, dict)
    for row, columns in enumerate(rollout.columns):
        at = columns[rollout.mask[row]]
        context = rollout.observations["tokens"][row].clone()
        context[at] = rollout.actions[row, : len(at)]
        logits = model(context[None, : int(at.max()) + 1]).logits[0] / policy.temperature
        law = torch.log_softmax(logits[:, : policy.vocab_size], -1)[at - 1]
        out[row, : len(at)] = law.gather(1, context[at][:, None])[:, 0].double()
        entropies[row, : len(at)] = -(law.exp() * law).sum(1).double()
    return out, entropies


def positions_explicit(rollout):
    """Return the rollout with `positions`, whether or not it has gaps, and its final tokens."""
    assert isinstance(rollout.observations, dict)
    tokens, columns = rollout.observations["tokens"].clone(), rollout.columns
    rows, steps = rollout.mask.nonzero(as_tuple=True)
    tokens[rows, columns[rows, steps]] = rollout.actions[rows, steps]
    return replace(rollout, positions=columns, observations={**rollout.observations, "tokens": tokens})
