"""Answers of different lengths, where weighted baselines differ: each baseline's variance, against K, by sampling."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from agents import ReinforceBaseline
from agents.estimators.baselines import BASELINES
from agents.exact import TablePolicy, World, true_gradient

from .base import Check
from .enumerable import episodes, gradients, make_agent

STEPS = 6
WORLD = World(tokens=3, steps=STEPS, end=2)  # 127 answers of 1 to 6 tokens
LENGTHS = WORLD.paths[2].sum(1)  # [C]
SIZES = (2, 4, 8, 16, 32)  # K
EPISODES = 8_000  # per task, baseline and K, of the prompt
FEW, MANY = 4, 32  # the K that are compared
CERTAIN = 6.0  # logit of the one token that a certain answer is made of
WEIGHTED = ("optimal-token", "length-weighted")


@dataclass(frozen=True)
class LongTask:
    """A prompt whose answers take several steps, with verdicts of 0 or 1.

    Args:
        name: for the table.
        logits: of the policy that answers [S, V].
        rewards: of the answers [C].
    """

    name: str
    logits: torch.Tensor
    rewards: torch.Tensor

    @cached_property
    def pi(self) -> torch.Tensor:
        """Probabilities of the answers [C]."""
        return WORLD.log_probs(self.logits).exp()

    @property
    def rate(self) -> float:
        """The success rate p."""
        return float(self.pi @ self.rewards)

    @property
    def values(self) -> torch.Tensor:
        """The chance of a right answer after every prefix [S]."""
        states, _, mask = WORLD.paths
        passes = torch.stack([((states == s) & mask).any(1) for s in range(len(WORLD.prefixes))]).double()  # [S, C]
        return (passes @ (self.pi * self.rewards)) / (passes @ self.pi)


def tasks() -> list[LongTask]:
    """Return five tasks: what is right goes with the length, with certainty, or with neither."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(len(WORLD.completions), generator=generator)
    open_ended = torch.zeros(len(WORLD.prefixes), WORLD.tokens, dtype=torch.float64)
    open_ended[:, 2] = -0.5
    uneven = open_ended + 0.5 * torch.randn(open_ended.shape, generator=generator, dtype=torch.float64)
    certain = open_ended.clone()
    for number, prefix in enumerate(WORLD.prefixes):
        if prefix[:1] == (0,):  # from here on four zeros and the end
            token = 0 if len(prefix) < 4 else 2
            certain[number] = CERTAIN * torch.nn.functional.one_hot(torch.tensor(token), WORLD.tokens)
    zero = torch.tensor([answer[0] == 0 for answer in WORLD.completions])
    return [
        LongTask("length says nothing", uneven, (noise < 0.5).double()),
        LongTask("long answers are right", open_ended, (LENGTHS > 3).double()),
        LongTask("long answers are wrong", open_ended, (LENGTHS <= 3).double()),
        LongTask("right answers are certain", certain, zero.double()),
        LongTask("wrong answers are certain", certain, (~zero & (noise < 0.7)).double()),
    ]


