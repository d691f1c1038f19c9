"""Lengths of prompts and answers: the longest of up to 20,000 listed problems, else the verifier's lengths."""

from __future__ import annotations

import random

from rlenv.verifiers import Problem
from rlenv.verifiers.base import Poser
from rlenv.verifiers.conversation import last_of
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

    def __init__(self, verifier: Poser, encoder: Encoder, first: Problem | None) -> None:
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
        """Return the length of the longest reply in tokens, with the chat template's tokens around it."""
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


def longest_demonstration(listed: Problems, verifier: Poser, encoder: Encoder) -> int:
    """Return the length of the longest demonstrated turn with its end token; at most `MOST_NEW_TOKENS`."""
    texts = [text for problem in listed for text in turns_of(verifier, problem)]

    def longest() -> int:
        blocks = (texts[first : first + BLOCK] for first in range(0, len(texts), BLOCK))
        return max((len(ids) for block in blocks for ids in encoder.ids(block)), default=0)

    return 1 + min(MOST_NEW_TOKENS - 1, encoder.once("demonstrations", texts, (), longest))
