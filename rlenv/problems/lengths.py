"""How long prompts and answers are: of listed problems as they need it, within a limit; else what the verifier says."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from itertools import chain, islice

import numpy as np

from verifiers import Problem, Verifier
from verifiers.conversation import last_of, shown
from verifiers.dialogues.tools.toolbox import MOST_CALLS

from ..text.encoder import CUT, Encoder
from .files import Problems, turns_of

DEFAULT_PROMPT_TOKENS = 1024
DEFAULT_NEW_TOKENS = 64
DEFAULT_REPLY_TOKENS = 128
MOST_NEW_TOKENS = 4096  # of a demonstration that sets the limit of completions
BLOCK = 16  # texts encoded at once, because a long one takes a hundred times its memory


class Lengths:
    """The lengths, in tokens, that a verifier declares in characters.

    Args:
        verifier: declares lengths.
        encoder: of prompts.
        first: a problem; None to have the verifier sample it.

    Raises:
        ValueError: if the verifier cannot make problems.
    """

    def __init__(self, verifier: Verifier, encoder: Encoder, first: Problem | None) -> None:
        if first is None and not verifier.makes_problems:
            raise ValueError(f"{type(verifier).__name__} does not make problems: pass problems (--problems)")
        self.verifier, self.encoder = verifier, encoder
        self._first = (verifier.sample(random.Random(0)) if first is None else first).prompt
        # A text has at most as many tokens as characters, plus the end token and what this tokenizer adds.
        text = last_of(self._first)[:DEFAULT_PROMPT_TOKENS]
        self._room = 1 + max(0, self._plain(text) - len(text))

    def of_prompts(self) -> int:
        """Return the length of the longest prompt that the verifier samples."""
        template = 0
        if self.encoder.is_chat(self._first):
            template = len(self.encoder.prompts([self._first])[0]) - self._plain(
                last_of(self.encoder.asked(self._first))
            )
        request = len(self.encoder.request) + 1 if self.encoder.request else 0
        return self._declared(self.verifier.prompt_length, DEFAULT_PROMPT_TOKENS) + max(0, template) + request

    def of_answers(self) -> int:
        """Return the length of the longest answer with its end token."""
        return self._declared(self.verifier.answer_length, DEFAULT_NEW_TOKENS)

    def of_replies(self) -> int:
        """Return the length of the longest reply, with what the chat template writes around it."""
        declared = self._declared(self.verifier.reply_length, DEFAULT_REPLY_TOKENS)
        if not self.encoder.is_chat(self._first):
            return declared
        asked = [{"role": "user", "content": self._first}] if isinstance(self._first, str) else self._first
        said = [*asked, {"role": "assistant", "content": "-"}]
        results = [{"role": "tool", "content": "-"}] * MOST_CALLS
        return declared + len(self.encoder.reply(said, results if self.verifier.tools else "-", CUT, chat=True))

    def _plain(self, text: str) -> int:
        return len(self.encoder.ids([text], add_special_tokens=True)[0])

    def _declared(self, characters: int | None, default: int) -> int:
        return default if characters is None else characters + self._room


def with_short_prompts(listed: Problems, encoder: Encoder, limit: int, skips: bool) -> tuple[Problems, int]:
    """Return the problems with prompts of at most `limit` tokens, and the length of the longest.

    Args:
        listed: the problems.
        encoder: of prompts.
        limit: tokens of a prompt.
        skips: whether longer ones are left out, which is said, or refused.

    Raises:
        ValueError: for a prompt that is refused, or if all are left out.
    """
    counted = (encoder.lengths([problem.prompt for problem in some], limit) for some in _blocks(listed))
    lengths = np.fromiter(chain.from_iterable(counted), np.int64, len(listed))
    long, allowed = np.flatnonzero(lengths > limit), f"{limit} tokens (max_prompt_tokens)"
    if len(long) and not skips:
        what = f"{listed.place(long[0])}: prompt {shown(listed[long[0]].prompt)} has more than {allowed}"
        raise ValueError(f"{what}; pass a larger --max-prompt-tokens, or --long-prompts skip to leave it out")
    if len(empty := np.flatnonzero(lengths < 1)):
        prompt = shown(listed[empty[0]].prompt)
        raise ValueError(f"{listed.place(empty[0])}: prompt {prompt} has 0 tokens; allowed: 1 to {allowed}")
    if len(long) == len(listed):
        raise ValueError(f"all {len(listed)} prompts have more than {allowed}; pass a larger --max-prompt-tokens")
    if len(long):
        warnings.warn(f"{len(long)} of {len(listed)} prompts have more than {allowed} and are skipped", stacklevel=4)
    return listed.only(lengths <= limit), max(1, int(lengths[lengths <= limit].max()))


def longest_demonstration(listed: Problems, verifier: Verifier, encoder: Encoder) -> int:
    """Return the length in tokens of the longest demonstrated turn with its end token; at most `MOST_NEW_TOKENS`."""
    turns = ([turn for problem in some for turn in turns_of(verifier, problem)] for some in _blocks(listed))
    lengths = (encoder.lengths(each, MOST_NEW_TOKENS - 1, are_prompts=False) for each in turns)
    return min(1 + max(chain.from_iterable(lengths), default=0), MOST_NEW_TOKENS)


def _blocks(listed: Problems) -> Iterator[list[Problem]]:
    problems = iter(listed)
    while some := list(islice(problems, BLOCK)):
        yield some
