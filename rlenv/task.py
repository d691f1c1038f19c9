"""What the single and the batched environment share: verifier, tokenizer, lengths, spaces and the problem stream."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from transformers import PreTrainedTokenizerBase

from verifiers import Problem, Verdict, Verifier, isolate, make_verifier

from .judge import decode, judge
from .problems import ProblemStream
from .tokenizer import load_tokenizer

REMEMBERED = 65_536  # prompts whose tokens are kept
DEFAULT_PROMPT_TOKENS = 128
DEFAULT_NEW_TOKENS = 64


@dataclass(frozen=True)
class Prompt:
    """A problem as an episode starts from it."""

    problem: Problem
    tokens: list[int]
    group: int


class TextGenTask:
    """Everything about TextGen-v0 that does not depend on how many episodes run at once.

    Args:
        verifier: a name, "module:Name", a Verifier or a reward function; see `verifiers.make_verifier`.
        verifier_kwargs: arguments for the verifier's constructor.
        tokenizer: a folder, model id or tokenizer object; None for one token a character of the verifier's alphabet.
        problems: a list of problems (Problem, prompt or mapping); None where the verifier samples them.
        split: "train" or "test", disjoint by construction.
        test_fraction: expected share of problems in the test split.
        group_size: K consecutive episodes share a prompt.
        max_prompt_tokens: longest prompt; None for what the verifier says, else 128.
        max_new_tokens: longest completion with its end token; None for what the verifier says, else 64.
        verifier_workers: worker processes that judge; 0 for none; None for one a core where the verifier wants them or
            one of the next two is given, else none.
        verifier_timeout: seconds a verdict may take in a worker process; None for what the verifier says.
        verifier_memory_mb: memory of a worker process, in MiB; None for 2048.
        flag_errors: whether an exception of a verifier without worker processes is a verdict with the status "error",
            as it is with them, instead of an exception.

    Raises:
        ValueError: for anything out of range, with a line that names the value and what was allowed.
    """

    def __init__(
        self,
        verifier: str | Verifier | Callable[..., Any],
        verifier_kwargs: Mapping[str, Any] | None = None,
        tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
        problems: Sequence[Problem | Mapping[str, Any] | str] | None = None,
        split: str = "train",
        test_fraction: float = 0.2,
        group_size: int = 1,
        max_prompt_tokens: int | None = None,
        max_new_tokens: int | None = None,
        verifier_workers: int | None = None,
        verifier_timeout: float | None = None,
        verifier_memory_mb: int | None = None,
        flag_errors: bool = False,
    ) -> None:
        made = make_verifier(verifier, **(verifier_kwargs or {}))
        self.verifier = isolate(made, verifier_workers, verifier_timeout, verifier_memory_mb)
        self._own_verifier = self.verifier is not verifier
        self.flag_errors = flag_errors
        self.tokenizer = load_tokenizer(tokenizer, self.verifier.alphabet)
        self.stream = ProblemStream(self.verifier, split, test_fraction, problems)
        self.split = split
        self._encoded: dict[str, list[int]] = {}  # prompts come again: in other epochs, or by chance
        self.group_size = _positive("group_size", group_size)
        # Lengths in characters bound those in tokens, but for the end and what this tokenizer adds to a text.
        example = self.stream[0].prompt
        room = 1 + max(0, len(self._spell("prompt", [example], add_special_tokens=True)[0]) - len(example))
        self.max_prompt_tokens = _length(
            "max_prompt_tokens", max_prompt_tokens, self.verifier.prompt_length, room, DEFAULT_PROMPT_TOKENS
        )
        self.max_new_tokens = _length(
            "max_new_tokens", max_new_tokens, self.verifier.answer_length, room, DEFAULT_NEW_TOKENS
        )
        self.max_length = self.max_prompt_tokens + self.max_new_tokens
        self.vocab_size = len(self.tokenizer)
        self.eos_token_id: int = self.tokenizer.eos_token_id
        pad = self.tokenizer.pad_token_id
        self.pad_token_id: int = self.eos_token_id if pad is None else pad
        self.action_space = spaces.Discrete(self.vocab_size)
        self.observation_space = spaces.Dict(
            tokens=spaces.Box(0, self.vocab_size - 1, (self.max_length,), np.int64),
            length=spaces.Discrete(self.max_length + 1),
        )
        # What does not fit is known before the first episode: of a list every prompt, else the first one.
        self.encode([problem.prompt for problem in self.stream.listed or [self.stream[0]]])

    def reseed(self, rng: np.random.Generator) -> None:
        """Start another stream of problems, drawn from the environment's own generator."""
        self.stream.seed = int(rng.integers(2**62))

    def prompts(self, episodes: Sequence[int]) -> list[Prompt]:
        """Return what the episodes with these numbers start from; the K episodes of a group share it.

        Raises:
            ValueError: if a prompt is empty, does not fit, or has characters that the tokenizer does not know.
        """
        groups = list(dict.fromkeys(episode // self.group_size for episode in episodes))
        problems = [self.stream[group] for group in groups]
        tokens = self.encode([problem.prompt for problem in problems])
        by_group = {
            group: Prompt(problem, ids, group) for group, problem, ids in zip(groups, problems, tokens, strict=True)
        }
        return [by_group[episode // self.group_size] for episode in episodes]

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Return the tokens of prompts; text that spells a special token stays text.

        Raises:
            ValueError: as `prompts` says.
        """
        new = [text for text in dict.fromkeys(texts) if text not in self._encoded]
        if len(self._encoded) + len(new) > REMEMBERED:
            self._encoded, new = {}, list(dict.fromkeys(texts))
        if new:
            self._encoded |= zip(new, self._encode(new), strict=True)
        return [self._encoded[text] for text in texts]

    def _encode(self, texts: list[str]) -> list[list[int]]:
        encoded = self._spell("prompt", texts, add_special_tokens=True)
        for text, ids in zip(texts, encoded, strict=True):
            if ids and ids[-1] == self.eos_token_id:  # some tokenizers close every text; an open prompt has no end
                ids.pop()
            if not 0 < len(ids) <= self.max_prompt_tokens:
                raise ValueError(
                    f"prompt {text!r} has {len(ids)} tokens; allowed: 1 to {self.max_prompt_tokens} (max_prompt_tokens)"
                )
        return encoded

    def _spell(self, what: str, texts: list[str], add_special_tokens: bool) -> list[list[int]]:
        unknown = self.tokenizer.unk_token_id
        if unknown in (self.tokenizer.bos_token_id, self.tokenizer.eos_token_id):
            unknown = None  # then its presence says nothing
        encoded = self.tokenizer(texts, add_special_tokens=add_special_tokens, split_special_tokens=True)["input_ids"]
        for text, ids in zip(texts, encoded, strict=True):
            if unknown is not None and unknown in ids:
                outside = [c for c in dict.fromkeys(text) if unknown in self.tokenizer(c)["input_ids"]]
                raise ValueError(f"{what} {text!r} has characters outside the tokenizer's alphabet: {outside}")
        return encoded

    def texts(self, completions: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of finished episodes, given all the tokens each has generated."""
        return decode(
            self.tokenizer, [list(tokens[:-1] if tokens[-1] == self.eos_token_id else tokens) for tokens in completions]
        )

    def judge(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        """Return the verdicts on finished episodes."""
        return judge(self.verifier, [prompt.problem for prompt in prompts], texts, self.flag_errors)

    def outcomes(self, problems: Sequence[Problem], verdicts: Sequence[Verdict]) -> dict[str, list[Any]]:
        """Return what the infos say of verdicts, key by key."""
        levels = [problem.metadata.get("level") for problem in problems]
        return {
            "is_success": [self.verifier.is_success(verdict) for verdict in verdicts],
            "verifier_failed": [verdict.status != "ok" for verdict in verdicts],
            "verdict_status": [verdict.status for verdict in verdicts],
            "verdict_reason": [verdict.reason for verdict in verdicts],
            **({} if None in levels else {"level": levels}),
        }

    def close(self) -> None:
        """Give back what a verifier made here holds; one that was passed in is left to who passed it."""
        if self._own_verifier:
            self.verifier.close()

    def demonstration(self, problem: Problem) -> list[int]:
        """Return the tokens of the verifier's demonstration with the end token.

        Raises:
            ValueError: if there is none, or it is longer than a completion may be.
        """
        text = self.verifier.demonstration(problem)
        if not text:
            raise ValueError(f"{type(self.verifier).__name__} has no demonstration for {problem.prompt!r}")
        tokens = [*self._spell("demonstration", [text], add_special_tokens=False)[0], self.eos_token_id]
        if len(tokens) > self.max_new_tokens:
            raise ValueError(
                f"demonstration {text!r} has {len(tokens)} tokens; allowed: {self.max_new_tokens} (max_new_tokens)"
            )
        return tokens


def _positive(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _length(name: str, value: int | None, characters: int | None, room: int, default: int) -> int:
    if value is not None:
        return _positive(name, value)
    return default if characters is None else characters + room
