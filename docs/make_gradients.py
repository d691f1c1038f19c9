"""Measure every agent's gradient against the exact one; write docs/gradients.md, its picture, and two pages beside it.

python docs/make_gradients.py [--redraw]    # --redraw: the picture alone, from the tables of the pages
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from family import (  # noqa: E402 (its folder is no package)
    LENGTHS,
    chances,
    dapo_gradient,
    group_gradient,
    group_values,
    lambda_advantages,
    of_members,
    rollout_gradient,
    token_mean_gradient,
    whitened_gradient,
)
from objectives import (  # noqa: E402
    SOLVED,
    SUM,
    WEIGHTS,
    expected_best,
    objective_gradient,
    parts_gradient,
    truncated,
)
from tabular import (  # noqa: E402
    AT_EVERY_LENGTH,
    AT_EVERY_STEP,
    AT_THE_END,
    P,
    T,
    TabularPolicy,
    documented_kl_gradient,
    exact_values,
    expected_batch_gradient,
    expected_gradient,
    kl_gradient,
    make_agent,
    relative_error,
    return_to_go_gradient,
    true_gradient,
)
from updates import with_parts  # noqa: E402

from agents import (  # noqa: E402
    A2C,
    CISPO,
    DAPO,
    GDPO,
    GRPO,
    GSPO,
    PKPO,
    PPO,
    RLOO,
    DrGRPO,
    MaxRL,
    Reinforce,
    ReinforcePlusPlus,
)

TOLERANCE = 1e-10
INTRODUCTION = """\
# The gradient, exactly

Which agents follow the true policy gradient, and how far the others are from it: the *expected* gradient of each
agent's real loss beside the true gradient. [gradients-critics.md](gradients-critics.md) shows the same for agents with
a critic, [gradients-estimators.md](gradients-estimators.md) for baselines, returns, discount and KL estimators.

    python docs/make_gradients.py    # writes the three pages and the picture; from the repository root

![The expected gradient of eight agents, each beside the true gradient](gradients.svg)

Grey is the true gradient, blue what the agent follows on average: its angle is the bias that matters, and its length
along the true gradient acts like a learning rate.

The figures are exact, not sampled: every possible rollout goes through `Agent.prepare` and `Agent.loss` and is weighted
by its probability. `tests/agents/algorithms/test_exact_gradients.py`,
`test_exact_family.py` and `test_exact_objectives.py` assert these rows and more.

## How to read the tables

The reference case has two prompts, an easy and a hard one, and rewards of 0, 0.5 or 1. There are three tokens, one of
which ends the episode, and at most three steps: 15 completions per prompt. The policy is a softmax with one logit
vector per prefix (42 logits), in float64. The true gradient is that of Σ_prompts 1/2 Σ_y π(y) R(y), by automatic
differentiation; finite differences agree. The closed forms of biased gradients are in `tests/support/tabular.py` and
`tests/support/family.py`, which share no code with `agents`.

| column | meaning |
| --- | --- |
| K | episodes per prompt; a rollout has N = 2K |
| error | ∣g - g*∣ / ∣g*∣, of the expected gradient g and the true gradient g* |
| cosine | of the angle between g and g* |
| scale | ⟨g, g*⟩ / ⟨g*, g*⟩ |
| documented | the bias that the docstring states |
| off by | the relative distance of g from the gradient with exactly this bias |
| holds | whether that distance is at most 1e-10 |"""

FAMILY = """\
## The agents

Every agent has its default settings unless the row says otherwise. The discount is 1, and the reward comes with the
last step, as in text. A rollout is one group of K episodes per prompt. The ratio is 1, so clipping has no effect.

| agent | where its bias comes from |
| --- | --- |
| `GRPO`, `GSPO` | prompts with a small standard deviation have more weight, steps of long episodes less |
| `CISPO` | prompts with a small standard deviation have more weight; the mean is over the tokens of all groups |
| `DAPO` | the mean is over the tokens of groups with unequal rewards |
| `ReinforcePlusPlus` | the mean and the standard deviation of the rollout include the token itself |

