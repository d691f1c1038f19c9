"""How long prompts and answers are: of up to 20,000 listed problems as they need it; else what the verifier says."""

from __future__ import annotations

import random
import warnings
from array import array
from itertools import islice

import numpy as np

from rlenv.verifiers import Problem, Verifier
from rlenv.verifiers.conversation import last_of, shown
from rlenv.verifiers.dialogues.toolbox import MOST_CALLS
from rlenv.verifiers.wrapping import makes_problems

from .encoder import BLOCK, CUT, Encoder
from .problems import Problems, turns_of

DEFAULT_PROMPT_TOKENS = 1024
DEFAULT_NEW_TOKENS = 64
DEFAULT_REPLY_TOKENS = 128
MOST_NEW_TOKENS = 4096  # of a demonstration that sets the limit of completions
MOST_AT_LOAD = 20_000  # problems whose prompts are encoded when they are loaded, which takes seconds


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
        if first is None and not makes_problems(verifier):
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
        declared = self._declared(self.verifier.turns.reply_length, DEFAULT_REPLY_TOKENS)
        if not self.encoder.is_chat(self._first):
            return declared
        asked = [{"role": "user", "content": self._first}] if isinstance(self._first, str) else self._first
        said = [*asked, {"role": "assistant", "content": "-"}]
        results = [{"role": "tool", "content": "-"}] * MOST_CALLS
        return declared + len(self.encoder.reply(said, results if self.verifier.turns.tools else "-", CUT, chat=True))

    def _plain(self, text: str) -> int:
        return len(self.encoder.ids([text], add_special_tokens=True)[0])

    def _declared(self, characters: int | None, default: int) -> int:
        return default if characters is None else characters + self._room


def with_short_prompts(listed: Problems, encoder: Encoder, limit: int, skips: bool) -> tuple[Problems, int]:
    """Return the problems with prompts of at most `limit` tokens, encoded, and the length of the longest.

    Args:
        listed: the problems.
        encoder: of prompts.
        limit: tokens of a prompt.
        skips: whether longer ones are left out, which is said, or refused.

    Raises:
        ValueError: for a prompt that is refused, or if all are left out.
    """
    found = encoder.within((problem.prompt for problem in listed), limit)
    encoded = [None if each is None else (array("I", each[0]), each[1]) for each in found]
    lengths = np.array([limit + 1 if each is None else len(each[0]) for each in encoded])
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
    kept = listed.only(lengths <= limit)
    kept.encoded = encoded
    return kept, int(lengths[lengths <= limit].max())


def longest_demonstration(listed: Problems, verifier: Verifier, encoder: Encoder) -> int:
    """Return the length of the longest demonstrated turn with its end token; at most `MOST_NEW_TOKENS`."""
    limit, longest = MOST_NEW_TOKENS - 1, 0
    turns = (text[: limit * encoder.longest_token] for problem in listed for text in turns_of(verifier, problem))
    while some := list(islice(turns, BLOCK)):
        longest = max(longest, *map(len, encoder.ids(some)))
    return 1 + min(limit, longest)
