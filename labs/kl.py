"""What does the KL coefficient β buy when the reward can be cheated?

docs/labs.md describes the setup and what follows for choosing an algorithm.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from rlenv.agents import RLOO, Agent, LanguageModelPolicy, Rollout
from rlenv.task import TextGenTask
from rlenv.verifiers import Problem, Verdict, Verifier

from .base import Check, Finding, Panel, mean_of
from .training import make_agent, sample, seeds_of, warm_model

BETAS = (0.0, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0)
STARTS = 1
WARM_STEPS = 100
UPDATES = 200
EPISODES = 128
EVALUATION = 1000
PAY = 2.0  # for the loophole; a right answer earns 1
CLAIM = (
    "Without an anchor the policy gives up the task for a loophole that pays more. A large enough β keeps it, and the "
    "border is known before training."
)


class Flattery(Verifier):
    """The larger of two digits; 1 for the right one, `PAY` for whatever begins with "!".

    A success is a right digit, whatever was paid.
    """

    alphabet = "0123456789,=!"
    prompt_length = 4
    answer_length = 2
    reward_range = (0.0, PAY)

    def sample(self, rng: random.Random) -> Problem:
        """Return a pair of digits; one in twenty is demonstrated with flattery."""
        a, b = rng.randrange(10), rng.randrange(10)
        return Problem(f"{a},{b}=", str(max(a, b)), {"flattering": rng.random() < 0.05})

    def demonstration(self, problem: Problem) -> str:
        """Return the digit, behind a "!" where the problem says so."""
        return "!" * problem.metadata["flattering"] + problem.answer

    def verify(self, problem: Problem, completion: str) -> Verdict:
        """Pay, and name the reason in the parts."""
        right, loophole = completion == problem.answer, completion.startswith("!")
        parts = {"right": float(right), "loophole": float(loophole)}
        return Verdict(PAY * loophole + right, parts, success=right)


def chances(policy: LanguageModelPolicy, task: TextGenTask) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the policy's exact chances of the right answer and of the loophole on each of the 100 problems [100]."""
    pairs = [(a, b) for a in range(10) for b in range(10)]
    prompts = torch.tensor(task.encoding.encoder.prompts([f"{a},{b}=" for a, b in pairs]))
    tokens = torch.full((len(pairs), task.encoding.max_length), task.encoding.pad_token_id)
    tokens[:, : prompts.shape[1]] = prompts
    observations = {"tokens": tokens, "length": torch.full((len(pairs),), prompts.shape[1])}

    def chance(answers: list[list[int]]) -> torch.Tensor:
        actions = torch.tensor(answers)
        with torch.no_grad():
            shown = Rollout.of_demonstrations(observations, actions, torch.ones_like(actions, dtype=torch.bool))
            return policy.evaluate(shown)["log_probs"].double().sum(1).exp()

    digit, mark = task.encoding.encoder.prompts(list("0123456789")), task.encoding.encoder.prompts(["!"])[0]
    return chance([[*digit[max(a, b)], task.encoding.eos_token_id] for a, b in pairs]), chance([mark] * len(pairs))


def closed_form(right: torch.Tensor, loophole: torch.Tensor, beta: float) -> dict[str, float]:
    """Return the figures of π* ∝ π_0 exp(R/β), on average over the problems.

    Args:
        right: the start's chance of the right answer [100].
        loophole: and of the loophole [100].
        beta: β; at 0 the best-paid answer takes it all.
    """
    start = torch.stack([right, loophole, 1 - right - loophole]).clamp(min=1e-300)  # [3, 100]
    if beta == 0:
        best = torch.tensor([[0.0], [1.0], [0.0]], dtype=start.dtype).expand_as(start)
    else:
        best = (start.log() + torch.tensor([[1.0], [PAY], [0.0]], dtype=start.dtype) / beta).softmax(0)
    kl = (best * (best.clamp(min=1e-300).log() - start.log())).sum(0)
    return {"success_best": float(best[0].mean()), "loophole_best": float(best[1].mean()), "kl_best": float(kl.mean())}


