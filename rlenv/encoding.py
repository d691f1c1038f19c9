"""The encoding of an environment: its tokenizer, the ends of turns, the lengths of an episode's parts, its spaces."""

from __future__ import annotations

import copy
import warnings
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from transformers import PreTrainedTokenizerBase

from rlenv._checks import check_count
from rlenv.verifiers import Problem, Verifier
from rlenv.verifiers.base import CALLED, CARRIED, Completion, Poser, has_dialogues
from rlenv.verifiers.conversation import ROLES, shown
from rlenv.verifiers.dialogues.calls import Call, read_calls

from .chat import Chat, control_tokens, read_template, written_calls
from .encoder import STOP, STRING, Encoder
from .forms import Form, Limits
from .lengths import DEFAULT_PROMPT_TOKENS, MOST_AT_LOAD, Lengths, longest_demonstration
from .problems import Problems, Prompt, hash_of, side_of, turns_of
from .stream import ProblemStream
from .tokenizer import decode, load_tokenizer, stop_token_ids, train_tokenizer, trained_size

SAMPLED = 2000  # problems that a tokenizer is trained on if the verifier poses them
LINES = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"  # a template: each message is a line
LONGEST = 1 << 20  # tokens of a prompt or a completion: each slot of an environment has room for both


class Encoding:
    """The tokens of prompts, turns and replies, and how many there may be.

    Args:
        verifier: declares the alphabet and the lengths.
        found: the listed problems; None to have the verifier sample them.
        test_fraction: a tokenizer is trained on the others.
        form: how prompts are written, and what ends a turn.
        limits: how long all parts are.

    Attributes:
        encoder: of prompts and replies.
        listed: the listed problems; up to 20,000 are encoded, and those with longer prompts left out.
        skipped_prompts: how many prompts were too long: when they were loaded, else when they were met.
        max_turns: of an episode; 1 without dialogues.
        max_reply_tokens: 0 without dialogues.
        max_length: tokens of the context, L.
        eos_token_id: ends demonstrations.
        pad_token_id: fills observations.
        progress: of the training, as the last reset gave it.

    Raises:
        ValueError: for a setting out of range, a prompt that is empty, or too long if that is an error.
    """

    def __init__(
        self,
        verifier: Verifier,
        found: Problems | None,
        test_fraction: float,
        form: Form,
        limits: Limits,
    ) -> None:
        self.verifier = verifier
        if form.ask and not verifier.request:
            raise ValueError(f"ask=True: {type(verifier).__name__} has no place of the answer to ask for; omit it")
        template = None if form.chat_template is None else read_template(form.chat_template)
        self.tokenizer = _tokenizer_for(form.tokenizer, template, form.system_prompt, verifier, found, test_fraction)
        rendered = Chat(self.tokenizer, form.system_prompt, verifier.turns.tools)
        request = verifier.request if form.ask else ""
        self.encoder = Encoder(self.tokenizer, rendered, form.chats_texts, request, form.cue or "")
        self.stop_token_ids = stop_token_ids(self.tokenizer, self.encoder.end_of_turn, form.stop_tokens)
        self.special_token_ids = frozenset(control_tokens(self.tokenizer).values())
        self.stop_strings = _stop_strings(form.stop_strings or verifier.turns.stop_strings)
        self.progress: Mapping[str, Any] = {}
        self._skips, self.skipped_prompts = limits.long_prompts == "skip", 0
        lengths = Lengths(verifier, self.encoder, None if found is None else found[0])
        self.listed = found
        self._limit(lengths, limits)
        self.max_turns, self.max_reply_tokens = 1, 0
        self._limit_dialogues(lengths, limits)
        self.vocab_size = len(self.tokenizer)
        self.action_space = spaces.Discrete(self.vocab_size)
        self.observation_space = spaces.Dict(
            tokens=spaces.Box(0, self.vocab_size - 1, (self.max_length,), np.int64),
            length=spaces.Discrete(self.max_length + 1),
        )

    def begin(self, problem: Problem) -> None:
        """Set the tokens that end and fill episodes that are like this one."""
        self.eos_token_id = self.end_token(problem)
        pad = self.tokenizer.pad_token_id
        self.pad_token_id: int = self.eos_token_id if pad is None else pad

    def _limit(self, lengths: Lengths, limits: Limits) -> None:
        """Set the longest prompt and completion, and the context for them; keep the problems with short prompts."""
        prompt, new = limits.max_prompt_tokens, limits.max_new_tokens
        if prompt is None:
            prompt = lengths.of_prompts() if self.listed is None else DEFAULT_PROMPT_TOKENS
        self.max_prompt_tokens = check_count("max_prompt_tokens", prompt, high=LONGEST)
        needed = lengths.of_answers()
        if (listed := self.listed) is not None and len(listed) <= MOST_AT_LOAD:
            self.listed = self._encoded(listed)
            if new is None:
                needed = max(needed, longest_demonstration(self.listed, self.verifier, self.encoder))
        self.max_new_tokens = check_count("max_new_tokens", needed if new is None else new, high=LONGEST)
        self.max_length = self.max_prompt_tokens + self.max_new_tokens

    def _limit_dialogues(self, lengths: Lengths, limits: Limits) -> None:
        """Set the limits of dialogues, if the verifier has them, and the context for all of an episode."""
        turns, reply, context = limits.max_turns, limits.max_reply_tokens, limits.max_context_tokens
        given = {"max_turns": turns, "max_reply_tokens": reply, "max_context_tokens": context}
        if not has_dialogues(self.verifier):
            if named := [name for name, value in given.items() if value is not None]:
                name = type(self.verifier).__name__
                raise ValueError(f"{named[0]}={given[named[0]]} is for dialogues, and {name} judges one completion")
            return
        turns = self.max_turns = check_count("max_turns", self.verifier.turns.max_turns if turns is None else turns)
        reply = check_count("max_reply_tokens", lengths.of_replies() if reply is None else reply, high=LONGEST)
        self.max_reply_tokens = reply
        most = self.max_length + (turns - 1) * (reply + self.max_new_tokens)
        if context is None and most > LONGEST:
            what = f"{turns} turns of {self.max_new_tokens} tokens with replies of {reply}"
            fewer = "give fewer turns (max_turns) or a limit for all of them (max_context_tokens)"
            raise ValueError(f"{what} need a context of {most} tokens; allowed: {LONGEST}; {fewer}")
        low = self.max_prompt_tokens + 1
        context = most if context is None else context
        self.max_length = min(most, check_count("max_context_tokens", context, low, LONGEST))

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

    def prompt(self, problem: Problem) -> Prompt | None:
        """Return a problem as the model reads it; None if its prompt is too long and skipped, which is counted.

        Raises:
            ValueError: if the prompt is empty, too long, or has characters that the tokenizer does not know.
        """
        ((ids, text),) = self.encoder.encoded([problem.prompt])
        if self._fits(ids, problem):
            return Prompt(problem, ids, text)
        if self.skipped_prompts == 1:
            said = f"prompts of more than {self.max_prompt_tokens} tokens (max_prompt_tokens) are skipped"
            warnings.warn(said, stacklevel=2)
        return None

    def _fits(self, ids: Sequence[int], problem: Problem, place: str = "") -> bool:
        """Tell whether a prompt is not too long, and count it if it is; refuse it, or an empty one."""
        limit = self.max_prompt_tokens
        if not ids or (len(ids) > limit and not self._skips):
            what, allowed = f"{place}prompt {shown(problem.prompt)}", f"1 to {limit} (max_prompt_tokens)"
            how = "; pass a larger --max-prompt-tokens, or --long-prompts skip to leave it out" if ids else ""
            raise ValueError(f"{what} has {len(ids)} tokens; allowed: {allowed}{how}")
        self.skipped_prompts += len(ids) > limit
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


