"""Measure every agent's gradient against the exact one; write docs/appendix/gradients.md and its picture.

python docs/make_gradients.py [--redraw]    # --redraw: the picture alone, from the tables of the page
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "appendix" / "gradients.md"
sys.path.insert(0, str(ROOT / "tests" / "support"))

from tabular import (  # noqa: E402 (its folder is no package)
    ACTIONS,
    AT_EVERY_STEP,
    AT_THE_END,
    LEVELS,
    MASK,
    NEXT,
    PREFIXES,
    SOLVED,
    STATES,
    WORLD,
    C,
    P,
    T,
    TabularPolicy,
    Told,
    completion_log_probs,
    episodes,
    every_group,
    exact_values,
    expected_best,
    expected_gradient,
    gradient,
    kl_gradient,
    make_agent,
    moved_policy,
    multisets,
    objective_gradient,
    reading_the_other_prompt,
    relative_error,
    true_gradient,
    truncated_log_likelihood,
    updated_policies,
)

from rlenv.agents import (  # noqa: E402
    A2C,
    CISPO,
    DAPO,
    DPPO,
    GDPO,
    GMPO,
    GRPO,
    GSPO,
    LUSPO,
    PKPO,
    PPO,
    RLOO,
    SAPO,
    SDPO,
    TOPR,
    VAPO,
    VESPO,
    Agent,
    Batch,
    ClipCov,
    Delightful,
    Distillation,
    DrGRPO,
    KLCov,
    MaxRL,
    Reinforce,
    ReinforceBaseline,
    ReinforcePlusPlus,
    Rollout,
)
from rlenv.agents.estimators import aggregation  # noqa: E402
from rlenv.agents.estimators.kl import RATIOS  # noqa: E402
from rlenv.agents.estimators.mismatch import MODES  # noqa: E402
from rlenv.agents.exact import World  # noqa: E402
from rlenv.agents.gradient_check import check_gradient  # noqa: E402

TOLERANCE = 1e-10
INTRODUCTION = """\
# The gradient, exactly

Which agents follow the true policy gradient, and how far the others are from it: the *expected* gradient of each
agent's real loss beside the true gradient. If these words are new, read [policy-gradient.md](../policy-gradient.md).

    rlenv check-gradient rloo grpo --group-size 2 --episodes 4 --tokens 2 --steps 3
    rlenv check-gradient my_file.py:MyAgent    # an agent of your own
    python docs/make_gradients.py              # this page and its picture; from the repository root

The figures are exact, not sampled: each possible rollout goes through the agent by itself, and is weighed by its
probability.

![The expected gradient of eight agents, each beside the true gradient](gradients.svg)

Grey is the true gradient, blue what the agent follows on average: its angle is the bias that matters, and its length
along the true gradient acts like a learning rate.

## How to read the tables