def distances(baseline: str, task: LongTask, answers: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Return |g - g*|² of the real agent's gradient estimate g of each group [R].

    Args:
        baseline: its name; means that contain the episode itself are scaled to the true gradient g*.
        task: the prompt.
        answers: numbers of the group's answers [R, K].
        others: of the answers to another prompt of the same update, where right and wrong are swapped [R, K].
    """
    copies, size = answers.shape
    of_batch = baseline == "batch-mean"  # each rollout's mean is that of a group of both prompts; the others see one
    prompts, name = (2, "group-mean") if of_batch else (1, baseline)
    agent = make_agent(ReinforceBaseline, WORLD, task.logits, copies=prompts * copies, baseline=name)
    if baseline == "running-mean":
        agent.load_state_dict({"mean": torch.tensor([0.5], dtype=torch.float64)})  # of both prompts
    assert isinstance(agent.policy, TablePolicy)
    agent.policy.table.data = task.values.expand(prompts * copies, -1).clone()
    seen = torch.stack([answers, others][:prompts], 1).flatten()  # [R * prompts * K]
    rewards = torch.stack([task.rewards[answers], 1 - task.rewards[others]][:prompts], 1).flatten()
    number = torch.arange(prompts * copies).repeat_interleave(size)
    rollout = replace(episodes(agent.policy, WORLD, seen, rewards, number), groups=number // prompts)
    found = prompts * copies * gradients(agent, agent.prepare(rollout))[::prompts]  # the loss is a mean [R, S, V]
    own = {"group-mean": 1 / size, "batch-mean": 1 / (2 * size)}.get(baseline, 0.0)
    true = true_gradient(WORLD, task.logits, WORLD.at_the_end(task.rewards))
    return (found / (1 - own) - true).square().sum((1, 2))


def rows(generator: torch.Generator) -> Iterator[dict[str, Any]]:
    """Yield a row per task, K and baseline; all baselines see the same answers."""
    for task in tasks():
        for size in SIZES:
            draw = torch.multinomial(task.pi, 2 * EPISODES, replacement=True, generator=generator)
            answers, others = draw.view(2, EPISODES // size, size)
            found = {baseline: distances(baseline, task, answers, others) for baseline in BASELINES}
            for baseline, each in found.items():
                yield {
                    "task": task.name,
                    "baseline": baseline,
                    "K": size,
                    "p": round(task.rate, 4),
                    "sampled": float(each.mean()),
                    "sampled_error": float(each.std() / len(each) ** 0.5),
                }


def relative(found: list[dict[str, Any]], baseline: str, size: int) -> dict[str, float]:
    """Return a baseline's variance over that of leave-one-out at the same K, by task."""
    ours, theirs = (
        {row["task"]: row["sampled"] for row in found if (row["baseline"], row["K"]) == (name, size)}
        for name in (baseline, "leave-one-out")
    )
    return {task: ours[task] / theirs[task] for task in ours}


def figures(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the variance times K, the noise per episode, by task, baseline and K."""
    made: dict[str, dict[str, dict[str, float]]] = {}
    for row in found:
        by_size = made.setdefault(row["task"], {}).setdefault(row["baseline"], {})
        by_size[f"K = {row['K']}"] = round(row["K"] * row["sampled"], 4)
    return made


def checks(found: list[dict[str, Any]]) -> list[Check]:
    """Return what is claimed of the weighted baselines."""
    sizes = sorted({row["K"] for row in found})
    token, length = (relative(found, name, MANY) for name in WEIGHTED)
    most = max(max(relative(found, "optimal-token", size).values()) for size in sizes)
    alike = max(abs(ratio - 1) for name in WEIGHTED for ratio in relative(found, name, 2).values())
    noise = {(row["task"], row["baseline"], row["K"]): row["K"] * row["sampled"] for row in found}
    gaps = {
        size: [noise[task, "optimal-token", size] / noise[task, "leave-one-out", MANY] for task in token]
        for size in (FEW, 2 * FEW)
    }
    best, bad = min(length, key=length.__getitem__), max(length, key=length.__getitem__)
    return [
        Check(
            f"Answers of 1 to {STEPS} steps, five tasks: at K = {MANY}, optimal-token has {min(token.values()):.2f} to "
            f"{max(token.values()):.2f} times the variance of leave-one-out, and at no K more than {most:.2f} times.",
            min(token.values()) < 0.8 and most < 1.1,
        ),
        Check(
            f"length-weighted has {length[best]:.2f} times that variance where {best}, and {length[bad]:.2f} times "
            f"where {bad}: the scores of certain tokens have no norm, however many there are.",
            length[best] < 0.9 and length[bad] > 1.1,
        ),
        Check(
            "At K = 2 both are leave-one-out: there is one other answer, whatever its weight; largest difference "
            f"{alike:.1e}.",
            alike < 1e-9,
        ),
        Check(
            f"Not confirmed: that {FEW} answers with optimal-token are as good as {MANY}. Per episode, they leave "
            f"{min(gaps[FEW]):.2f} to {max(gaps[FEW]):.2f} times the variance of {MANY} with leave-one-out; "
            f"{2 * FEW} leave {min(gaps[2 * FEW]):.2f} to {max(gaps[2 * FEW]):.2f} times.",
            min(gaps[FEW]) > 1,
        ),
    ]


def draw(axes: Any, found: list[dict[str, Any]]) -> None:
    """Draw the variance of both weighted baselines over that of leave-one-out, against K."""
    sizes = sorted({row["K"] for row in found})
    styles = dict(zip(WEIGHTED, ("o-", "x:"), strict=True))
    for number, task in enumerate(dict.fromkeys(row["task"] for row in found)):
        for baseline, style in styles.items():
            values = [relative(found, baseline, size)[task] for size in sizes]
            axes.plot(sizes, values, style, color=f"C{number}", ms=4, lw=1, label=task if style == "o-" else None)
    axes.axhline(1, color="black", lw=0.5)
    axes.set(xscale="log", xlabel="K", ylabel="variance / that of leave-one-out", ylim=(0.5, 2.2))
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.minorticks_off()
    axes.set_title("optimal-token (dotted: length-weighted)", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(loc="upper left", fontsize=8)
