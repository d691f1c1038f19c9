"""SmolLM2-135M-Instruct, and two jobs for it: sums with short answers, and stories of 64 tokens."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Agent, find_agent
from agents.policies.language.models.gguf import model_folder
from verifiers import FunctionVerifier, Problem

RATE = 2e-5
WHO = ("fox", "baker", "robot", "child", "sailor", "dragon", "teacher", "farmer", "ghost", "queen", "spider", "pilot")
WHAT = ("is lost in a forest", "finds a key", "learns to sing", "hates the rain", "wants a friend", "builds a boat")


def sums(count: int, seed: int) -> list[Problem]:
    """Return distinct sums of numbers from 2 to 30."""
    pairs = random.Random(seed).sample([(a, b) for a in range(2, 31) for b in range(2, 31)], count)
    return [_asked(f"What is {a} plus {b}? Answer with a number.", str(a + b)) for a, b in pairs]


def stories(count: int, seed: int) -> list[Problem]:
    """Return distinct wishes for a story."""
    wishes = random.Random(seed).sample([(who, what) for who in WHO for what in WHAT], count)
    return [_asked(f"Tell a short story about a {who} that {what}.", "") for who, what in wishes]


def _asked(question: str, answer: str) -> Problem:
    return Problem([{"role": "user", "content": question}], answer)


def right_number(completions: list[Any], answer: list[str], **rest: Any) -> list[float]:
    """Reward 1 for an answer whose last number is the right one."""
    found = (re.findall(r"\d+", text) for text in _texts(completions))
    return [float(bool(numbers) and numbers[-1] == right) for numbers, right in zip(found, answer, strict=True)]


def short_words(completions: list[Any], **rest: Any) -> list[float]:
    """Reward the share of letters in words of at most four: seldom the same for two answers, so each has a gradient."""
    each = (re.findall(r"[A-Za-z]+", text) for text in _texts(completions))
    return [sum(len(w) for w in words if len(w) <= 4) / max(sum(map(len, words)), 1) for words in each]


def _texts(completions: list[Any]) -> list[str]:
    return [completion[-1]["content"] for completion in completions]


@dataclass(frozen=True)
class Job:
    """An update of `groups` prompts with `k` answers of up to `tokens` tokens each, `updates` times per seed.

    Attributes:
        problems: returns some, given a number and a seed.
        reward: of completions, with TRL's signature.
        steps: updates per turn.
    """

    label: str
    problems: Callable[[int, int], list[Problem]]
    reward: Callable[..., list[float]]
    groups: int
    k: int
    tokens: int
    updates: int
    steps: int

    @property
    def batch(self) -> int:
        """Episodes per update."""
        return self.groups * self.k


JOBS = {
    "trl-smollm2": Job(
        "4 sums x 8 answers of at most 16", sums, right_number, groups=4, k=8, tokens=16, updates=24, steps=4
    ),
    "trl-smollm2-story": Job(
        "2 stories x 8 answers of 64", stories, short_words, groups=2, k=8, tokens=64, updates=12, steps=2
    ),
}


def model_place() -> str:
    """Return where the model is, in float32.

    Raises:
        ValueError: if the package that it comes in is not installed.
    """
    return str(model_folder("smollm2"))


def text_envs(job: Job, num_envs: int, count: int, seed: int = 0, tokenizer: Any = None, **kwargs: Any) -> Any:
    """Return a batched environment over `count` of the job's problems."""
    return gym.make_vec(
        "TextGen-v0", num_envs=num_envs, verifier=FunctionVerifier(job.reward), problems=job.problems(count, seed),
        tokenizer=tokenizer or model_place(), test_fraction=0.0, max_new_tokens=job.tokens, **kwargs,
    )  # fmt: skip


def our_agent(job: Job, updates: int, seed: int, model: Any = None, **policy: Any) -> Agent:
    """Return our side: an agent that trains all weights with GRPO, unless the policy's arguments say otherwise."""
    envs = text_envs(job, job.batch, job.groups * updates, seed, group_size=job.k)
    agent: Agent = find_agent("grpo")(
        model or model_place(), envs, learning_rate=RATE, lr_schedule="constant", episodes_per_update=job.batch,
        group_size=job.k, num_envs=job.batch, seed=seed, device="cpu", policy_kwargs=policy,
    )  # fmt: skip
    return agent
