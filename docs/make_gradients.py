"""Measure the gradient of every agent against the exact one and write the page docs/gradients.md."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from tabular import (  # noqa: E402 (its folder is no package)
    AT_EVERY_STEP,
    AT_THE_END,
    documented_kl_gradient,
    expected_batch_gradient,
    expected_gradient,
    kl_gradient,
    make_agent,
    relative_error,
    return_to_go_gradient,
    true_gradient,
)

from agents import Reinforce  # noqa: E402

TOLERANCE = 1e-10
INTRODUCTION = """\
# The gradient, exactly

What this page shows: for every agent, baseline, return and KL estimator, the *expected* gradient of the real agent's
loss, next to the true gradient it should have. No sampling is involved, so there is no noise: every rollout that can
happen is sent through `Agent.prepare` and `Agent.loss` and weighted by its probability.

The reference case: two prompts, an easy and a hard one; three tokens, one of which ends the episode; at most three
steps, hence 15 completions a prompt; a softmax policy with a logit vector for every prefix (42 logits), in float64;
rewards 0, 0.5 or 1. The true gradient is that of Σ_prompts 1/2 Σ_y π(y) R(y) by automatic differentiation; finite
differences agree. The closed forms of what is biased are in `tests/support/tabular.py` and share no code with `agents`.

The command: `python docs/make_gradients.py`, from the repository root. `tests/agents/test_exact_gradients.py` asserts
these rows and more.

How to read it: *error* is |g - g*| / |g*| of the expected gradient g against the true one g*, *cosine* their angle,
*scale* ⟨g, g*⟩ / ⟨g*, g*⟩. *Documented* is what the docstring promises, *off by* the relative distance from exactly
that, and the row *holds* where this is at most 1e-10. K episodes a prompt, N = 2K a rollout."""

GAINS = """\
## Baselines, without discount

The objective is the expected return. A reward comes with every step, so that the two kinds of return differ."""

DISCOUNT = """\
## Discount γ = 0.9

The objective is E[Σ_t γ^t r_t], with the reward at the last step, as in text. Return-to-go leaves out the factor γ^t
of step t: its gradient is Σ_t E[∇log π_t G_t]."""

ANCHOR = """\
## The KL anchor

No reward and β = 1, so all of the gradient is the anchor's; the objective is -Σ_t E[KL(π(·|s_t) ‖ ref(·|s_t))], which
is -KL(π ‖ ref) of whole completions. Leave-one-out over K = 2, return-to-go. d is "direct part", what is left of a
penalty's gradient when states and actions are drawn first."""

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
FIGURES = ("error", "cosine", "scale", "documented", "off by (tolerance 1e-10)", "holds")


def main() -> None:
    """Write the page and print it."""
    text = page()
    (ROOT / "docs" / "gradients.md").write_text(text, encoding="utf-8", newline="\n")
    print(text, end="")


def page() -> str:
    """Return the page."""
    parts = [
        INTRODUCTION,
        GAINS,
        table(("agent", "baseline", "returns", "K"), gain_rows()),
        DISCOUNT,
        table(("agent", "baseline", "returns", "K"), discount_rows()),
        ANCHOR,
        table(("estimator", "in the"), anchor_rows()),
    ]
    return "\n\n".join(parts) + "\n"


def gain_rows() -> Iterator[list[str]]:
    """Yield a row per agent, baseline, return and group size."""
    agent = make_agent(Reinforce)
    true = true_gradient(agent.policy, AT_EVERY_STEP)
    found = expected_gradient(agent, AT_EVERY_STEP, 4)
    yield ["`Reinforce`", "-", "episode", "4", *figures(found, true, true, "exact")]
    for baseline, words in BASELINES.items():
        for returns in ("return-to-go", "episode"):
            for size in (2, 4):
                if baseline == "batch-mean":
                    size //= 2  # joint rollouts of both prompts: 225 of 2 episodes, 14 400 of 4
                agent = make_agent(baseline=baseline, returns=returns, group_size=size)
                enumerate_ = expected_batch_gradient if baseline == "batch-mean" else expected_gradient
                found = enumerate_(agent, AT_EVERY_STEP, size)
                factor = {"group-mean": (size - 1) / size, "batch-mean": (2 * size - 1) / (2 * size)}.get(baseline, 1.0)
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


def _error(value: float) -> str:
    return "< 1e-10" if value < TOLERANCE else f"{value:.4f}" if value >= 1e-4 else f"{value:.1e}"


if __name__ == "__main__":
    main()