[The agents](#the-agents) are checked by `rlenv.agents.gradient_check.check_gradient`, with two prompts of four answers
each and two episodes per prompt: 256 rollouts. A policy has a logit vector per prefix; logits and rewards are random
numbers.

The other tables have a larger reference case: two prompts, an easy and a hard one, and rewards of 0, 0.5 or 1. There
are three tokens, one of which ends the episode, and at most three steps: 15 completions per prompt and 42 logits. The
true gradient is that of Σ_prompts 1/2 Σ_y π(y) R(y), by automatic differentiation; finite differences agree.

`tests/laws/test_gradient.py` asserts the rows that are exact, or scaled, those of the KL estimators, and those of
`RLOO` and `TOPR` with weights by token on an old rollout, to 1e-10. Each other bias it compares, rollout by rollout,
with the agent's equation in plain PyTorch (`tests/laws/equations.py`, which shares no code with `agents`).

| column | meaning |
| --- | --- |
| K | episodes per prompt; a rollout has N = 2K |
| error | `∣g - g*∣ / ∣g*∣`, of the expected gradient `g` and the true gradient `g*` |
| cosine | of the angle between `g` and `g*` |
| scale | `⟨g, g*⟩ / ⟨g*, g*⟩` |
| noise | the variance of one rollout's gradient, relative to the squared length of the true one |
| documented | the bias that the docstring states |"""

FAMILY = """\
## The agents

Every agent has its default settings unless the row says otherwise. The discount is 1, and the reward comes with the
last step, as in text. The ratio is 1, so clipping has no effect.

| agent | where its bias comes from |
| --- | --- |
| `GRPO`, `GSPO`, `GMPO`, `SAPO` | prompts with a small standard deviation weigh more, steps of long episodes less |
| `LUSPO` | prompts with a small standard deviation weigh more |
| `CISPO`, `VESPO`, `DPPO`, `KLCov` | prompts with a small standard deviation weigh more; the mean is over all tokens |
| `Delightful` | steps are gated by advantage times surprisal |
| `DAPO` | the mean is over the tokens of groups with unequal rewards |
| `ReinforcePlusPlus` | the mean and the standard deviation of the rollout include the token itself |

- **Scale.** Weights other than a sum over the episode multiply the gradient by a constant. `DrGRPO` divides it by
  L_max = 3. A mean over tokens multiplies it by about 1/(mean length), and whitening by about
  1/(standard deviation of the advantages). Such a constant acts like a learning rate, but counts as *error*. The cosine
  shows what a bias does to the direction.
- **A mean over tokens** divides by a number of tokens to which the episode itself contributes. This bias vanishes as
  rollouts grow; [below](#agents-with-a-critic) are figures.
- **`GSPO`**, **`GMPO`** and **`SAPO`** have the gradient of `GRPO` where the ratio is 1, **`VESPO`**, **`DPPO`** and
  **`KLCov`** that of `CISPO`: their gates, weights, masks and penalties are idle there.
- **`LUSPO`** is `GSPO` without 1/T_i. For rewards of 0 and 1, each prompt's success has its true direction, times a
  factor of its chance and K (asserted in the tests). For `VESPO` with a sum over each episode, k = 1 and λ = 0, that
  holds in later passes, too.
- **`Delightful`** acts in the first pass, and has another direction however large the rollout. For η → ∞ its gate is
  half open everywhere, and the gradient half of that of `ReinforceBaseline`.
- **`ClipCov`** is `CISPO` less the steps that it leaves out: here a fifth of them, with a covariance in (0.2, 5). The
  paper's range begins at 1, which these short episodes seldom reach.
- **The standard deviation of the batch** (`scale="batch"`) is the same factor for all prompts of a rollout, but the
  episode's own reward moves it, by about 1/N. In rollouts as small as these it biases the direction, too.
- **`DAPO`** has no gradient in a rollout without groups of unequal rewards. If such rollouts are left out of the
  expectation, the direction stays the same, and the scale is divided by the probability of the others. Resampling
  (`max_rounds` above 1) puts others in their place.
- **`ReinforcePlusPlus` with the group's mean as baseline** also trains on groups of equal rewards, because the mean of
  the whole rollout is subtracted from them."""

OBJECTIVES = """\
## Success in several attempts

`MaxRL` and `PKPO` follow the gradient of another objective than the expected reward, without bias. Here *error*,
*cosine* and *scale* are those to the gradient of the objective that the row names, a mean over prompts. *pass@1* is the
cosine to the true gradient of the expected reward. Rewards of 0.5 count as 0, except for the *best of k* and `GDPO`.

- **log p, order n** is -Σ_{k=1}^{n} (1-p)^k / k, the series of log p. Its gradient is Σ_{k=1}^{n} (1-p)^{k-1} ∇p.
  With K verdicts, `MaxRL` has exactly order K - 1.
- **pass@k** is 1 - (1-p)^k, and the **best of k** the expected highest of k rewards. `PKPO` has exactly these for every
  k up to K, with each baseline.
- **`GDPO`** has no objective of its own. Its parts are R, with weight 1, and 1/T_i, with weight 0.5; the true gradient
  is that of their weighted sum. The parts' standard deviations, 1/T_i and the spread of the rollout bias it."""

CRITICS = """\
## Agents with a critic

The critic is a table: *given* has random values that were never fitted, *perfect* has the policy's true values. The
reward comes with the last step, the discount is 1, and the ratio is 1.

- **The critic** biases the gradient if it is not perfect and λ is below 1.
- **A mean over tokens** divides by a number of tokens to which the episode itself contributes. This bias vanishes as
  rollouts grow: by the closed form, the cosine of `A2C` with the given critic and λ = 1 is
  {fading} for {sizes} episodes per rollout.
  With a sum over each episode instead, λ = 1 and the perfect critic are both exact (asserted in the tests).
- **A λ that depends on the episode's length** (`VAPO`, λ = 1 - 1/(α T_i)) biases the gradient, however good the critic
  is: how long an episode will be goes with what is still to come. With a sum over each episode, the perfect critic and
  α = {alphas}, the cosine is {adaptive}. With a fixed λ it is 1.
- **Whitening** (`PPO`, `VAPO`) takes a mean and a standard deviation that include the token itself."""

GAINS = """\
## Baselines, without discount

The objective is the expected return. A reward comes with every step, so that the two kinds of return differ;
for the batch's mean and "james-stein" at K = 2, those before the last depend on prompt and step alone, so that
completions are alike."""

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

ACTING = """\
## Acting and training differ: `mismatch`

What importance weights do if another policy μ sampled the episodes, here and in the tables of later passes: its logits
differ by 0.4 times a normal number each. The objective is the expected return of the policy π that trains; K = 2. Where
acting and training agree (to about 1e-5 in float32), all weights are 1 and every row is that of
[the agents](#the-agents). A weight costs one pass without gradient per update. For agents with a ratio, π_old is then
the policy of that pass, and the weight multiplies.

- **By episode**, without a bound, the gradient is exact whatever acted; its variance grows with the length.
- **By step**, the weight is right for the action, but the steps before and after it, and so the return, are those of μ.
- **A bound** biases the gradient, and limits the variance. Masked steps still count in the denominators."""

STALE = """\
## A rollout that is some updates old: `staleness`

Here μ is the policy before the last s updates. With an engine, `staleness` is 0 or 1; 2 and 4 show what more would
cost. The updates are deterministic steps along the exact gradient of the expected return, with a learning rate of
{rate:g}; π is the policy after {updates} of them, which raise the return from {first:.2f} to {last:.2f}. KL(μ ‖ π) is
{distances} nats per episode for s = {stale}. K = 2, but 1 for `TOPR`. With weights,
π_old is π, so clips and tapers are idle. Weights are at most 3, the default; that of a token is at most {largest:.2f}
here, so the bound acts on episodes alone.

With an engine, the default is `token-truncate` at 3. It is biased: the other steps of the episode, and so the return,
are those of μ, and an action that is now more than three times as likely counts three times.

- **One update** shortens the gradient by about a seventh and hardly turns it; the own biases of `GRPO` are larger. The
  bias grows about in proportion to s and to the learning rate: after four updates the direction is off, too.
- **Weights by token** help less than one may expect. In this case they lower the error of `RLOO` only at s = 4. At
  s = 1 they lower it in {fewer} of {tables} random tables of logits, and the median from {alone:.3f} to
  {weighted:.3f}.
- **Weights by episode** are exact until one reaches the bound, here at s = 4. These episodes have at most three steps;
  in longer ones the weights vary more.
- **`VESPO`**, here a sum over each episode, puts the weight into W, and counts episodes less whose W is far from 1. At
  s = 4 most are: the gradient is short, and its direction lost.
- **Without weights** (`none`), π_old is μ, so the clip of `GRPO` stops the steps that have improved: with two updates
  the direction is lost. In float32 the [limit on the gap](../gpu.md#precision) ends such a run."""

LATER = """\
## Later passes: gates, masks and tapers

The episodes come from μ = π_old, and π has moved since, as after `num_epochs` passes. K = 2, but 1 for `TOPR`. `DPPO`
is averaged over each episode here and `VESPO` summed, so that no weight looks at the whole rollout."""

LATER_KL = """\
## Later passes: the KL in the loss

Rewards are 0 and β = 1; the sampled actions are those of π_old. The objective is -Σ_t E[KL(π(·|s_t) ‖ ref(·|s_t))] of
the present π. `kl_ratio` multiplies the estimate by ρ = π/π_old of its step. A ratio per step leaves the states to
π_old, and lacks the effect on later states, which only `kl_in="reward"` has. With a constant ratio the first pass is
the one of [the KL anchor](#the-kl-anchor); a differentiated one makes k1 and k3 the KL(π, ref) state
by state there, too."""


TEACHER = """\
## Distillation

`Distillation` maximizes no reward: here g* is ∇ of -KL(π ‖ π_T) of whole completions, and the teacher π_T is another
random table. Its gradient is that of -Σ_t E[KL(π(·|s_t) ‖ π_T(·|s_t))] with the distribution of the states held fixed:
it lacks what an action does to later states. The three estimators have the same expectation.

`SDPO` is the same with a teacher that reads a hint: here the policy itself, held fixed, which reads the other
prompt."""

REPLIES = """\
## The loss on replies

`reply_coef` adds the gradient of the replies' log-likelihood to the agent's, in the states that the policy visits, as a
mean over the tokens of all replies of a rollout. It is no policy gradient: rewards do not count."""


class SpreadDPPO(DPPO):
    """DPPO whose steps are averaged over each episode."""

    weights = staticmethod(aggregation.sequence_mean)


class SummedVAPO(VAPO):
    """VAPO whose steps are summed over each episode."""

    weights = staticmethod(aggregation.sequence_sum)


class SummedVESPO(VESPO):
    """VESPO whose steps are summed over each episode."""

    weights = staticmethod(aggregation.sequence_sum)


STD = "the group's std"
FAMILY_CASES: tuple[tuple[type[Agent], dict[str, Any], str], ...] = (
    (Reinforce, {}, "exact"),
    (ReinforceBaseline, {}, "exact"),
    (ReinforceBaseline, {"baseline": "group-mean"}, "scaled by (K-1)/K"),
    (ReinforceBaseline, {"baseline": "batch-mean"}, "scaled by (N-1)/N"),
    (ReinforceBaseline, {"baseline": "james-stein"}, "exact"),
    (ReinforceBaseline, {"baseline": "greedy"}, "exact"),
    (RLOO, {}, "exact"),
    (TOPR, {}, "exact"),
    (Delightful, {}, "gated"),
    (Delightful, {"gate_width": 1e13}, "scaled by 1/2"),
    (DrGRPO, {}, "scaled by (K-1)/(K L_max)"),
    (GRPO, {}, f"1/T_i; {STD}"),
    (GSPO, {}, f"1/T_i; {STD}"),
    (LUSPO, {}, STD),
    (GMPO, {}, f"1/T_i; {STD}"),
    (SAPO, {}, f"1/T_i; {STD}"),
    (GRPO, {"scale": "batch"}, "1/T_i; the batch's std"),
    (DAPO, {"max_rounds": 1}, f"token mean of groups kept; {STD}"),
    (CISPO, {}, f"token mean; {STD}"),
    (CISPO, {"scale": "batch"}, "token mean; the batch's std"),
    (VESPO, {}, f"token mean; {STD}"),
    (DPPO, {}, f"token mean; {STD}"),
    (KLCov, {}, f"token mean; {STD}"),
    (ClipCov, {"share": 0.2, "min_covariance": 0.2}, "CISPO's, less some steps"),
    (ReinforcePlusPlus, {}, "token mean; whitened"),
    (ReinforcePlusPlus, {"baseline": "group-mean"}, "token mean; whitened"),
)
BASELINES = {
    "none": "exact",
    "running-mean": "exact",
    "value": "exact",
    "leave-one-out": "exact",
    "length-weighted": "exact",
    "optimal-token": "exact",
    "james-stein": "exact",
    "greedy": "exact",
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
LATER_KL_TERMS = {
    ("k1", "none"): "-∇KL(π_old, π): away from π_old",
    ("k1", "constant"): "zero",
    ("k1", "differentiated"): "∇KL(π, ref) state by state",
    ("k2", "none"): "E_old[log(π/ref) ∇log π]",
    ("k2", "constant"): "∇KL(π, ref) state by state",
    ("k2", "differentiated"): "∇E[k2] state by state",
    ("k3", "none"): "E_old[(1 - r) ∇log π]",
    ("k3", "constant"): "∇KL(ref, π) state by state",
    ("k3", "differentiated"): "∇KL(π, ref) state by state",
}
STALE_CASES: tuple[tuple[type[Agent], str, str], ...] = (
    (RLOO, "none", "no weights"),
    (RLOO, "token-truncate", "other steps of μ"),
    (RLOO, "sequence-truncate", "exact below the bound"),
    (GRPO, "none", f"1/T_i; {STD}; clipped"),
    (GRPO, "token-truncate", f"1/T_i; {STD}; other steps of μ"),
    (CISPO, "token-truncate", f"token mean; {STD}; other steps of μ"),
    (TOPR, "token-truncate", "other steps of μ"),
    (SummedVESPO, "sequence-truncate", f"{STD}; weighted"),
)
DRAWN = {  # rows of the table of agents: agent, settings, K
    ("RLOO", "-", "2"): "RLOO",
    ("DrGRPO", "-", "2"): "Dr. GRPO",
    ("GRPO", "-", "2"): "GRPO",
    ("DAPO", "max_rounds 1", "2"): "DAPO",
    ("GRPO", "scale batch", "2"): "GRPO, scale batch",
    ("ReinforcePlusPlus", "-", "2"): "REINFORCE++",
    ("A2C", "given critic, λ = 1", "1"): "A2C, unfitted critic",
    ("A2C", "perfect critic, λ = 0.5", "1"): "A2C, perfect critic",
}
# A reward comes with every step, but those before the last depend on prompt and t alone, so that completions are alike.
AT_EVERY_LENGTH = AT_THE_END + torch.tensor(
    [
        [[(1 + p + 2 * len(prefix)) / 2 * (after >= 0) for after in NEXT[s]] for s, prefix in enumerate(PREFIXES)]
        for p in range(P)
    ]
)
WEIGHTS = {"right": 1.0, "short": 0.5}  # of the parts "right", R, and "short", 1/T_i
SUM = AT_THE_END + WORLD.at_the_end((WEIGHTS["short"] / MASK.sum(1).double()).expand(P, C))  # the parts' sum [P, S, V]
SIZES = (2, 4)
SIZES_OF_BASELINES = {"batch-mean": (1, 2), "james-stein": (2,)}
SIZES_OF_ROLLOUTS = (2, 3)  # every joint rollout is prepared by itself
STALENESS = (0, 1, 2, 4)
TABLES = 12  # of logits, for a median
RATE = 8.0
ALPHAS = (0.4, 1.0, 3.0)  # of VAPO; with at most three steps, the paper's 0.05 is λ = 0
CRITIC_CASES = (("given", 1.0), ("given", 0.5), ("perfect", 0.5))
Case = tuple[str, str, int, torch.Tensor, str]  # agent, settings, K, found, documented
FIGURES = ("error", "cosine", "scale", "documented")


def main() -> None:
    """Write the page and print it, and draw the picture."""
    if sys.argv[1:] != ["--redraw"]:
        PAGE.write_text(page(), encoding="utf-8", newline="\n")
        print(PAGE.read_text(encoding="utf-8"))
    draw(PAGE.read_text(encoding="utf-8"), PAGE.with_suffix(".svg"))


def draw(tables: str, path: Path) -> None:
    """Draw each agent's expected gradient beside the true one, from the tables of the page.

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
        axes.set(xlim=(-0.1, 2.0), ylim=(-0.35, 1.6), aspect="equal", xticks=[], yticks=[])
        axes.set_title(DRAWN[key], fontsize=10)
        axes.set_xlabel(f"{math.degrees(angle):.0f}° off, {scale:.2f} along", fontsize=9)
    figure.savefig(path, metadata={"Date": None})


def page() -> str:
    """Return the page."""
    parts = [
        INTRODUCTION,
        FAMILY,
        table(("agent", "settings", "K"), family_rows(), ("error", "cosine", "scale", "noise", "documented")),
        critics_text(),
        table(("agent", "settings", "K"), agent_rows(critic_cases())),
        GAINS,
        table(("agent", "baseline", "returns", "K"), gain_rows()),
        DISCOUNT,
        table(("agent", "baseline", "returns", "K"), discount_rows()),
        ANCHOR,
        table(("estimator", "in the"), anchor_rows()),
        OBJECTIVES,
        table(("agent", "settings", "K", "objective", "pass@1"), objective_rows()),
        TEACHER,
        table(("agent", "estimator or divergence", "K"), teacher_rows()),
        REPLIES,
        ACTING,
        table(("agent", "weights", "bounds"), acting_rows()),
        stale_text(),
        table(("agent", "weights", "staleness"), stale_rows()),
        LATER,
        table(("agent", "settings"), later_rows()),
        LATER_KL,
        table(("estimator", "ratio"), later_kl_rows()),
    ]
    return "\n\n".join(parts) + "\n"


def critics_text() -> str:
    """Return the text about agents with a critic with its figures in it."""
    policy, sizes = TabularPolicy(), (1, 4, 16, 64)
    true, gradients = true_gradient(policy).flatten(), [token_mean_gradient(policy, size).flatten() for size in sizes]
    return CRITICS.format(
        fading=_listed(f"{float(torch.cosine_similarity(found, true, 0)):.4f}" for found in gradients),
        sizes=_listed(str(2 * size) for size in sizes),
        alphas=_listed(f"{alpha:g}" for alpha in ALPHAS),
        adaptive=_listed(f"{float(torch.cosine_similarity(found, true, 0)):.4f}" for found in _adaptive(policy)),
    )


def _adaptive(policy: TabularPolicy) -> Iterator[torch.Tensor]:
    """Yield the expected gradient with each λ that depends on the length, a perfect critic and no mean over tokens."""
    for alpha in ALPHAS:
        agent = make_agent(SummedVAPO, length_alpha=alpha, normalize_advantage=False)
        agent.policy.table.data = exact_values(policy, AT_THE_END)
        yield expected_gradient(agent).flatten()


def token_mean_gradient(policy: TabularPolicy, size: int) -> torch.Tensor:
    """Return the expected gradient of `A2C` with λ = 1 in closed form, for rollouts too large to enumerate [P, S, V].

    That is E Σ_i 1/n Σ_t (R_i - V(s_t)) ∇log π, with n the tokens of a rollout of K episodes of each prompt.
    """
    lengths, log_pi = MASK.sum(1), completion_log_probs(policy.logits.log_softmax(-1))  # [C], [P, C]
    pi = log_pi.detach().exp()
    spread = [torch.zeros(T + 1).double().index_add(0, lengths, pi[p]).numpy() for p in range(P)]
    loss = torch.zeros(())
    for p in range(P):
        rest = np.ones(1)
        for other in [p] * (size - 1) + [1 - p] * size:
            rest = np.convolve(rest, spread[other])
        n = lengths[:, None] + torch.arange(len(rest))
        share = size * pi[p] * (torch.from_numpy(rest) / n).sum(1)  # [C]
        advantages = (LEVELS[p][:, None] - policy.table.detach()[p, STATES]).where(MASK, 0)
        steps = policy.logits[p].log_softmax(-1)[STATES, ACTIONS].where(MASK, 0)
        loss = loss + (share[:, None] * advantages * steps).sum()
    return torch.autograd.grad(loss, policy.logits)[0]


def agent_rows(cases: Iterable[Case]) -> Iterator[list[str]]:
    """Yield a row per agent, its main setting and group size."""
    true = true_gradient(TabularPolicy())
    for agent, settings, size, found, words in cases:
        yield [f"`{agent}`", settings, str(size), *figures(found, true, words)]


def family_rows() -> Iterator[list[str]]:
    """Yield a row per agent without a critic, and setting that matters."""
    world, generator = World(tokens=2, steps=3, end=0), torch.Generator().manual_seed(0)
    torch.randn(P, len(world.prefixes), world.tokens, generator=generator, dtype=torch.float64)  # the policy's logits
    rewards = torch.rand(P, len(world.completions), generator=generator, dtype=torch.float64)
    for cls, settings, words in FAMILY_CASES:
        found = check_gradient(cls, 2, 4, world, rewards, updates=False, **settings)
        shown = {name: f"{value:g}" if isinstance(value, float) else value for name, value in settings.items()}
        named = ", ".join(f"{name} {value}" for name, value in shown.items()) or "-"
        cells = (_error(found.error), f"{found.direction:.4f}", f"{found.scale:.4f}", f"{found.noise:.1f}")
        yield [f"`{cls.__name__}`", named, "2", *cells, words]


def expected_batch_gradient(
    agent: Agent,
    rewards: torch.Tensor = AT_THE_END,
    size: int = 1,
    alike: Sequence[int] = (),
    sampler: TabularPolicy | None = None,
) -> torch.Tensor:
    """Return the same where advantages look at the whole rollout: every joint rollout is prepared by itself."""
    table, library = coefficients(agent, rewards, size, alike, sampler)
    return gradient(agent, replace(agent.prepare(library), advantages=table, weights=library.mask.double()))


def coefficients(
    agent: Agent, rewards: torch.Tensor, size: int, alike: Sequence[int] = (), sampler: TabularPolicy | None = None
) -> tuple[torch.Tensor, Rollout]:
    """Return the expected weights · advantages of every completion [P * C, T], and those episodes as a rollout.

    Args:
        agent: prepares every joint rollout of one group a prompt; it may drop episodes.
        rewards: [P, S, V].
        size: K.
        alike: the prompts of which one completion stands for all that last as long and have the same rewards at
            every step (and values, if the agent uses a critic), with their joint probability: for advantages that see
            nothing else of an episode.
        sampler: of the episodes; the agent's policy if omitted.
    """
    prompts = torch.arange(P).repeat_interleave(C)
    library = episodes(sampler or agent.policy, rewards, prompts, torch.arange(C).repeat(P), prompts)
    library = replace(library, success=torch.arange(P * C).double())  # a label that stays with its row
    merged = torch.isin(prompts, torch.tensor(alike))
    stand_in = _first_alike(agent, library).where(merged, torch.arange(P * C))  # [P * C]
    chance = library.log_probs.sum(1).exp()
    together = torch.zeros_like(chance).index_add(0, stand_in, chance)
    probability, kinds = together.tolist(), stand_in.unique().tolist()
    seconds = list(multisets(size, [row for row in kinds if row >= C]))
    credited, credit = [], []  # of [n], [n, T]
    for first, first_orders in multisets(size, [row for row in kinds if row < C]):
        rollouts = library.select(torch.tensor([[*first, *second] for second, _ in seconds]).flatten())
        chance_of_first = first_orders * math.prod(probability[row] for row in first)
        for (second, orders), rollout in zip(seconds, rollouts.split(P * size), strict=True):
            weight = chance_of_first * orders * math.prod(probability[row] for row in second)
            prepared = agent.prepare(rollout)
            credited.append(prepared.success)
            credit.append(prepared.weights * prepared.advantages * weight)
    table = torch.zeros(P * C, T, dtype=torch.float64).index_add(0, torch.cat(credited).long(), torch.cat(credit))
    return table[stand_in] * (chance / together[stand_in])[:, None], library


@torch.no_grad()
def _first_alike(agent: Agent, library: Rollout) -> torch.Tensor:
    """Return, for each row, the first row of the same prompt, length, rewards and values [P * C]."""
    values = [agent.policy.values(library)] if agent.uses_critic else []
    seen = torch.cat([library.groups[:, None], library.mask, library.rewards, *values], 1)
    return (seen[:, None] == seen).all(-1).double().argmax(1)


def with_parts(agent: Agent, **constant: float) -> Agent:
    """Return the agent in an environment whose verdicts have the parts "right", R, and "short", 1/T_i.

    Args:
        agent: of the tiny world.
        constant: further parts that are the same for all.
    """
    prepare = agent.prepare

    def prepared(rollout: Rollout) -> Batch:
        parts = {"right": rollout.returns, "short": 1 / rollout.lengths.double()}
        parts |= {name: torch.full_like(rollout.returns, value) for name, value in constant.items()}
        return prepare(replace(rollout, extras={f"parts/{name}": part for name, part in parts.items()}))

    agent.prepare = prepared
    return agent


def objective_rows() -> Iterator[list[str]]:
    """Yield the agents that have other objectives."""
    policy, sampled = TabularPolicy(), {"episodes_per_update": 36}
    for size in (2, 3, 4):
        found = expected_gradient(make_agent(MaxRL, size, **sampled), SOLVED, size)
        true = objective_gradient(policy, partial(truncated_log_likelihood, order=size - 1), SOLVED)
        yield _objective_row("MaxRL", "-", size, f"log p, order {size - 1}", found, true, SOLVED, "exact")
    for k, baseline in ((1, "loo-1"), (2, "loo-1"), (4, "loo-1"), (4, "loo"), (4, "none")):
        found = expected_gradient(make_agent(PKPO, 4, k=k, baseline=baseline), SOLVED, 4)
        true = objective_gradient(policy, partial(expected_best, k=k), SOLVED)
        yield _objective_row("PKPO", f"k = {k}, {baseline}", 4, f"pass@{k}", found, true, SOLVED, "exact")
    for k in (2, 4):
        found = expected_gradient(make_agent(PKPO, 4, k=k), AT_THE_END, 4)
        true = objective_gradient(policy, partial(expected_best, k=k), AT_THE_END)
        yield _objective_row("PKPO", f"k = {k}", 4, f"best of {k}", found, true, AT_THE_END, "exact")
    for size in SIZES_OF_ROLLOUTS:
        agent = with_parts(make_agent(GDPO, size, part_weights=WEIGHTS, **sampled))
        found, true = expected_batch_gradient(agent, AT_THE_END, size, range(P)), true_gradient(policy, SUM)
        words = "1/T_i; every part's std; whitened"
        yield _objective_row("GDPO", "-", size, "the weighted sum", found, true, AT_THE_END, words)


def _objective_row(
    agent: str,
    settings: str,
    size: int,
    objective: str,
    found: torch.Tensor,
    true: torch.Tensor,
    rewards: torch.Tensor,
    words: str,
) -> list[str]:
    plain = true_gradient(TabularPolicy(), rewards)
    cosine = float((found * plain).sum() / (found.norm() * plain.norm()))
    return [f"`{agent}`", settings, str(size), objective, f"{cosine:.4f}", *figures(found, true, words)]


def critic_cases() -> Iterator[Case]:
    """Yield the agents with a critic."""
    for critic, lam in CRITIC_CASES:
        for cls, settings, words in (
            (A2C, {}, "token mean"),
            (PPO, {"normalize_advantage": False}, "token mean"),
            (PPO, {}, "token mean; whitened"),
        ):
            agent = make_agent(cls, gae_lambda=lam, **settings)
            if critic == "perfect":
                agent.policy.table.data = exact_values(agent.policy, AT_THE_END)
            plain = ", not whitened" if settings else ""
            yield cls.__name__, f"{critic} critic, λ = {lam:g}{plain}", 1, expected_batch_gradient(agent), words
    for critic, whitened in (("given", False), ("given", True), ("perfect", False), ("perfect", True)):
        agent = make_agent(VAPO, length_alpha=1.0, normalize_advantage=whitened)
        if critic == "perfect":
            agent.policy.table.data = exact_values(agent.policy, AT_THE_END)
        words, plain = "token mean; λ by length", ", not whitened"
        if whitened:
            words, plain = f"{words}; whitened", ""
        yield "VAPO", f"{critic} critic, α = 1{plain}", 1, expected_batch_gradient(agent), words


def gain_rows() -> Iterator[list[str]]:
    """Yield a row per agent, baseline, return and group size."""
    agent = make_agent(Reinforce)
    true = true_gradient(agent.policy, AT_EVERY_STEP)
    found = expected_gradient(agent, AT_EVERY_STEP, 4)
    yield ["`Reinforce`", "-", "episode", "4", *figures(found, true, "exact")]
    for baseline, words in BASELINES.items():
        for returns in ("return-to-go", "episode"):
            for size in SIZES_OF_BASELINES.get(baseline, SIZES):
                agent = make_agent(baseline=baseline, returns=returns, group_size=size)
                rewards = AT_EVERY_STEP
                if baseline in ("batch-mean", "james-stein"):  # which look at the whole rollout
                    rewards, alike = (AT_EVERY_STEP, ()) if size == 1 else (AT_EVERY_LENGTH, range(P))
                    found = expected_batch_gradient(agent, rewards, size, alike)
                else:
                    found = expected_gradient(agent, rewards, size)
                true = true_gradient(agent.policy, rewards)
                yield ["`ReinforceBaseline`", baseline, returns, str(size), *figures(found, true, words)]


def discount_rows() -> Iterator[list[str]]:
    """Yield a row per kind of return."""
    agent = make_agent(Reinforce, gamma=0.9)
    true = true_gradient(agent.policy, AT_THE_END, 0.9)
    yield ["`Reinforce`", "-", "episode", "4", *figures(expected_gradient(agent, size=4), true, "exact")]
    for returns, words in (("episode", "exact"), ("return-to-go", "leaves out γ^t")):
        agent = make_agent(baseline="leave-one-out", returns=returns, gamma=0.9)
        found = expected_gradient(agent, size=4)
        yield ["`ReinforceBaseline`", "leave-one-out", returns, "4", *figures(found, true, words)]


def teacher_rows() -> Iterator[list[str]]:
    """Yield a row per estimator of distillation."""
    for estimator in ("sampled", "centred", "exact"):
        agent = make_agent(Distillation, 1, estimator=estimator)
        teacher = agent.anchor.reference
        cells = figures(expected_gradient(agent), kl_gradient(agent.policy, teacher), "∇KL state by state")
        yield ["`Distillation`", estimator, "1", *cells]
    for divergence in ("kl", "forward-kl", "jensen-shannon"):
        agent = make_agent(SDPO, 1, Told, teacher_weights="live", divergence=divergence)
        teacher = reading_the_other_prompt(agent.policy)
        words = "∇KL state by state" if divergence == "kl" else "∇ of another divergence, state by state"
        cells = figures(expected_gradient(agent), kl_gradient(agent.policy, teacher), words)
        yield ["`SDPO`", divergence, "1", *cells]


def anchor_rows() -> Iterator[list[str]]:
    """Yield a row per KL estimator and place."""
    for (estimator, place), words in KL_TERMS.items():
        agent = make_agent(kl_coef=1.0, kl_estimator=estimator, kl_in=place)
        true = kl_gradient(agent.policy, agent.anchor.reference)
        found = expected_gradient(agent, torch.zeros_like(AT_THE_END), 2)
        yield [estimator, place, *figures(found, true, words)]


def later_gradient(agent: Agent, size: int, rewards: torch.Tensor = AT_THE_END) -> torch.Tensor:
    """Return the expected gradient of the agent in a later pass: its policy has moved since it sampled [P, S, V]."""
    rollout, probability = every_group(agent.policy, rewards, size)
    prepared = agent.prepare(rollout)
    moved_policy(agent.policy)
    prepared.weights = prepared.weights * (len(rollout) / (P * size) * probability)[:, None]
    return gradient(agent, prepared)


def acting_rows() -> Iterator[list[str]]:
    """Yield a row per mode and bound of the weights of what another policy sampled."""
    cases = [("-", 0.0, None), *((mode, 0.0, None) for mode in MODES if "truncate" in mode)]
    cases += [(mode, low, high) for mode in MODES for low, high in ((0.0, 3.0), (0.7, 1.4))]
    for mode, low, high in cases:
        settings = {} if mode == "-" else {"mismatch": mode, "mismatch_min": low, "mismatch_max": high}
        agent = make_agent(RLOO, 2, **settings)
        found = expected_gradient(agent, AT_THE_END, 2, moved_policy(agent.policy))
        exact = mode == "sequence-truncate" and high is None
        words = "exact" if exact else "no weights" if mode == "-" else f"the weights, by {mode.split('-')[0]}"
        bounds = "-" if high is None else f"{low:g} to {high:g}"
        yield ["`RLOO`", mode, bounds, *figures(found, true_gradient(agent.policy), words)]


def stale_gradient(cls: type[Agent], weights: str, policies: Sequence[TabularPolicy], staleness: int) -> torch.Tensor:
    """Return the expected gradient of the last policy, from a rollout of the one some updates before it [P, S, V]."""
    size, sampler = 1 if cls is TOPR else 2, policies[-1 - staleness]
    agent = make_agent(cls, size, mismatch=weights)
    agent.policy.load_state_dict(policies[-1].state_dict())
    if cls is CISPO:  # its mean over tokens looks at the whole rollout
        return expected_batch_gradient(agent, AT_THE_END, size, range(P), sampler)
    return expected_gradient(agent, AT_THE_END, size, sampler)


def stale_rows() -> Iterator[list[str]]:
    """Yield a row per agent, its weights and the updates since its rollout."""
    policies = updated_policies(TabularPolicy(), max(STALENESS), RATE)
    true = true_gradient(policies[-1])
    for cls, weights, words in STALE_CASES:
        for staleness in STALENESS:
            found = stale_gradient(cls, weights, policies, staleness)
            yield [f"`{cls.name.upper()}`", weights, str(staleness), *figures(found, true, words)]


def stale_text() -> str:
    """Return the text about rollouts that are some updates old with its figures in it."""
    runs = [updated_policies(TabularPolicy(seed), max(STALENESS), RATE) for seed in range(TABLES)]
    laws = [policy.logits.detach().log_softmax(-1) for policy in runs[0]]
    wholes = [completion_log_probs(law) for law in laws]  # [P, C]
    stale = STALENESS[1:]
    kls = [(wholes[-1 - s].exp() * (wholes[-1 - s] - wholes[-1])).sum(1).mean() for s in stale]
    first, last = ((whole.exp() * LEVELS).sum(1).mean() for whole in (wholes[0], wholes[-1]))
    alone, weighted = (
        [relative_error(stale_gradient(RLOO, weights, run, 1), true_gradient(run[-1])) for run in runs]
        for weights in ("none", "token-truncate")
    )
    return STALE.format(
        rate=RATE,
        updates=max(STALENESS),
        first=first,
        last=last,
        distances=_listed(f"{float(kl):.3f}" for kl in kls),
        stale=_listed(map(str, stale)),
        largest=max(float((laws[-1] - law).max().exp()) for law in laws),
        fewer=sum(some < all_ for some, all_ in zip(weighted, alone, strict=True)),
        tables=TABLES,
        alone=np.median(alone),
        weighted=np.median(weighted),
    )


def later_rows() -> Iterator[list[str]]:
    """Yield a row per agent with a limit on later passes, and setting."""
    gates = {"gate_temperature": 5.0, "gate_temperature_negative": 5.0}
    plain = {"power": 1.0, "decay": 0.0, "power_negative": 1.0, "decay_negative": 0.0}
    cases: tuple[tuple[str, Agent, int, str, str], ...] = (
        ("LUSPO", make_agent(LUSPO, 2, clip_range=0.2, clip_range_high=0.2), 2, "ε = 0.2, 0.2", f"{STD}; clipped"),
        ("GMPO", make_agent(GMPO, 2), 2, "ε = 0.33, 0.49", "GRPO's, geometric"),
        ("SAPO", make_agent(SAPO, 2), 2, "τ = 1, 1.05", "GRPO's, gated"),
        ("SAPO", make_agent(SAPO, 2, **gates), 2, "τ = 5, 5", "GRPO's, gated"),
        ("VESPO", make_agent(SummedVESPO, 2), 2, "k, λ = 2, 3 and 3, 2", f"{STD}; weighted"),
        ("VESPO", make_agent(SummedVESPO, 2, **plain), 2, "k, λ = 1, 0", STD),
        *(
            ("DPPO", make_agent(SpreadDPPO, 2, max_moved=most), 2, f"δ = {most:g}", "GRPO's, masked")
            for most in (0.2, 0.05)
        ),
        *(("TOPR", make_agent(TOPR, threshold=c), 1, f"c = {c:g}", "tapered") for c in (0.5, 0.2)),
    )
    for name, agent, size, settings, words in cases:
        found = later_gradient(agent, size)
        yield [f"`{name}`", settings, *figures(found, true_gradient(agent.policy), words)]


def later_kl_rows() -> Iterator[list[str]]:
    """Yield a row per KL estimator in the loss and ratio."""
    for estimator in ("k1", "k2", "k3"):
        for ratio in RATIOS:
            agent = make_agent(RLOO, 2, kl_coef=1.0, kl_estimator=estimator, kl_in="loss", kl_ratio=ratio)
            found = later_gradient(agent, 2, torch.zeros_like(AT_THE_END))
            true = kl_gradient(agent.policy, agent.anchor.reference)
            yield [estimator, ratio, *figures(found, true, LATER_KL_TERMS[estimator, ratio])]


def figures(found: torch.Tensor, true: torch.Tensor, words: str) -> list[str]:
    """Return the cells under `FIGURES` for an expected gradient and the true one."""
    dot = float((found * true).sum())
    cosine = f"{dot / float(found.norm() * true.norm()):.4f}" if found.norm() > TOLERANCE else "-"
    scale = dot / float(true.square().sum())
    scale_text = f"{0.0 if abs(scale) < TOLERANCE else scale:.4f}"
    return [_error(relative_error(found, true)), cosine, scale_text, words]


def table(keys: Sequence[str], rows: Iterator[list[str]], figures: Sequence[str] = FIGURES) -> str:
    """Return a Markdown table."""
    heads = [*keys, *figures]
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}"


def _error(value: float) -> str:
    return "< 1e-10" if value < TOLERANCE else f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"


if __name__ == "__main__":
    main()
