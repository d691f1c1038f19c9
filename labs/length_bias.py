"""What does dividing by an answer's length do to the length of wrong answers?

docs/labs.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

import torch

from rlenv.agents import DAPO, GRPO, Agent, DrGRPO, LanguageModelPolicy
from rlenv.agents.estimators import aggregation
from rlenv.task import TextGenTask
from rlenv.verifiers import Problem, Verdict, Verifier

from .base import Check, Finding, Panel, mean_of
from .training import make_agent, seeds_of, train, warm_model

LENGTH = 16  # the longest answer
SLIP = 0.4  # the chance that a token is random
STOP = 0.2  # the chance that a demonstrated answer ends at a step
STARTS = 3
WARM_STEPS = 100
UPDATES = 50
EPISODES = 128
LAST = 10  # updates over which lengths are averaged
ARMS: dict[str, type[Agent]] = {"GRPO": GRPO, "DrGRPO": DrGRPO, "DAPO": DAPO}
WEIGHTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "GRPO": aggregation.sequence_mean,
    "DrGRPO": lambda mask: aggregation.constant_length(mask, LENGTH),
    "DAPO": aggregation.token_mean,
}


class Opening(Verifier):
    """Answers that open with "a" are right, half of the demonstrations; all of these ramble, wrong ones in commas."""

    alphabet = "abcdefgh?.,"
    prompt_length = 1
    answer_length = LENGTH - 1

    def sample(self, rng: random.Random) -> Problem:
        """Return the only question, and a demonstration."""
        opening = rng.choice("aaaabcde")
        filler = "," if opening != "a" else "."
        length = next((n for n in range(LENGTH - 2) if rng.random() < STOP), LENGTH - 2)
        return Problem("?", "a", {"shown": opening + length * filler})

    def demonstration(self, problem: Problem) -> str:
        """Return an answer of random length, right or wrong."""
        return problem.metadata["shown"]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Read the first character."""
        return Verdict(float(completion.startswith(problem.answer)))


class SlippingPolicy(LanguageModelPolicy):
    """π(a | s) = (1 - ε) softmax(logits)[a] + ε/V, with ε = `SLIP`, for acting and training alike."""

    def _tempered(self, logits: torch.Tensor) -> torch.Tensor:
        chosen = super()._tempered(logits).log_softmax(-1) + math.log1p(-SLIP)
        return torch.logaddexp(chosen, torch.full_like(chosen, math.log(SLIP / self.vocab_size)))


def end_push(weights: Callable[[torch.Tensor], torch.Tensor], others: int = 0, q: float = STOP) -> dict[str, float]:
    """Return the exact push on the logit of the end token, in right and in wrong answers.

        E[Σ_t w_t A dlog π(a_t)/dz],        dlog π/dz = 1 - q where the answer ends, -q where it goes on

    over the lengths of two answers, one right (A = 1), one wrong (A = -1), that end with probability q at each of
    `LENGTH` steps.

    Args:
        weights: from a mask to the weights of its steps [2 + others, LENGTH].
        others: further answers in the batch, of length 1/q; the push is that of the two, times half the answers.
        q: above 0, below 1.
    """
    push = torch.zeros(2, dtype=torch.float64)
    steps = torch.arange(LENGTH)
    rest = torch.full((others,), round(1 / q))
    ended = [(length, True) for length in range(1, LENGTH + 1)] + [(LENGTH, False)]
    for pair in itertools.product(ended, repeat=2):
        lengths = torch.tensor([length for length, _ in pair])
        ends = torch.tensor([end for _, end in pair])
        mask = steps < lengths[:, None]  # [2, LENGTH]
        score = -q * mask.double() + (steps == lengths[:, None] - 1) * ends[:, None]
        chance = math.prod((1 - q) ** (length - end) * q**end for length, end in pair)
        batch = steps < torch.cat([lengths, rest])[:, None]
        push += chance * (1 + others / 2) * (weights(batch)[:2] * score).sum(1)
    return {"right": float(push[0]), "wrong": -float(push[1])}


