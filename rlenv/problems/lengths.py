"""How long prompts and answers are unless the user says so: what the problems need, or what the verifier declares."""

from __future__ import annotations

import random
from functools import partial

import numpy as np

from verifiers import Verifier
from verifiers.conversation import last_of
from verifiers.dialogues.tools.toolbox import MOST_CALLS

from ..text.encoder import CUT, Encoder, PromptText
from ..text.texts import shown
from .listed.listed import Listed
from .listed.passes import longest_demonstration

DEFAULT_PROMPT_TOKENS = 128
DEFAULT_NEW_TOKENS = 64
DEFAULT_REPLY_TOKENS = 128
MOST_TOKENS = 4096  # of a listed prompt or demonstration, unless the user asks for more: it sizes every buffer
_FOR_MORE = {
    "prompt": "a larger max_prompt_tokens (--max-prompt-tokens), "
    "or long_prompts='skip' (--long-prompts skip) to leave it out",
    "demonstration": "max_new_tokens (--max-new-tokens)",
}


class Lengths:
    """The lengths, in tokens, that problems need.

    Args:
        verifier: declares lengths in characters.
        encoder: of prompts.
        listed: the problems, at least one; None if the verifier makes them.

    Raises:
        ValueError: if nothing is listed and the verifier cannot make problems either.
    """

    def __init__(self, verifier: Verifier, encoder: Encoder, listed: Listed | None) -> None:
        if listed is None and not verifier.makes_problems:
            raise ValueError(f"{type(verifier).__name__} does not make problems: pass problems (--problems)")
        self.verifier, self.encoder, self.listed = verifier, encoder, listed
        first = (verifier.sample(random.Random(0)) if listed is None else listed[0]).prompt
        # A text has at most as many tokens as characters, plus the end token and what this tokenizer adds.
        text = last_of(first)
        (plain,) = encoder.spell("prompt", [text], add_special_tokens=True)
        self._first = first
        self._room = 1 + max(0, len(plain) - len(text))
        self._template = len(encoder.prompts([first])[0]) - len(plain) if encoder.is_chat(first) else 0

    def of_prompts(self, skips_long: bool) -> int:
        """Return the length of the longest prompt; above `MOST_TOKENS` it is an error, unless long ones are skipped."""
        if self.listed is None:
            return self._declared(self.verifier.prompt_length, DEFAULT_PROMPT_TOKENS) + max(0, self._template)
        lengths = self.listed.prompt_lengths(self.encoder)
        longest = int(lengths.max())
        if longest > MOST_TOKENS and not skips_long:
            index = int(np.argmax(lengths > MOST_TOKENS))
            raise self._too_long("prompt", index, self.listed[index].prompt, int(lengths[index]))
        return max(1, min(longest, MOST_TOKENS))

    def of_answers(self) -> int:
        """Return the length of the longest answer with its end token."""
        needed = self._declared(self.verifier.answer_length, DEFAULT_NEW_TOKENS)
        if self.listed is None:
            return needed
        too_long = partial(self._too_long, "demonstration")
        return max(needed, longest_demonstration(self.listed, self.verifier, self.encoder, MOST_TOKENS, too_long))

    def of_replies(self) -> int:
        """Return the length of the longest reply, with what the chat template writes around it."""
        declared = self._declared(self.verifier.reply_length, DEFAULT_REPLY_TOKENS)
        if not self.encoder.is_chat(self._first):
            return declared
        asked = [{"role": "user", "content": self._first}] if isinstance(self._first, str) else self._first
        said = [*asked, {"role": "assistant", "content": "-"}]
        results = [{"role": "tool", "content": "-"}] * MOST_CALLS
        return declared + len(self.encoder.reply(said, results if self.verifier.tools else "-", CUT, chat=True))

    def _declared(self, characters: int | None, default: int) -> int:
        return default if characters is None else characters + self._room

    def _too_long(self, what: str, index: int, text: PromptText, length: int) -> ValueError:
        assert self.listed is not None
        return ValueError(
            f"{self.listed.place(index)}: {what} {shown(text)} has {length} tokens; allowed by default: "
            f"{MOST_TOKENS}; pass {_FOR_MORE[what]}"
        )