- **Scale.** Weights other than a sum over the episode multiply the gradient by a constant. `DrGRPO` divides it by
  L_max = {longest}. A mean over tokens multiplies it by about 1/(mean length), here {share:.4f}, and whitening by about
  1/(standard deviation of the advantages). Such a constant acts like a learning rate, but counts as *error*. The cosine
  shows what a bias does to the direction.
- **A mean over tokens** divides by a number of tokens to which the episode itself contributes. This bias vanishes as
  rollouts grow; [gradients-critics.md](gradients-critics.md) has figures.
- **`GSPO`** has the gradient of `GRPO` where the ratio is 1. Its gradient away from the sampling policy, and that of
  `CISPO`, are compared with closed forms in `tests/agents/algorithms/test_exact_family.py`.
- **The standard deviation of the batch** (`scale="batch"`) is the same factor for all prompts of a rollout, but the
  episode's own reward moves it, by about 1/N. In rollouts as small as these it biases the direction more than the
  group's does.
- **`DAPO`** has no gradient in a rollout without groups of unequal rewards. If such rollouts are left out of the
  expectation, the direction stays the same, and the scale is divided by the probability of the others.
- **`ReinforcePlusPlus` with the group's mean as baseline** also trains on groups of equal rewards, because the mean of
  the whole rollout is subtracted from them.

Agents that compare all episodes of a rollout without a critic use only the length and the rewards of each. So at K = 3
completions that agree in both are merged: 1 960 joint rollouts instead of 462 400."""

OBJECTIVES = """\
## Other objectives

`MaxRL` and `PKPO` follow the gradient of another objective than the expected reward, without bias. Here *error*,
*cosine* and *scale* are those to the gradient of the objective that the row names, a mean over prompts. *pass@1* is the
cosine to the true gradient of the expected reward. Rewards of 0.5 count as 0, except for the *best of k* and `GDPO`.

- **log p, order n** is -Σ_{k=1}^{n} (1-p)^k / k, the series of log p. Its gradient is Σ_{k=1}^{n} (1-p)^{k-1} ∇p.
  With K verdicts, `MaxRL` has exactly order K - 1.
- **pass@k** is 1 - (1-p)^k, and the **best of k** the expected highest of k rewards. `PKPO` has exactly these for every
  k up to K, with each baseline.
- **`GDPO`** has no objective of its own. Its parts are R, with weight 1, and 1/T_i, with weight 0.5; the true gradient
  is that of their weighted sum. The parts' standard deviations, 1/T_i and the spread of the rollout bias it."""

CRITICS_PAGE = """\
# The gradient, exactly: agents with a critic

What a critic, GAE and whitening do to the policy gradient of `A2C` and `PPO`. The table is made as in
[gradients.md](gradients.md#how-to-read-the-tables), which explains its columns.

    python docs/make_gradients.py    # from the repository root

The critic is a table: *given* has random values that were never fitted, *perfect* has the policy's true values. The
reward comes with the last step, the discount is 1, and the ratio is 1.

- **The critic** biases the gradient if it is not perfect and λ is below 1.
- **A mean over tokens** divides by a number of tokens to which the episode itself contributes. This bias vanishes as
  rollouts grow: by the closed form, the cosine of `A2C` with the given critic and λ = 1 is
  {fading} for {sizes} episodes per rollout.
  With a sum over each episode instead, λ = 1 and the perfect critic are both exact (asserted in the tests).
- **Whitening** (`PPO`) takes a mean and a standard deviation that include the token itself."""

ESTIMATORS = """\
# The gradient, exactly: baselines, returns and KL estimators

Which baselines, returns and KL estimators leave the policy gradient unbiased, and what the others do to it. The tables
are made as in [gradients.md](gradients.md#how-to-read-the-tables), which explains their columns.

    python docs/make_gradients.py    # from the repository root"""

GAINS = """\
## Baselines, without discount

The objective is the expected return. A reward comes with every step, so that the two kinds of return differ;
for the batch's mean at K = 2, those before the last depend on prompt and step alone, so that completions are alike."""

