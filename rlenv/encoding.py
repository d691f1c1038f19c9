"""The encoding of an environment: its ends of turns and texts, the lengths of an episode's parts, its spaces."""

from __future__ import annotations

import random
import warnings
from array import array
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces

from rlenv._checks import check_count
from rlenv.verifiers import Problem, Verifier
from rlenv.verifiers.base import CALLED, CARRIED, Completion, checked_problem, has_dialogues
from rlenv.verifiers.conversation import PromptText, as_messages, last_of, shown
from rlenv.verifiers.dialogues.calls import Call, read_calls
from rlenv.verifiers.dialogues.toolbox import MOST_CALLS

from .chat import Chat, control_tokens, written_calls
from .encoder import BLOCK, CUT, STOP, STRING, Encoder
from .forms import LONGEST, Form, Limits
from .problems import Problems, Prompt, turns_of
from .tokenizer import decode, stop_token_ids, vocabulary_size

MOST_AT_LOAD = 20_000  # problems whose prompts are encoded when they are loaded, which takes seconds
DEFAULT_PROMPT_TOKENS = 1024
DEFAULT_NEW_TOKENS = 64
DEFAULT_REPLY_TOKENS = 128
MOST_NEW_TOKENS = 4096  # of a demonstration that sets the limit of completions