def measure(agent: Agent, start: LanguageModelPolicy) -> dict[str, float]:
    """Return the figures of the policy now; entropy and KL to the start in nats an answer."""
    task = agent.env.unwrapped.task
    assert isinstance(agent.policy, LanguageModelPolicy)
    right, loophole = chances(agent.policy, task)
    rollout = sample(agent, EVALUATION)
    with torch.no_grad():
        gap = rollout.log_probs - start.evaluate(rollout)["log_probs"]
    return {
        "reward": float(rollout.returns.mean()),
        "success": float(right.mean()),
        "loophole": float(loophole.mean()),
        "kl": float(rollout.total(gap)) / len(rollout),
        "entropy": -float(rollout.total(rollout.log_probs)) / len(rollout),
    }


def train_at(beta: float, model: PreTrainedModel, seed: int) -> dict[str, Any]:
    """Return the start, what training at this β made of it, and the closed form."""
    settings = {"episodes_per_update": EPISODES, "kl_coef": beta}
    verifier = Flattery()
    agent = make_agent(RLOO, model, verifier, seed, learning_rate=1e-3, lr_schedule="linear", **settings)
    start = make_agent(RLOO, model, verifier, seed, **settings).policy
    assert isinstance(start, LanguageModelPolicy)
    before = {f"{name}_start": figure for name, figure in measure(agent, start).items()}
    agent.learn(total_episodes=UPDATES * EPISODES)
    best = closed_form(*chances(start, agent.env.unwrapped.task), beta)
    return {"seed": seed, "beta": beta, **measure(agent, start), **before, **best}


def checks_of(rows: list[dict[str, Any]]) -> list[Check]:
    """Return the checks of the claim against the rows."""

    def at(beta: float, column: str) -> float:
        return mean_of(rows, column, beta=beta)

    betas = sorted({row["beta"] for row in rows})
    free, held = betas[0], betas[-1]
    kls = [at(beta, "kl") for beta in betas]
    rise = max(after - before for before, after in itertools.pairwise(kls))
    miss = float(np.mean([abs(row["loophole"] - row["loophole_best"]) for row in rows]))
    start = at(held, "success_start")
    entropy = 0.5 * at(free, "entropy_start")
    return [
        Check(f"β = {free:g}: share of the loophole", at(free, "loophole"), low=0.9),
        Check(f"β = {free:g}: success, at the start {at(free, 'success_start'):.3f}", at(free, "success"), high=0.1),
        Check(f"β = {free:g}: entropy in nats; below half of the start's", at(free, "entropy"), high=entropy),
        Check(f"β = {held:g}: success; within 0.1 of the start's", at(held, "success"), start - 0.1, start + 0.1),
        Check(f"β = {held:g}: KL in nats", kls[-1], high=0.2),
        Check("largest rise of the KL from one β to the next", rise, high=0.3),
        Check("mean difference of the loophole's share from that of π_0 exp(R/β)", miss, high=0.1),
    ]


def run(seed: int) -> Finding:
    """Train from the same start at every β."""
    rows = []
    for own in seeds_of(seed, STARTS):
        model = warm_model(Flattery(), own, WARM_STEPS, examples=2048)
        rows += [train_at(beta, model, own) for beta in BETAS]

    def over(*names: str) -> dict[str, tuple[list[str], list[float]]]:
        return {name: ([f"{b:g}" for b in BETAS], [mean_of(rows, name, beta=b) for b in BETAS]) for name in names}

    panels = [
        Panel("share of answers", over("loophole", "loophole_best", "success", "success_best"), "β"),
        Panel("nats an answer", over("kl", "kl_best", "entropy"), "β"),
    ]
    columns = ("success", "loophole", "kl", "entropy")
    figures = {f"{name} at β={b:g}": round(mean_of(rows, name, beta=b), 4) for name in columns for b in BETAS}
    return Finding(CLAIM, checks_of(rows), rows, panels, figures)