def _tokenizer_for(
    given: str | Path | PreTrainedTokenizerBase | None,
    template: str | None,
    system_prompt: str | None,
    verifier: Poser,
    found: Problems | None,
    test_fraction: float,
) -> Any:
    """Return the tokenizer that was named, trained on the problems, or of their characters; with the chat template."""
    size = trained_size(given)
    if template is None and (given is None or size) and found is not None and not isinstance(found[0].prompt, str):
        template = LINES  # nobody else can give it one
    if size:
        tokenizer: Any = train_tokenizer(size, _training_texts(verifier, found, test_fraction))
    else:
        further = [system_prompt or "", *([template, *ROLES] if template is not None else [])]
        tokenizer = load_tokenizer(given, "" if given is not None else _alphabet(verifier, found, further))
    if template is not None:
        tokenizer = copy.copy(tokenizer)  # the caller's own object keeps its template
        tokenizer.chat_template = template
    return tokenizer


def _alphabet(verifier: Poser, listed: Problems | None, further: Iterable[str]) -> str:
    """Return the verifier's characters, followed by the others in the listed problems and in further texts.

    Raises:
        ValueError: for a file that is mapped into memory.
    """
    if listed is not None and listed.make is not None:
        raise ValueError(
            f"without a tokenizer, each character of {str(listed.path)!r} would be a token, and the file is not read "
            "as a whole: pass tokenizer (--tokenizer train:2000, or a model's), or write it as JSON lines"
        )
    there = set[str]().union(*further)
    for problem in listed or ():
        there.update(problem.text, problem.answer, *turns_of(verifier, problem))
    return verifier.alphabet + "".join(sorted(there - set(verifier.alphabet)))


def _training_texts(verifier: Poser, listed: Problems | None, test_fraction: float) -> Iterator[str]:
    """Yield the texts of training problems: listed ones, or a sample of the verifier's that is always the same."""
    if listed is None:
        stream = ProblemStream(verifier, "train", test_fraction)
        problems: Iterable[Problem] = map(stream.__getitem__, range(SAMPLED))
    else:
        problems = (
            each for each in listed if side_of(each, hash_of(verifier.split_key(each)), test_fraction) == "train"
        )
    for problem in problems:
        yield from _contents(problem)
        yield from dict.fromkeys([problem.answer, *turns_of(verifier, problem)])


def _contents(problem: Problem) -> Sequence[str]:
    if isinstance(problem.prompt, str):
        return [problem.prompt]
    return [message["content"] for message in problem.prompt]


def _stop_strings(given: str | Sequence[str]) -> tuple[str, ...]:
    several = (given,) if isinstance(given, str) and given else tuple(given)
    if not all(isinstance(each, str) and each for each in several):
        raise ValueError(f"stop_strings must be texts of at least one character, got {shown(given)}")
    return several
