"""How long prompts and answers are unless the user says so: what the problems need, or what the verifier declares."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from verifiers import Problem, Verifier
from verifiers.conversation import last_of
from verifiers.dialogues.tools.toolbox import MOST_CALLS

from .encoder import CUT, Encoder, PromptText
from .texts import shown

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
        listed: the problems; None if the verifier makes them.
        place: names a listed problem in errors, given its index.

    Raises:
        ValueError: if nothing is listed and the verifier cannot make problems either.
    """

    def __init__(
        self, verifier: Verifier, encoder: Encoder, listed: list[Problem] | None, place: Callable[[int], str]
    ) -> None:
        if listed is None and not verifier.makes_problems:
            raise ValueError(f"{type(verifier).__name__} does not make problems: pass problems (--problems)")
        self.verifier, self.encoder, self.listed, self.place = verifier, encoder, listed or [], place
        first = (self.listed or [verifier.sample(random.Random(0))])[0].prompt
        # A text has at most as many tokens as characters, plus the end token and what this tokenizer adds.
        text = last_of(first)
        (plain,) = encoder.spell("prompt", [text], add_special_tokens=True)
        self._first = first
        self._room = 1 + max(0, len(plain) - len(text))
        self._template = len(encoder.prompts([first])[0]) - len(plain) if encoder.is_chat(first) else 0

    def of_prompts(self, skips_long: bool) -> int:
        """Return the length of the longest prompt; above `MOST_TOKENS` it is an error, unless long ones are skipped."""
        if not self.listed:
            return self._declared(self.verifier.prompt_length, DEFAULT_PROMPT_TOKENS) + max(0, self._template)
        prompts = [problem.prompt for problem in self.listed]
        lengths = list(map(len, self.encoder.prompts(prompts)))
        return max(1, min(max(lengths), MOST_TOKENS) if skips_long else self._longest("prompt", prompts, lengths))

    def of_answers(self) -> int:
        """Return the length of the longest answer with its end token."""
        needed = self._declared(self.verifier.answer_length, DEFAULT_NEW_TOKENS)
        turns = [self.verifier.demonstration_turns(problem, random.Random(0)) for problem in self.listed]
        if not any(map(any, turns)):
            return needed
        longest = [max(each, key=len, default="") for each in turns]
        ids = iter(self.encoder.ids([turn for each in turns for turn in each]))
        lengths = [1 + max((len(next(ids)) for _ in each), default=0) for each in turns]
        return max(needed, self._longest("demonstration", longest, lengths))

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

    def _longest(self, what: str, texts: Sequence[PromptText], lengths: Sequence[int]) -> int:
        for index, length in enumerate(lengths):
            if length > MOST_TOKENS:
                raise ValueError(
                    f"{self.place(index)}: {what} {shown(texts[index])} has {length} tokens; allowed by default: "
                    f"{MOST_TOKENS}; pass {_FOR_MORE[what]}"
                )
        return max(lengths)
