"""Handmade episodes in which replies of an environment stand between the sampled tokens."""

from dataclasses import replace

import torch
from identity_checks import plain_laws

from rlenv.agents import Rollout

GROUP, JUNK = 4, 3


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