DISCOUNT = """\
## Discount γ = 0.9

The objective is E[Σ_t γ^t r_t], with the reward at the last step, as in text. Return-to-go leaves out the factor γ^t
of step t: its gradient is Σ_t E[∇log π_t G_t]."""

ANCHOR = """\
## The KL anchor

Rewards are 0 and β = 1, so the whole gradient is the anchor's. The objective is
-Σ_t E[KL(π(·|s_t) ‖ ref(·|s_t))], which equals -KL(π ‖ ref) of whole completions. Leave-one-out over K = 2,
return-to-go. In the column *documented*, d is the direct part: the gradient of the penalty itself, for states and
actions that are already sampled."""

BASELINES = {
    "none": "exact",
    "running-mean": "exact",
    "value": "exact",
    "leave-one-out": "exact",
    "group-mean": "scaled by (K-1)/K",
    "batch-mean": "scaled by (N-1)/N",
}
KL_TERMS = {
    ("k1", "reward"): "exact",
    ("k2", "reward"): "∇E[k2] less d",
    ("k3", "reward"): "lacks d = E[(1 - r) ∇log π]",
    ("exact", "reward"): "lacks d = ∇KL(s_t)",
    ("k1", "loss"): "zero: the reference is ignored",
    ("k2", "loss"): "∇KL(π, ref) state by state",
    ("k3", "loss"): "∇KL(ref, π) state by state",
    ("exact", "loss"): "∇KL(π, ref) state by state",
}
DRAWN = {  # rows of the table of agents: agent, settings, K
    ("RLOO", "-", "4"): "RLOO",
    ("DrGRPO", "L_max = 3", "4"): "Dr. GRPO",
    ("GRPO", "-", "4"): "GRPO",
    ("DAPO", "-", "3"): "DAPO",
    ("GRPO", "scale batch", "3"): "GRPO, scale batch",
    ("ReinforcePlusPlus", "baseline none", "3"): "REINFORCE++",
    ("A2C", "given critic, λ = 1", "1"): "A2C, unfitted critic",
    ("A2C", "perfect critic, λ = 0.5", "1"): "A2C, perfect critic",
}
SIZES = (2, 4)
SIZES_OF_ROLLOUTS = (2, 3)  # every joint rollout is prepared by itself
CRITICS = (("given", 1.0), ("given", 0.5), ("perfect", 0.5))
Case = tuple[str, str, int, torch.Tensor, torch.Tensor, str]  # agent, settings, K, found, wanted, documented
FIGURES = ("error", "cosine", "scale", "documented", "off by (tolerance 1e-10)", "holds")


