"""What the single and the batched environment share: verifier, tokenizer, lengths, spaces and the problem stream."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from transformers import PreTrainedTokenizerBase

from verifiers import Isolated, Problem, Verdict, Verifier, isolate, make_verifier
from verifiers.registry import trusting

from .encoder import Encoder
from .judge import decode, judge
from .listed import MOST_TOKENS, listed_problems, longest_of, place_of
from .problems import ProblemStream, is_level, level_of
from .rows import shown
from .tokenizer import load_tokenizer

DEFAULT_PROMPT_TOKENS = 128
DEFAULT_NEW_TOKENS = 64
LONG_PROMPTS = ("error", "skip")


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
        tokenizer: a folder, model id or tokenizer object; None for one token a character of the verifier's alphabet and
            of the listed problems.
        problems: a list of problems (Problem, prompt or mapping), or the path of a file of them, see
            `rlenv.problem_files.load_problems`; None where the verifier samples them.
        columns: what the file calls our columns, such as {"prompt": "question"}.
        template: makes the prompts from the columns of the file, as in "Q: {question}".
        split: "train" or "test", disjoint by construction where the problems do not name their split themselves.
        test_fraction: expected share of problems in the test split.
        group_size: K consecutive episodes share a prompt.
        first_problem: the number of the problem in the stream that the first group gets; for training that begins after
            the problems of a warm start.
        max_prompt_tokens: longest prompt; None for the longest in the list, which may have 4096 tokens then, or what
            the verifier says, else 128.
        max_new_tokens: longest completion with its end token; None for what the verifier says, else 64, or more where
            the demonstration of a listed problem needs it, which may have 4096 tokens then.
        long_prompts: what happens to longer prompts: "error", or "skip", which leaves them out and counts them in
            `skipped_prompts`.
        curriculum: the success rate at which training goes on to the next level of difficulty, see
            `rlenv.curriculum.Curriculum`; None for all levels from the start.
        verifier_workers: worker processes that judge; 0 for none; None for one a core where the verifier wants them or
            one of the next two is given, else none.
        verifier_timeout: seconds a verdict may take in a worker process; None for what the verifier says.
        verifier_memory_mb: memory of a worker process, in MiB; None for 2048.
        flag_errors: whether an exception of a verifier without worker processes is a verdict with the status "error",
            as it is with them, instead of an exception.
        trust: False makes registered verifiers only; agents say so of what a checkpoint names.

    Raises:
        ValueError: for anything out of range, with a line that names the value and what was allowed.
    """

    def __init__(
        self,
        verifier: str | Verifier | Callable[..., Any],
        verifier_kwargs: Mapping[str, Any] | None = None,
        tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
        problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None = None,
        columns: Mapping[str, str] | None = None,
        template: str | None = None,
        split: str = "train",
        test_fraction: float = 0.2,
        group_size: int = 1,
        first_problem: int = 0,
        max_prompt_tokens: int | None = None,
        max_new_tokens: int | None = None,
        long_prompts: str = "error",
        curriculum: float | None = None,
        verifier_workers: int | None = None,
        verifier_timeout: float | None = None,
        verifier_memory_mb: int | None = None,
        flag_errors: bool = False,
        trust: bool = True,
    ) -> None:
        if long_prompts not in LONG_PROMPTS:
            raise ValueError(f"unknown long_prompts {long_prompts!r}; allowed: {', '.join(LONG_PROMPTS)}")
        with trusting(trust):
            made = make_verifier(verifier, **(verifier_kwargs or {}))
        self.verifier = isolate(made, verifier_workers, verifier_timeout, verifier_memory_mb)
        self._own_verifier = self.verifier is not verifier
        self.flag_errors = flag_errors
        listed = listed_problems(problems, columns, template)
        answers = [self.verifier.demonstration(problem) for problem in listed or ()]
        texts = [text for problem in listed or () for text in (problem.prompt, problem.answer)]
        self.tokenizer = load_tokenizer(tokenizer, _alphabet(self.verifier, texts + answers))
        self.eos_token_id: int = self.tokenizer.eos_token_id
        self.encoder = Encoder(self.tokenizer)
        self.group_size = _whole("group_size", group_size)
        self.first_problem = _whole("first_problem", first_problem, low=0)
        self.max_prompt_tokens, self.max_new_tokens = self._lengths(
            listed, answers, max_prompt_tokens, max_new_tokens, long_prompts, partial(place_of, problems)
        )
        self.split = split
        self.skipped_prompts = 0
        if long_prompts == "skip" and listed is not None:
            listed = self._without_long(listed)
        fits = self._fits if long_prompts == "skip" and listed is None else None
        self.stream = ProblemStream(self.verifier, split, test_fraction, listed, fits, curriculum)
        self.max_length = self.max_prompt_tokens + self.max_new_tokens
        self.vocab_size = len(self.tokenizer)
        pad = self.tokenizer.pad_token_id
        self.pad_token_id: int = self.eos_token_id if pad is None else pad
        self.action_space = spaces.Discrete(self.vocab_size)
        self.observation_space = spaces.Dict(
            tokens=spaces.Box(0, self.vocab_size - 1, (self.max_length,), np.int64),
            length=spaces.Discrete(self.max_length + 1),
        )
        # What does not fit is known before the first episode: of a list every prompt, else the first one.
        self.encode([problem.prompt for problem in self.stream.listed or [self.stream[0]]])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; the copy of a verifier belongs to the copy of its task."""
        self.__dict__.update(state, _own_verifier=True)

    @property
    def level(self) -> int | None:
        """The level of difficulty that the curriculum has come to; None without one."""
        return None if self.stream.curriculum is None else self.stream.curriculum.level

    def reseed(self, rng: np.random.Generator) -> None:
        """Start another stream of problems, drawn from the environment's own generator."""
        self.stream.seed = int(rng.integers(2**62))

    def prompts(self, episodes: Sequence[int]) -> list[Prompt]:
        """Return what the episodes with these numbers start from; the K episodes of a group share it.

        Raises:
            ValueError: if a prompt is empty, does not fit, or has characters that the tokenizer does not know.
        """
        groups = list(dict.fromkeys(episode // self.group_size for episode in episodes))
        problems = [self.stream[self.first_problem + group] for group in groups]
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
        encoded = self.encoder.prompts(texts)
        for text, ids in zip(texts, encoded, strict=True):
            if not 0 < len(ids) <= self.max_prompt_tokens:
                allowed = f"1 to {self.max_prompt_tokens} (max_prompt_tokens)"
                raise ValueError(f"prompt {shown(text)} has {len(ids)} tokens; allowed: {allowed}")
        return encoded

    def _without_long(self, problems: list[Problem]) -> list[Problem]:
        """Return the problems whose prompts are short enough, and count the others."""
        lengths = map(len, self.encoder.prompts([problem.prompt for problem in problems]))
        short = [problem for problem, length in zip(problems, lengths, strict=True) if length <= self.max_prompt_tokens]
        self.skipped_prompts = len(problems) - len(short)
        too_long = f"prompts have more than {self.max_prompt_tokens} tokens (max_prompt_tokens)"
        if not short:
            raise ValueError(f"all {len(problems)} {too_long}")
        if self.skipped_prompts:
            warnings.warn(f"{self.skipped_prompts} of {len(problems)} {too_long} and are skipped", stacklevel=3)
        return short

    def _fits(self, problem: Problem) -> bool:
        """Tell whether a sampled prompt is short enough, and count it where it is not."""
        fits = len(self.encoder.prompts([problem.prompt])[0]) <= self.max_prompt_tokens
        self.skipped_prompts += not fits
        if not fits and self.skipped_prompts == 1:
            allowed = f"{self.max_prompt_tokens} tokens (max_prompt_tokens)"
            warnings.warn(f"sampled prompts of more than {allowed} are skipped", stacklevel=2)
        return fits

    def _lengths(
        self,
        listed: list[Problem] | None,
        answers: list[str],
        prompt_tokens: int | None,
        new_tokens: int | None,
        long_prompts: str,
        place: Callable[[int], str],
    ) -> tuple[int, int]:
        """Return the longest prompt and the longest completion: as asked for, else as the problems need it."""
        if listed is None and not self.verifier.makes_problems:
            raise ValueError(f"{type(self.verifier).__name__} makes no problems of its own: pass problems (--problems)")
        prompts = [problem.prompt for problem in listed or [self.verifier.sample(random.Random(0))]]
        # Lengths in characters bound those in tokens, but for the end and what this tokenizer adds to a text.
        room = 1 + max(0, len(self.encoder.spell("prompt", prompts[:1], add_special_tokens=True)[0]) - len(prompts[0]))
        needed = _length(self.verifier.answer_length, room, DEFAULT_NEW_TOKENS)
        longest = _length(self.verifier.prompt_length, room, DEFAULT_PROMPT_TOKENS)
        if prompt_tokens is None and listed:
            lengths = list(map(len, self.encoder.prompts(prompts)))
            skips = long_prompts == "skip"
            longest = min(max(lengths), MOST_TOKENS) if skips else longest_of("prompt", prompts, lengths, place)
        if new_tokens is None and any(answers):
            lengths = [len(ids) + 1 for ids in self.encoder.ids(answers)]
            needed = max(needed, longest_of("demonstration", answers, lengths, place))
        return (
            max(1, longest) if prompt_tokens is None else _whole("max_prompt_tokens", prompt_tokens),
            needed if new_tokens is None else _whole("max_new_tokens", new_tokens),
        )

    def texts(self, completions: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of finished episodes, given all the tokens each has generated."""
        return decode(
            self.tokenizer, [list(tokens[:-1] if tokens[-1] == self.eos_token_id else tokens) for tokens in completions]
        )

    def judge(self, prompts: Sequence[Prompt], texts: Sequence[str]) -> list[Verdict]:
        """Return the verdicts on finished episodes."""
        return judge(self.verifier, [prompt.problem for prompt in prompts], texts, self.flag_errors)

    def conclude(self, problems: Sequence[Problem], verdicts: Sequence[Verdict]) -> dict[str, list[Any]]:
        """Tell the curriculum, where there is one, how episodes went, and return what the infos say of it, by key."""
        if self.stream.curriculum is not None:
            for problem, verdict in zip(problems, verdicts, strict=True):
                if verdict.status == "ok":
                    self.stream.curriculum.record(level_of(problem), self.verifier.is_success(verdict))
        levels = [problem.metadata.get("level") for problem in problems]
        return {
            "is_success": [self.verifier.is_success(verdict) for verdict in verdicts],
            "verifier_failed": [verdict.failed for verdict in verdicts],
            "verdict_status": [verdict.status for verdict in verdicts],
            "verdict_reason": [verdict.reason for verdict in verdicts],
            **({"level": levels} if all(map(is_level, levels)) else {}),
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
            verifier = self.verifier.verifier if isinstance(self.verifier, Isolated) else self.verifier
            raise ValueError(
                f"{type(verifier).__name__} has no demonstration for {shown(problem.prompt)}, and a warm start "
                "needs one (--sft-steps 0 skips the warm start)"
            )
        tokens = [*self.encoder.spell("demonstration", [text])[0], self.eos_token_id]
        if len(tokens) > self.max_new_tokens:
            raise ValueError(
                f"demonstration {shown(text)} has {len(tokens)} tokens; allowed: {self.max_new_tokens} (max_new_tokens)"
            )
        return tokens


def _whole(name: str, value: Any, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, got {value!r}")
    return int(value)


def _length(characters: int | None, room: int, default: int) -> int:
    return default if characters is None else characters + room


def _alphabet(verifier: Verifier, texts: Iterable[str]) -> str:
    """Return the verifier's characters and then those that only these texts have."""
    return verifier.alphabet + "".join(sorted(set().union(*texts) - set(verifier.alphabet)))