class Encoding:
    """The tokens of prompts, turns and replies, and how many there may be.

    Args:
        tokenizer: of all of them.
        verifier: declares the lengths.
        listed: the listed problems; None to have the verifier sample them.
        form: how prompts are written, and what ends a turn.
        limits: how long all parts are.

    Attributes:
        encoder: of prompts and replies.
        listed: the listed problems; up to 20,000 are encoded, and those with longer prompts left out.
        skipped_prompts: how many prompts were too long: when they were loaded, else when they were met.
        max_turns: of an episode; 1 without dialogues.
        max_reply_tokens: 0 without dialogues.
        max_length: tokens of the context, L.
        eos_token_id: ends demonstrations, such as the first problem's.
        pad_token_id: fills observations.
        progress: of the training, as the last reset gave it.

    Raises:
        ValueError: for a setting out of range, a prompt that is empty, or too long if that is an error, and a verifier
            that makes no problems, without any.
    """

    def __init__(
        self, tokenizer: Any, verifier: Verifier, listed: Problems | None, form: Form, limits: Limits
    ) -> None:  # fmt: skip
        self.tokenizer, self.verifier, self.listed = tokenizer, verifier, listed
        if form.ask and not verifier.request:
            raise ValueError(f"ask=True: {type(verifier).__name__} has no place of the answer to ask for; omit it")
        chat, request = Chat(tokenizer, form.system_prompt, verifier.turns.tools), verifier.request if form.ask else ""
        self.encoder = Encoder(tokenizer, chat, form.chats_texts, request, form.cue or "")
        self.stop_token_ids = stop_token_ids(tokenizer, self.encoder.end_of_turn, form.stop_tokens)
        self.special_token_ids = frozenset(control_tokens(tokenizer).values())
        self.stop_strings = _stop_strings(form.stop_strings or verifier.turns.stop_strings)
        self.progress: Mapping[str, Any] = {}
        self._skips, self.skipped_prompts = limits.long_prompts == "skip", 0
        example = checked_problem(verifier, verifier.sample(random.Random(0))) if listed is None else listed[0]
        self.eos_token_id, pad = self.end_token(example), tokenizer.pad_token_id
        self.pad_token_id: int = self.eos_token_id if pad is None else pad
        # A text has at most as many tokens as characters, plus the end token and what this tokenizer adds.
        text = last_of(example.prompt)[:DEFAULT_PROMPT_TOKENS]
        self._room = 1 + max(0, self._plain(text) - len(text))
        self._limit(example.prompt, limits)
        self.max_turns, self.max_reply_tokens = 1, 0
        self._limit_dialogues(example.prompt, limits)
        self.vocab_size = vocabulary_size(tokenizer)
        self.action_space = spaces.Discrete(self.vocab_size)
        self.observation_space = spaces.Dict(
            tokens=spaces.Box(0, self.vocab_size - 1, (self.max_length,), np.int64),
            length=spaces.Discrete(self.max_length + 1),
        )

    def _limit(self, example: PromptText, limits: Limits) -> None:
        """Set the longest prompt and completion, and the context for them; keep the problems with short prompts."""
        prompt, new = limits.max_prompt_tokens, limits.max_new_tokens
        if prompt is None:
            prompt = self._prompt_tokens(example) if self.listed is None else DEFAULT_PROMPT_TOKENS
        self.max_prompt_tokens = check_count("max_prompt_tokens", prompt, high=LONGEST)
        longest = 0
        if self.listed is not None and len(self.listed) <= MOST_AT_LOAD:
            self.listed = self._encoded(self.listed)
            longest = self._longest_demonstration(self.listed) if new is None else 0
        new = max(self._tokens(self.verifier, "answer_length", DEFAULT_NEW_TOKENS), longest) if new is None else new
        self.max_new_tokens = check_count("max_new_tokens", new, high=LONGEST)
        self.max_length = self.max_prompt_tokens + self.max_new_tokens

    def _longest_demonstration(self, listed: Problems) -> int:
        """Return the length of the longest demonstrated turn with its end token; at most `MOST_NEW_TOKENS`."""
        texts = [text for problem in listed for text in turns_of(self.verifier, problem)]

        def longest() -> int:
            blocks = (texts[first : first + BLOCK] for first in range(0, len(texts), BLOCK))
            return max((len(ids) for block in blocks for ids in self.encoder.ids(block)), default=0)

        return min(1 + self.encoder.once("demonstrations", texts, (), longest), MOST_NEW_TOKENS)

    def _limit_dialogues(self, example: PromptText, limits: Limits) -> None:
        """Set the limits of dialogues, if the verifier has them, and the context for all of an episode."""
        turns, reply, context = limits.max_turns, limits.max_reply_tokens, limits.max_context_tokens
        given = {"max_turns": turns, "max_reply_tokens": reply, "max_context_tokens": context}
        if not has_dialogues(self.verifier):
            if named := [name for name, value in given.items() if value is not None]:
                name = type(self.verifier).__name__
                raise ValueError(f"{named[0]}={given[named[0]]} is for dialogues, and {name} judges one completion")
            return
        turns = self.max_turns = check_count("max_turns", self.verifier.turns.max_turns if turns is None else turns)
        reply = check_count("max_reply_tokens", self._reply_tokens(example) if reply is None else reply, high=LONGEST)
        self.max_reply_tokens = reply
        most = self.max_length + (turns - 1) * (reply + self.max_new_tokens)
        if context is None and most > LONGEST:
            what = f"{turns} turns of {self.max_new_tokens} tokens with replies of {reply}"
            fewer = "give fewer turns (max_turns) or a limit for all of them (max_context_tokens)"
            raise ValueError(f"{what} need a context of {most} tokens; allowed: {LONGEST}; {fewer}")
        low = self.max_prompt_tokens + 1
        context = most if context is None else context
        self.max_length = min(most, check_count("max_context_tokens", context, low, LONGEST))

    def _prompt_tokens(self, example: PromptText) -> int:
        """Return the tokens of the longest prompt that the verifier samples, of which this is one."""
        encoder, template = self.encoder, 0
        if encoder.is_chat(example):
            template = len(encoder.prompts([example])[0]) - self._plain(last_of(encoder.asked(example)))
        request = len(encoder.request) + 1 if encoder.request else 0
        return self._tokens(self.verifier, "prompt_length", DEFAULT_PROMPT_TOKENS) + max(0, template) + request

    def _reply_tokens(self, example: PromptText) -> int:
        """Return the tokens of the longest reply, with the chat template's around it."""
        declared = self._tokens(self.verifier.turns, "reply_length", DEFAULT_REPLY_TOKENS)
        if not self.encoder.is_chat(example):
            return declared
        said = [*as_messages(example), {"role": "assistant", "content": "-"}]
        results = [{"role": "tool", "content": "-"}] * MOST_CALLS
        return declared + len(self.encoder.reply(said, results if self.verifier.turns.tools else "-", CUT, chat=True))

    def _plain(self, text: str) -> int:
        return len(self.encoder.ids([text], add_special_tokens=True)[0])

    def _tokens(self, owner: Any, name: str, default: int) -> int:
        """Return a length in tokens that a verifier or its turns declare in characters."""
        characters = getattr(owner, name)
        if characters is None:
            return default
        return check_count(f"{type(owner).__name__}.{name}", characters, 0) + self._room

    def _encoded(self, listed: Problems) -> Problems:
        """Return the problems with short prompts, encoded; the longest of them is the limit from now on."""
        limits = self.max_prompt_tokens, self._skips
        asked = [each.prompt for each in listed]
        prompts = self.encoder.once("prompts", asked, limits, lambda: self._within_limit(listed))
        self.skipped_prompts = prompts.count(None)
        lengths = [len(each[0]) for each in prompts if each is not None]
        what = f"{len(listed)} prompts have more than {self.max_prompt_tokens} tokens (max_prompt_tokens)"
        if not lengths:
            raise ValueError(f"all {what}; pass a larger --max-prompt-tokens")
        if self.skipped_prompts:
            warnings.warn(f"{self.skipped_prompts} of {what} and are skipped", stacklevel=4)
        kept = listed.only(np.array([each is not None for each in prompts]))
        kept.encoded, self.max_prompt_tokens = prompts, max(lengths)
        return kept

    def _within_limit(self, listed: Problems) -> list[tuple[array[int], str] | None]:
        """Return the tokens and the text of every prompt; None for one that is too long."""
        pairs = zip(listed, self.encoder.encoded(each.prompt for each in listed), strict=True)
        return [
            (array("I", ids), text) if self._fits(ids, problem, f"{listed.place(row)}: ") else None
            for row, (problem, (ids, text)) in enumerate(pairs)
        ]

    def prompts(self, problems: Sequence[Problem]) -> list[Prompt | None]:
        """Return problems as the model reads them; None for a prompt that is too long and skipped, which is counted.

        Raises:
            ValueError: if a prompt is empty, too long, or has characters that the tokenizer does not know.
        """
        pairs = zip(problems, self.encoder.encoded(problem.prompt for problem in problems), strict=True)
        made = [Prompt(problem, *each) if self._fits(each[0], problem) else None for problem, each in pairs]
        first, self.skipped_prompts = not self.skipped_prompts, self.skipped_prompts + made.count(None)
        if first and self.skipped_prompts:
            said = f"prompts of more than {self.max_prompt_tokens} tokens (max_prompt_tokens) are skipped"
            warnings.warn(said, stacklevel=2)
        return made

    def _fits(self, ids: Sequence[int], problem: Problem, place: str = "") -> bool:
        """Tell whether a prompt is not too long; refuse one that is, unless it is skipped, and an empty one."""
        limit = self.max_prompt_tokens
        if not ids or (len(ids) > limit and not self._skips):
            what, allowed = f"{place}prompt {shown(problem.prompt)}", f"1 to {limit} (max_prompt_tokens)"
            how = "; pass a larger --max-prompt-tokens, or --long-prompts skip to leave it out" if ids else ""
            raise ValueError(f"{what} has {len(ids)} tokens; allowed: {allowed}{how}")
        return len(ids) <= limit

    def texts(self, completions: Sequence[Sequence[int]], chats: Sequence[bool] | None = None) -> list[str]:
        """Return the texts of finished turns, given all their tokens; without special tokens and a last stop token.

        Of a completion, which is one turn, too. Stop strings and calls are found where special tokens are spelled out.

        Args:
            completions: the tokens of each.
            chats: which of them belong to conversations that the chat template renders; None for none.
        """
        stops, wants = self.stop_token_ids, {*CARRIED}.intersection(self.verifier.inputs)
        turns = [ids[:-1] if ids[-1] in stops else ids for ids in completions]
        texts = self.shown(turns)
        calls: list[Sequence[Call] | None] = [None] * len(texts)
        if self.stop_strings or (chats is not None and CALLED in wants):
            every = decode(self.tokenizer, turns)
            spelled = [text[: self.stop_string_end(text)] for text in every]
            pairs = zip(texts, every, spelled, strict=True)
            texts = [text.removesuffix(before[len(cut) :]) for text, before, cut in pairs]
            if chats is not None and CALLED in wants:
                calls = [self._calls(*pair) for pair in zip(spelled, chats, strict=True)]
        if not wants:
            return texts
        return [
            Completion.of(text, ids, self.progress, called)
            for text, ids, called in zip(texts, completions, calls, strict=True)
        ]

    def shown(self, completions: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of tokens without the special ones, as everybody but a reader of calls gets them."""
        return decode(self.tokenizer, completions, self.special_token_ids)

    def _calls(self, turn: str, chat: bool) -> Sequence[Call]:
        """Return the calls in a turn, given its text with special tokens, which may begin them."""
        found = None
        if chat:
            found = written_calls(self.tokenizer, self._before_turn, self.encoder.chat.schemas, turn)
        return read_calls(turn, [tool.__name__ for tool in self.verifier.turns.tools]) if found is None else found

    @cached_property
    def _before_turn(self) -> str:
        """The chat template's text before a turn."""
        return "".join(piece.text for piece in self.encoder.chat.pieces("-"))

    def stop_string_end(self, text: str) -> int | None:
        """Return where the first stop string in a text ends; None without one."""
        ends = [place + len(stop) for stop in self.stop_strings if (place := text.find(stop)) >= 0]
        return min(ends, default=None)

    def at_stop_string(self, turns: Sequence[Sequence[int]]) -> list[bool]:
        """Return whether the texts of running turns have a stop string, given their tokens."""
        return [self.stop_string_end(text) is not None for text in decode(self.tokenizer, turns)]

    def ending(self, turn: Sequence[int]) -> str | None:
        """Return how the last of these tokens ends a turn, `STOP` or `STRING`; None if it does not."""
        if turn[-1] in self.stop_token_ids:
            return STOP
        return STRING if self.stop_strings and self.at_stop_string([turn])[0] else None

    def end_token(self, problem: Problem) -> int:
        """Return the stop token that ends a demonstration: of a conversation, the chat template's, if it has one."""
        end_of_turn = self.encoder.end_of_turn if self.encoder.is_chat(problem.prompt) else None
        return int(self.tokenizer.eos_token_id if end_of_turn is None else end_of_turn)


def _stop_strings(given: str | Sequence[str]) -> tuple[str, ...]:
    several = (given,) if isinstance(given, str) and given else tuple(given)
    if not all(isinstance(each, str) and each for each in several):
        raise ValueError(f"stop_strings must be texts of at least one character, got {shown(given)}")
    return several