def main() -> None:
    """Write the pages and print them, and draw the picture."""
    for name, text in pages().items() if sys.argv[1:] != ["--redraw"] else ():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8", newline="\n")
        print(text)
    tables = [(ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("gradients.md", "gradients-critics.md")]
    draw("\n".join(tables), ROOT / "docs" / "gradients.svg")


def draw(tables: str, path: Path) -> None:
    """Draw each agent's expected gradient beside the true one, from the tables of the pages.

    Every arrow has the length and the angle that the expected gradient has to the true one, in the plane of both.
    """
    from matplotlib import rcParams
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "rlenv"
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in tables.split("\n")]
    found = {tuple(row[:3]): (float(row[4]), float(row[5])) for row in rows if tuple(row[:3]) in DRAWN}
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasSVG(figure)
    for axes, key in zip(figure.subplots(2, 4).flat, DRAWN, strict=True):
        cosine, scale = found[key]
        angle = math.acos(min(cosine, 1.0))
        tip = (scale, scale * math.tan(angle))  # scale is the length along the true gradient
        axes.annotate("", (1, 0), (0, 0), arrowprops={"arrowstyle": "-|>", "color": "0.6", "lw": 5})
        axes.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "-|>", "color": "C0", "lw": 2})
        axes.set(xlim=(-0.1, 1.4), ylim=(-0.35, 1.15), aspect="equal", xticks=[], yticks=[])
        axes.set_title(DRAWN[key], fontsize=10)
        axes.set_xlabel(f"{math.degrees(angle):.0f}° off, {scale:.2f} along", fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def pages() -> dict[str, str]:
    """Return the pages by the names of their files."""
    parts = {
        "gradients.md": [
            INTRODUCTION,
            family_text(),
            table(("agent", "settings", "K"), agent_rows(family_cases())),
            OBJECTIVES,
            table(("agent", "settings", "K", "objective", "pass@1"), objective_rows()),
        ],
        "gradients-critics.md": [critics_text(), table(("agent", "settings", "K"), agent_rows(critic_cases()))],
        "gradients-estimators.md": [
            ESTIMATORS,
            GAINS,
            table(("agent", "baseline", "returns", "K"), gain_rows()),
            DISCOUNT,
            table(("agent", "baseline", "returns", "K"), discount_rows()),
            ANCHOR,
            table(("estimator", "in the"), anchor_rows()),
        ],
    }
    return {name: "\n\n".join(texts) + "\n" for name, texts in parts.items()}


def family_text() -> str:
    """Return the section with its figures in it."""
    mean_length = float((chances(TabularPolicy()) * LENGTHS).sum(1).mean())
    return FAMILY.format(longest=T, share=1 / mean_length)


def critics_text() -> str:
    """Return the text of the page about critics with its figures in it."""
    policy, sizes = TabularPolicy(), (1, 4, 16, 64)
    true, credit = true_gradient(policy).flatten(), lambda_advantages(policy.table, AT_THE_END, 1.0)
    gradients = [token_mean_gradient(policy, size, credit).flatten() for size in sizes]
    return CRITICS_PAGE.format(
        fading=_listed(f"{float(torch.cosine_similarity(found, true, 0)):.4f}" for found in gradients),
        sizes=_listed(str(2 * size) for size in sizes),
    )


def agent_rows(cases: Iterable[Case]) -> Iterator[list[str]]:
    """Yield a row per agent, its main setting and group size."""
    true = true_gradient(TabularPolicy())
    for agent, settings, size, found, wanted, words in cases:
        yield [f"`{agent}`", settings, str(size), *figures(found, true, wanted, words)]


def family_cases() -> Iterator[Case]:
    """Yield the agents without a critic."""
    yield from group_cases(true_gradient(TabularPolicy()))
    yield from rollout_cases()


def group_cases(true: torch.Tensor) -> Iterator[Case]:
    """Yield the agents that look at an episode or its group alone."""
    yield "Reinforce", "-", 4, expected_gradient(make_agent(Reinforce), size=4), true, "exact"
    for size in SIZES:
        found = expected_gradient(make_agent(group_size=size), size=size)
        yield "ReinforceBaseline", "leave-one-out", size, found, true, "exact"
    for size in SIZES:
        yield "RLOO", "-", size, expected_gradient(make_agent(RLOO, size), size=size), true, "exact"
    for size in SIZES:
        found = expected_gradient(make_agent(DrGRPO, size, max_steps=T), size=size)
        yield "DrGRPO", f"L_max = {T}", size, found, (size - 1) / size / T * true, "scaled by (K-1)/(K L_max)"
    for cls in (GRPO, GSPO):
        for size in SIZES:
            agent = make_agent(cls, size)
            wanted = group_gradient(agent.policy, size)
            yield cls.__name__, "-", size, expected_gradient(agent, size=size), wanted, "1/T_i; the group's std"


def rollout_cases() -> Iterator[Case]:
    """Yield the agents that look at the whole rollout, without a critic."""
    for size in SIZES_OF_ROLLOUTS:
        agent = make_agent(DAPO, size, episodes_per_update=36)
        found = expected_batch_gradient(agent, AT_THE_END, size, range(P))
        yield "DAPO", "-", size, found, dapo_gradient(agent.policy, size), "token mean of groups kept; the group's std"
    for cls, scale in ((GRPO, "batch"), (CISPO, "group"), (CISPO, "batch")):
        for size in SIZES_OF_ROLLOUTS:
            agent = make_agent(cls, size, scale=scale, episodes_per_update=P * size)
            found = expected_batch_gradient(agent, AT_THE_END, size, range(P))
            wanted = rollout_gradient(agent.policy, size, scale == "batch", cls is CISPO)
            weights = "token mean" if cls is CISPO else "1/T_i"
            yield cls.__name__, f"scale {scale}", size, found, wanted, f"{weights}; the {scale}'s std"
    for baseline in ("none", "group-mean"):
        for size in SIZES_OF_ROLLOUTS:
            agent = make_agent(ReinforcePlusPlus, size, baseline=baseline, episodes_per_update=P * size)
            found = expected_batch_gradient(agent, AT_THE_END, size, range(P))
            values = group_values(size, AT_THE_END, centred=baseline == "group-mean")
            wanted = whitened_gradient(agent.policy, size, values)
            yield "ReinforcePlusPlus", f"baseline {baseline}", size, found, wanted, "token mean; whitened"


def objective_rows() -> Iterator[list[str]]:
    """Yield the agents that have other objectives."""
    policy, sampled = TabularPolicy(), {"episodes_per_update": 36}
    for size in (2, 3, 4):
        found = expected_gradient(make_agent(MaxRL, size, **sampled), SOLVED, size)
        wanted = objective_gradient(policy, truncated[size - 1], SOLVED)
        yield _objective_row("MaxRL", "-", size, f"log p, order {size - 1}", found, wanted, wanted, SOLVED, "exact")
    for k, baseline in ((1, "loo-1"), (2, "loo-1"), (4, "loo-1"), (4, "loo"), (4, "none")):
        found = expected_gradient(make_agent(PKPO, 4, k=k, baseline=baseline), SOLVED, 4)
        wanted = objective_gradient(policy, partial(expected_best, k=k), SOLVED)
        settings = f"k = {k}, {baseline}"
        yield _objective_row("PKPO", settings, 4, f"pass@{k}", found, wanted, wanted, SOLVED, "exact")
    for k in (2, 4):
        found = expected_gradient(make_agent(PKPO, 4, k=k), AT_THE_END, 4)
        wanted = objective_gradient(policy, partial(expected_best, k=k), AT_THE_END)
        yield _objective_row("PKPO", f"k = {k}", 4, f"best of {k}", found, wanted, wanted, AT_THE_END, "exact")
    for size in SIZES_OF_ROLLOUTS:
        agent = with_parts(make_agent(GDPO, size, part_weights=WEIGHTS, **sampled))
        found, true = expected_batch_gradient(agent, AT_THE_END, size, range(P)), true_gradient(policy, SUM)
        words = "1/T_i; every part's std; whitened"
        wanted = parts_gradient(policy, size)
        yield _objective_row("GDPO", "-", size, "the weighted sum", found, true, wanted, AT_THE_END, words)


def _objective_row(
    agent: str,
    settings: str,
    size: int,
    objective: str,
    found: torch.Tensor,
    true: torch.Tensor,
    wanted: torch.Tensor,
    rewards: torch.Tensor,
    words: str,
) -> list[str]:
    plain = true_gradient(TabularPolicy(), rewards)
    cosine = float((found * plain).sum() / (found.norm() * plain.norm()))
    return [f"`{agent}`", settings, str(size), objective, f"{cosine:.4f}", *figures(found, true, wanted, words)]


def critic_cases() -> Iterator[Case]:
    """Yield the agents with a critic."""
    for critic, lam in CRITICS:
        for cls, settings, words in (
            (A2C, {}, "token mean"),
            (PPO, {"normalize_advantage": False}, "token mean"),
            (PPO, {}, "token mean; whitened"),
        ):
            agent = make_agent(cls, gae_lambda=lam, **settings)
            if critic == "perfect":
                agent.policy.table.data = exact_values(agent.policy, AT_THE_END)
            credit = lambda_advantages(agent.policy.table, AT_THE_END, lam)
            if "whitened" in words:
                wanted = whitened_gradient(agent.policy, 1, of_members(1, credit))
            else:
                wanted = token_mean_gradient(agent.policy, 1, credit)
            plain = ", not whitened" if settings else ""
            yield cls.__name__, f"{critic} critic, λ = {lam:g}{plain}", 1, expected_batch_gradient(agent), wanted, words


def gain_rows() -> Iterator[list[str]]:
    """Yield a row per agent, baseline, return and group size."""
    agent = make_agent(Reinforce)
    true = true_gradient(agent.policy, AT_EVERY_STEP)
    found = expected_gradient(agent, AT_EVERY_STEP, 4)
    yield ["`Reinforce`", "-", "episode", "4", *figures(found, true, true, "exact")]
    for baseline, words in BASELINES.items():
        for returns in ("return-to-go", "episode"):
            for size in (1, 2) if baseline == "batch-mean" else (2, 4):
                agent = make_agent(baseline=baseline, returns=returns, group_size=size)
                rewards, factor = AT_EVERY_STEP, (size - 1) / size if baseline == "group-mean" else 1.0
                if baseline == "batch-mean":
                    rewards, alike = (AT_EVERY_STEP, ()) if size == 1 else (AT_EVERY_LENGTH, range(P))
                    found = expected_batch_gradient(agent, rewards, size, alike)
                    factor = (2 * size - 1) / (2 * size)
                else:
                    found = expected_gradient(agent, rewards, size)
                true = true_gradient(agent.policy, rewards)
                yield ["`ReinforceBaseline`", baseline, returns, str(size), *figures(found, true, factor * true, words)]


def discount_rows() -> Iterator[list[str]]:
    """Yield a row per kind of return."""
    agent = make_agent(Reinforce, gamma=0.9)
    true = true_gradient(agent.policy, AT_THE_END, 0.9)
    yield ["`Reinforce`", "-", "episode", "4", *figures(expected_gradient(agent, size=4), true, true, "exact")]
    for returns, words in (("episode", "exact"), ("return-to-go", "leaves out γ^t")):
        agent = make_agent(baseline="leave-one-out", returns=returns, gamma=0.9)
        wanted = true if returns == "episode" else return_to_go_gradient(agent.policy, AT_THE_END, 0.9)
        found = expected_gradient(agent, size=4)
        yield ["`ReinforceBaseline`", "leave-one-out", returns, "4", *figures(found, true, wanted, words)]


def anchor_rows() -> Iterator[list[str]]:
    """Yield a row per KL estimator and place."""
    for (estimator, place), words in KL_TERMS.items():
        agent = make_agent(kl_coef=1.0, kl_estimator=estimator, kl_in=place)
        true = kl_gradient(agent.policy, agent.anchor.reference)
        wanted = documented_kl_gradient(estimator, place, agent.policy, agent.anchor.reference)
        found = expected_gradient(agent, torch.zeros_like(AT_THE_END), 2)
        yield [estimator, place, *figures(found, true, wanted, words)]


def figures(found: torch.Tensor, true: torch.Tensor, wanted: torch.Tensor, words: str) -> list[str]:
    """Return the cells under `FIGURES` for an expected gradient, the true one and the documented one."""
    dot, off = float((found * true).sum()), relative_error(found, wanted)
    cosine = f"{dot / float(found.norm() * true.norm()):.4f}" if found.norm() > TOLERANCE else "-"
    scale = dot / float(true.square().sum())
    scale_text = f"{0.0 if abs(scale) < TOLERANCE else scale:.4f}"
    error = _error(relative_error(found, true))
    return [error, cosine, scale_text, words, _error(off), "yes" if off <= TOLERANCE else "NO"]


def table(keys: Sequence[str], rows: Iterator[list[str]]) -> str:
    """Return a Markdown table."""
    heads = [*keys, *FIGURES]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}"


def _error(value: float) -> str:
    return "< 1e-10" if value < TOLERANCE else f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"


if __name__ == "__main__":
    main()
