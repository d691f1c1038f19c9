"""SmolLM2 and what it is asked in tests/real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents import LanguageModelPolicy, make_envs
from verifiers.function import FunctionVerifier

# Of unequal lengths in tokens: digits are single tokens.
QUESTIONS = {f"What is {a} plus {b}? Answer with a number.": str(a + b) for a in (3, 14, 159) for b in range(2, 26, 2)}


def chats() -> list[Any]:
    """Return the questions as conversations, every third with a system message."""
    system = {"role": "system", "content": "You are brief."}
    asked = [[{"role": "user", "content": question}] for question in QUESTIONS]
    return [[system, *chat] if number % 3 == 0 else chat for number, chat in enumerate(asked)]


def long_answers(prompts: list[Any], completions: list[str]) -> list[float]:
    return [float(len(completion)) for completion in completions]


def envs_of(folder: Path, slots: int, **kwargs: Any) -> Any:
    """Return TextGen-v0 over the questions, with the model's own tokenizer."""
    task = {"problems": chats(), "test_fraction": 0.0, "max_new_tokens": 16, "tokenizer": str(folder), **kwargs}
    return make_envs("TextGen-v0", slots, {"verifier": FunctionVerifier(long_answers), **task})


def policy_of(envs: Any, **kwargs: Any) -> LanguageModelPolicy:
    return LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, "smollm2", **kwargs)
