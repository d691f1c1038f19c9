"""How much noise each baseline leaves in the gradient of SmolLM2-135M-Instruct, for sums in words.

    python examples/real_model/baseline_noise.py    # two minutes of a CPU core; --help for sizes

The noise of the gradient of all 135 million weights is measured without a gradient. Along a random direction v, the
score of a token is the slope of its log-probability, which two forward passes give for all tokens of all answers at
once; the mean over directions of the variance along v is the trace of the gradient's covariance.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import replace

import torch
from sums import Sums

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import Collector, LanguageModelPolicy, Rollout, make_envs
from rlenv.agents.estimators.baselines import BASELINES
from rlenv.agents.estimators.returns import hold_last, return_to_go
from rlenv.agents.language.loading import model_folder

NAMES = ("leave-one-out", "length-weighted", "optimal-token")
STEP = 5e-4  # of the weights along a direction
PARTITIONS = 200  # of the answers into groups


def sample(most: int, prompts: int, answers: int, temperature: float, seed: int) -> tuple[LanguageModelPolicy, Rollout]:
    """Return the model, and its answers to sums of numbers up to `most`, prompt by prompt."""
    verifier, rng, place = Sums(most), random.Random(seed), str(model_folder("smollm2"))
    task = {
        "verifier": verifier, "problems": [verifier.sample(rng) for _ in range(prompts)], "test_fraction": 0.0,
        "tokenizer": place, "chat": True, "max_new_tokens": 16, "group_size": answers,
    }  # fmt: skip
    envs = make_envs("TextGen-v0", prompts * answers, task)
    policy = LanguageModelPolicy(
        envs.single_observation_space, envs.single_action_space, place, temperature=temperature
    )
    collector = Collector(envs, torch.device("cpu"))
    collector.seed(seed)
    rollout = collector.collect(policy, prompts * answers, torch.Generator().manual_seed(seed))
    assert rollout is not None
    return policy, rollout.select(rollout.groups.argsort(stable=True))


@torch.no_grad()
def scores_along(policy: LanguageModelPolicy, rollout: Rollout, seed: int, step: float = STEP) -> torch.Tensor:
    """Return ⟨∇ log π(a_t), v⟩ of every token [N, T], by central differences; v is drawn from a standard normal."""
    weights = list(policy.parameters())
    kept = [weight.clone() for weight in weights]
    found = []
    for side in (step, -step):
        generator = torch.Generator().manual_seed(seed)
        for weight, start in zip(weights, kept, strict=True):
            weight.copy_(start + side * torch.randn(start.shape, generator=generator))
        found.append(policy.evaluate(rollout)["log_probs"].double())
    for weight, start in zip(weights, kept, strict=True):
        weight.copy_(start)
    return (found[0] - found[1]) / (2 * step)


def noise(rollout: Rollout, scores: torch.Tensor, baseline: str, size: int, seed: int) -> torch.Tensor:
    """Return K times the variance of the gradient estimate of groups of K, for each prompt [P].

    Args:
        rollout: with score norms; the answers to a prompt are neighbours.
        scores: of every token along D directions [D, N, T].
        baseline: its name.
        size: K, a divisor of the number of answers per prompt.
        seed: of the partitions into groups.
    """
    gains = hold_last(return_to_go(rollout.rewards.double(), rollout.mask), rollout.mask)
    prompts = rollout.groups.unique(return_inverse=True)[1]
    per_prompt = int((prompts == 0).sum())
    generator = torch.Generator().manual_seed(seed)
    total = torch.zeros(int(prompts.max()) + 1, dtype=torch.float64)
    for _ in range(PARTITIONS):
        place = torch.rand(len(total), per_prompt, generator=generator).argsort(1).flatten()  # within its prompt
        groups = prompts * (per_prompt // size) + place // size
        advantages = gains - BASELINES[baseline]()(gains, replace(rollout, groups=groups))
        credit = (scores * advantages.where(rollout.mask, 0)).sum(2) / size  # [D, N]
        estimates = torch.zeros(len(scores), len(gains) // size, dtype=torch.float64).index_add(1, groups, credit)
        total += size * estimates.view(len(scores), len(total), -1).var(2).mean(0)
    return total / PARTITIONS


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Return the noise per episode of each baseline and K, over that of leave-one-out at the smallest K."""
    policy, rollout = sample(options.most, options.prompts, options.answers, options.temperature, options.seed)
    rollout = rollout.with_extras(score_norms=policy.evaluate(rollout, ("score_norms",))["score_norms"].double())
    scores = torch.stack([scores_along(policy, rollout, seed) for seed in range(options.directions)])
    first = noise(rollout, scores, "leave-one-out", options.sizes[0], options.seed)
    table: dict[str, dict[str, list[float]]] = {}
    for name in NAMES:
        for size in options.sizes:
            each = noise(rollout, scores, name, size, options.seed)
            ratio = each.sum() / first.sum()
            error = (each - ratio * first).std() * len(each) ** 0.5 / first.sum()  # of a ratio, over prompts
            table.setdefault(name, {})[f"K = {size}"] = [round(float(ratio), 3), round(float(error), 3)]
    rates = rollout.returns.view(options.prompts, -1).mean(1)
    lengths = rollout.lengths.double().view(options.prompts, -1)
    return {
        "noise per episode, its standard error over prompts": table,
        "success rates": [round(float(rate), 3) for rate in rates],
        "mean length": round(float(lengths.mean()), 2),
        "score norm per token, right and wrong answers": [
            round(float(rollout.extras["score_norms"][rows].sum() / rollout.mask[rows].sum()), 3)  # type: ignore[index]
            for rows in (rollout.returns == 1, rollout.returns == 0)
        ],
    }


def main() -> None:
    """Measure, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--answers", type=int, default=32, help="per prompt")
    parser.add_argument("--directions", type=int, default=4)
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 8, 16], help="K")
    parser.add_argument("--most", type=int, default=20, help="the largest number")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0)
    print(json.dumps(measure(parser.parse_args()), indent=2))


if __name__ == "__main__":
    main()