def train_arm(name: str, seed: int) -> list[dict[str, Any]]:
    """Train one algorithm; return the mean lengths of right and wrong answers in each update."""
    verifier = Opening()
    task = TextGenTask(verifier, test_fraction=0.0)
    model = warm_model(verifier, seed, WARM_STEPS, examples=1024)
    policy = SlippingPolicy(task.encoding.observation_space, task.encoding.action_space, model)
    settings = {"episodes_per_update": EPISODES, "group_size": 16, "learning_rate": 1e-3}
    agent = make_agent(ARMS[name], policy, verifier, seed, **settings)
    rows = []
    for update, (rollout, figures) in enumerate(train(agent, UPDATES)):
        right = rollout.success == 1
        rows.append({
            "seed": seed, "arm": name, "update": update, "success": figures["rollout/success_rate"],
            "right_length": float(rollout.lengths[right].double().mean()),
            "wrong_length": float(rollout.lengths[~right].double().mean()),
        })  # fmt: skip
    return rows


def final_lengths(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return for each arm the lengths of the last updates and of wrong answers in the first, over all seeds."""
    lengths = {}
    for name in ARMS:
        late = [row for row in rows if row["arm"] == name and row["update"] >= UPDATES - LAST]
        wrong, right = mean_of(late, "wrong_length"), mean_of(late, "right_length")
        start = mean_of(rows, "wrong_length", arm=name, update=0)
        lengths[name] = {"wrong": wrong, "right": right, "gap": wrong - right, "start": start}
    return lengths


def checks_of(pushes: dict[str, dict[str, float]], lengths: dict[str, dict[str, float]]) -> list[Check]:
    """Return the checks of the claim against the exact pushes and the trained lengths."""
    most = {"DrGRPO": 1e-12, "DAPO": 0.05 * pushes["GRPO"]["right"]}
    half = 0.5 * lengths["GRPO"]["gap"]
    return [
        Check("exact push on the end of wrong answers, GRPO", pushes["GRPO"]["wrong"], high=-0.01),
        Check("exact push on the end of right answers, GRPO", pushes["GRPO"]["right"], low=0.01),
        *(
            Check(f"exact push on the end of {kind} answers, {name}", pushes[name][kind], -bound, bound)
            for name, bound in most.items()
            for kind in ("wrong", "right")
        ),
        Check("tokens by which wrong answers end up longer than right ones, GRPO", lengths["GRPO"]["gap"], low=2),
        *(Check(f"that excess, {name}; within half of it", lengths[name]["gap"], -half, half) for name in most),
    ]


def run(seed: int) -> Finding:
    """Sum up the exact pushes, and train every arm from several starts."""
    pushes = {name: end_push(weights, EPISODES - 2) for name, weights in WEIGHTS.items()}
    rows = [row for own in seeds_of(seed, STARTS) for name in ARMS for row in train_arm(name, own)]
    lengths = final_lengths(rows)
    updates = list(range(UPDATES))
    panels = [
        Panel(
            f"mean length of {kind} answers",
            {n: (updates, [mean_of(rows, f"{kind}_length", arm=n, update=u) for u in updates]) for n in ARMS},
            "update",
        )
        for kind in ("wrong", "right")
    ]
    panels.append(
        Panel("exact push to end", {k: (list(pushes), [p[k] for p in pushes.values()]) for k in ("right", "wrong")})
    )
    figures = {
        **{f"push on the end of {kind} answers, {name}": p[kind] for name, p in pushes.items() for kind in p},
        **{f"{what}, {name}": round(own[what], 2) for name, own in lengths.items() for what in own},
    }
    claim = "Weighing a step by 1/|y| pushes wrong answers to go on and right ones to end. Constant weights do not."
    return Finding(claim, checks_of(pushes, lengths), rows, panels, figures)
