"""What the single and the batched environment share: verifier, tokenizer, lengths, spaces and the problem stream."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from transformers import PreTrainedTokenizerBase

from verifiers import Isolated, Problem, Verdict, Verifier, isolate, make_verifier
from verifiers.base import Completion
from verifiers.conversation import shown
from verifiers.dialogues import check_replays
from verifiers.dialogues.tools.calls import Call, read_calls
from verifiers.plugins.registry import trusting

from ..problems.curriculum import Curriculum
from ..problems.files import listed_problems
from ..problems.lengths import DEFAULT_PROMPT_TOKENS, Lengths, longest_demonstration, with_short_prompts
from ..problems.listed import Problems
from ..problems.prompt_choice import ThompsonChoice
from ..problems.stream import ProblemStream
from ..text.encoder import STOP, STRING, PromptText
from ..text.stop_tokens import stop_token_ids
from ..text.tokenizer import control_tokens, decode
from ..text.tools import CallReader
from .dialogues import Completions, Dialogues
from .judge import Judge, verdict_info, with_tools
from .language import make_encoder

LONG_PROMPTS = ("skip", "error")
LONGEST = 1 << 20  # tokens of a prompt or a completion: each slot of an environment has room for both


class NoDemonstrationError(ValueError):
    """The verifier has no right answer to imitate."""


@dataclass(frozen=True)
class Prompt:
    """A problem as an episode starts from it.

    Attributes:
        problem: as the verifier or the file poses it.
        tokens: what the model reads.
        group: number of the episodes that share it.
        text: for the infos; of a conversation, its rendering with the chat template.
    """

    problem: Problem
    tokens: list[int]
    group: int
    text: str


class TextGenTask:
    """Everything about TextGen-v0 that does not depend on how many episodes run at once.

    Args:
        verifier: a name, "module:Name", "file.py:name", a Verifier, a reward function or a list of them; see
            `verifiers.make_verifier`.
        verifier_kwargs: arguments of the verifier's constructor.
        tokenizer: a folder, model id or tokenizer object; "train:2000" to train one of 2000 tokens on the training
            problems; None for one token per character of the verifier's alphabet and of the listed problems. An agent
            with a pretrained model passes the model's.
        system_prompt: the first message of conversations that have no system message.
        chat_template: the file or the text of a chat template, in place of the tokenizer's.
        chat: whether prompts that are plain texts are rendered with the chat template too, as a message of the user;
            None for yes if there is a `system_prompt` or a `chat_template`. Conversations always are.
        stop_tokens: further tokens that end an episode, as texts or ids, beside those of the tokenizer, the chat
            template and the generation_config.json in the tokenizer's folder.
        problems: a list of problems (Problem, prompt, conversation or mapping) or the path of a file of them, see
            `rlenv.problems.files.load_problems`; None to have the verifier sample them.
        columns: which column of the file holds what, such as {"prompt": "question"}.
        template: makes the prompts from the columns of the file, as in "Q: {question}".
        split: "train" or "test"; disjoint, unless the problems themselves name their split.
        test_fraction: expected share of problems in the test split.
        group_size: K consecutive episodes share a prompt.
        first_problem: number of the first group's problem in the stream; a warm start uses up the problems before it.
        share: (r, W): poses only the groups r, r + W, r + 2W, ... of the stream, for process r of W; None for all.
            A curriculum then hears of verdicts only by `TextGenVectorEnv.hear`.
        max_prompt_tokens: longest prompt; None for 1024, or what a verifier that makes its problems declares. The
            context has room for the longest prompt of a list that is not longer.
        max_new_tokens: longest completion with its end token; None for what the verifier declares (else 64), or for
            the longest demonstration of a listed problem if that is longer (at most 4096 tokens). With dialogues, the
            longest turn.
        max_turns: of an episode with a dialogue; None for what the verifier declares.
        max_reply_tokens: longest reply of a dialogue, with what the chat template writes around it; an episode ends
            before a longer one. None for what the verifier declares, else 128 and the template's.
        max_context_tokens: longest context, replies included; None for as many tokens as prompt, turns and replies can
            have together.
        tools: functions that the model may call before it answers: functions, "calculator", "python", "file.py:name"
            or "module:name"; see `verifiers.dialogues.tools.verifier.WithTools`.
        stop_strings: texts that end a turn like a stop token, found where special tokens are spelled out; what follows
            them in the last token is cut from its text.
        ask: whether prompts in words end with a sentence that asks for the place of the answer, such as "Put the answer
            in \\boxed{}."; see docs/answers.md.
        long_prompts: "skip" leaves longer prompts out and counts them in `skipped_prompts`, "error" refuses them.
        curriculum: success rate at which training adds the next level of difficulty, see
            `rlenv.problems.curriculum.Curriculum`; None for all levels from the start.
        prompt_choice: "thompson" prefers training problems that are solved half of the time, see
            `rlenv.problems.prompt_choice.ThompsonChoice`; None for every problem in turn.
        verifier_workers: worker processes that judge; 0 for none. None for one per core if the verifier asks for
            workers or one of the next two settings is given, else for none.
        verifier_timeout: seconds per verdict in a worker process; None for the verifier's own `timeout`.
        verifier_memory_mb: memory of a worker process, in MiB; None for 2048.
        flag_errors: whether an exception of a verifier without worker processes becomes a verdict with the status
            "error", as it does with them.
        trust: False refuses verifiers that are not registered, and tools of files and modules; for names that come from
            a checkpoint.

    Raises:
        ValueError: for a value out of range; one line that names it and what is allowed.
    """

    def __init__(
        self,
        verifier: str | Verifier | Callable[..., Any] | Sequence[Any],
        verifier_kwargs: Mapping[str, Any] | None = None,
        tokenizer: str | Path | PreTrainedTokenizerBase | None = None,
        system_prompt: str | None = None,
        chat_template: str | Path | None = None,
        chat: bool | None = None,
        stop_tokens: str | int | Sequence[str | int] = (),
        problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None = None,
        columns: Mapping[str, str] | None = None,
        template: str | None = None,
        split: str = "train",
        test_fraction: float = 0.2,
        group_size: int = 1,
        first_problem: int = 0,
        share: tuple[int, int] | None = None,
        max_prompt_tokens: int | None = None,
        max_new_tokens: int | None = None,
        max_turns: int | None = None,
        max_reply_tokens: int | None = None,
        max_context_tokens: int | None = None,
        tools: Sequence[Callable[..., Any] | str] = (),
        stop_strings: str | Sequence[str] = (),
        long_prompts: str = "skip",
        ask: bool = False,
        curriculum: float | None = None,
        prompt_choice: str | None = None,
        verifier_workers: int | None = None,
        verifier_timeout: float | None = None,
        verifier_memory_mb: int | None = None,
        flag_errors: bool = False,
        trust: bool = True,
    ) -> None:
        if long_prompts not in LONG_PROMPTS:
            raise ValueError(f"unknown long_prompts {long_prompts!r}; allowed: {', '.join(LONG_PROMPTS)}")
        with trusting(trust):
            own = make_verifier(verifier, **(verifier_kwargs or {}))
            made = with_tools(own, tools)
        run = isolate(made, verifier_workers, verifier_timeout, verifier_memory_mb)
        pool = run if isinstance(run, Isolated) else None
        closed = made if isinstance(made, Isolated) else own
        self._owned = [each for each in dict.fromkeys((pool, closed)) if each is not None and each is not verifier]
        made = made if pool is None else pool.verifier
        self.verifier, self.judge = made, Judge(made, pool, flag_errors)
        found = listed_problems(problems, columns, template)
        if found is not None and getattr(made.opened, "__func__", None) is not Verifier.opened:
            found = Problems([(found.place(row), made.opened(problem)) for row, problem in enumerate(found)])
        self.encoder = make_encoder(tokenizer, made, found, test_fraction, system_prompt, chat_template, chat, ask)
        self.tokenizer = self.encoder.tokenizer
        self.stop_token_ids = stop_token_ids(self.tokenizer, self.encoder.end_of_turn, stop_tokens)
        self.special_token_ids = frozenset(control_tokens(self.tokenizer).values())
        self.group_size = _whole("group_size", group_size)
        self.first_problem = _whole("first_problem", first_problem, low=0)
        self.share = (0, 1) if share is None else _share(*share)
        self.stop_strings = _stop_strings(stop_strings)
        self.split = split
        self.progress: Mapping[str, Any] = {}  # of the training, as the last reset told it
        lengths = Lengths(made, self.encoder, None if found is None else found[0])
        self._skips, self.skipped_prompts = long_prompts == "skip", 0
        listed = None if found is None else found.surveyed(made, self.encoder, max_new_tokens is None)
        listed = self._limit(lengths, listed, max_prompt_tokens, max_new_tokens)
        self.dialogues = self._dialogues(lengths, max_turns, max_reply_tokens, max_context_tokens)
        self.other_side = self.dialogues or Completions(self.judge, self.texts, self.conclude)  # answers turns
        self._make_spaces()
        self.stream = ProblemStream(made, split, test_fraction, listed, self._fits, curriculum, prompt_choice)
        self._begin(self.stream.listed or [self.stream[0]], None if listed is None else listed.columns)

    def _begin(self, problems: Sequence[Problem], columns: Collection[str] | None) -> None:
        """Set the tokens that end and fill episodes, and check the first problem."""
        self.eos_token_id = self.end_token(problems[0])
        pad = self.tokenizer.pad_token_id
        self.pad_token_id: int = self.eos_token_id if pad is None else pad
        self.encode([problems[0].prompt])
        _check_columns(self.verifier, problems[0].metadata if columns is None else columns)
        if self.dialogues is not None and self.judge.pool is not None:
            check_replays(self.verifier, problems[0])

    def _limit(self, lengths: Lengths, listed: Problems | None, prompt: int | None, new: int | None) -> Problems | None:
        """Set the longest prompt and completion, and the context for them; return the problems with short prompts."""
        if prompt is None:
            prompt = lengths.of_prompts() if listed is None else DEFAULT_PROMPT_TOKENS
        self.max_prompt_tokens = _whole("max_prompt_tokens", prompt, high=LONGEST)
        needed = lengths.of_answers()
        if listed is not None:
            kept, self.max_prompt_tokens = with_short_prompts(listed, self.encoder, prompt, self._skips)
            self.skipped_prompts, listed = len(listed) - len(kept), kept
            needed = max(needed, longest_demonstration(listed, self.verifier, self.encoder))
        self.max_new_tokens = _whole("max_new_tokens", needed if new is None else new, high=LONGEST)
        self.max_length = self.max_prompt_tokens + self.max_new_tokens
        return listed

    def _dialogues(
        self, lengths: Lengths, turns: int | None, reply: int | None, context: int | None
    ) -> Dialogues | None:
        """Return what answers turns, if the verifier has dialogues, and set the context for all of an episode."""
        given = {"max_turns": turns, "max_reply_tokens": reply, "max_context_tokens": context}
        if not self.verifier.has_dialogues:
            if named := [name for name, value in given.items() if value is not None]:
                name = type(self.verifier).__name__
                raise ValueError(f"{named[0]}={given[named[0]]} is for dialogues, and {name} judges one completion")
            return None
        turns = _whole("max_turns", self.verifier.max_turns if turns is None else turns)
        reply = _whole("max_reply_tokens", lengths.of_replies() if reply is None else reply, high=LONGEST)
        most = self.max_length + (turns - 1) * (reply + self.max_new_tokens)
        if context is None and most > LONGEST:
            what = f"{turns} turns of {self.max_new_tokens} tokens with replies of {reply}"
            fewer = "give fewer turns (max_turns) or a limit for all of them (max_context_tokens)"
            raise ValueError(f"{what} need a context of {most} tokens; allowed: {LONGEST}; {fewer}")
        low = self.max_prompt_tokens + 1
        self.max_length = min(most, _whole("max_context_tokens", most if context is None else context, low, LONGEST))
        return Dialogues(self.judge, self.encoder, turns, reply, self.texts, self.conclude)

    def _make_spaces(self) -> None:
        self.vocab_size = len(self.tokenizer)
        self.action_space = spaces.Discrete(self.vocab_size)
        self.observation_space = spaces.Dict(
            tokens=spaces.Box(0, self.vocab_size - 1, (self.max_length,), np.int64),
            length=spaces.Discrete(self.max_length + 1),
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle; a copied task owns its copy of the verifier."""
        self.__dict__.update(state)
        self._owned = [each for each in (self.judge.pool, self.verifier) if each is not None]

    @property
    def metadata(self) -> dict[str, Any]:
        """What the metadata of the single and of the batched environment say about the task."""
        return {
            "group_size": self.group_size,
            "max_episode_steps": self.max_new_tokens * (1 if self.dialogues is None else self.dialogues.max_turns),
            "tokenizer": self.tokenizer,
            "stop_token_ids": self.stop_token_ids,
            "hidden_token_ids": tuple(sorted(self.special_token_ids - {*self.stop_token_ids})),
            "part_weights": dict(self.verifier.part_weights),
        }

    @property
    def level(self) -> int | None:
        """The newest level of difficulty of the curriculum; None without a curriculum."""
        return self.stream.curriculum.level if isinstance(self.stream.curriculum, Curriculum) else None

    def reseed(self, rng: np.random.Generator) -> None:
        """Start another stream of problems, drawn from the environment's own generator."""
        self.stream.seed = int(rng.integers(2**62))

    def prompts(self, episodes: Sequence[int]) -> list[Prompt]:
        """Return the prompts of the episodes with these numbers; the K episodes of a group share one.

        Raises:
            ValueError: if a prompt is empty, too long, or has characters that the tokenizer does not know.
        """
        groups = list(dict.fromkeys(episode // self.group_size for episode in episodes))
        problems = [self.stream[self.first_problem + self.in_stream(group)] for group in groups]
        tokens = self.encode([problem.prompt for problem in problems])
        by_group = {
            group: Prompt(problem, ids, self.in_stream(group), self.encoder.shown_text(problem.prompt))
            for group, problem, ids in zip(groups, problems, tokens, strict=True)
        }
        return [by_group[episode // self.group_size] for episode in episodes]

    def in_stream(self, group: int) -> int:
        """Return the number in the whole stream of a group of this environment's share."""
        part, parts = self.share
        return group * parts + part

    def encode(self, prompts: Sequence[PromptText]) -> list[list[int]]:
        """Return the tokens of prompts; text that looks like a special token stays text."""
        encoded = self.encoder.prompts(prompts)
        for prompt, ids in zip(prompts, encoded, strict=True):
            if not 0 < len(ids) <= self.max_prompt_tokens:
                allowed = f"1 to {self.max_prompt_tokens} (max_prompt_tokens)"
                raise ValueError(f"prompt {shown(prompt)} has {len(ids)} tokens; allowed: {allowed}")
        return encoded

    def _fits(self, problem: Problem) -> bool:
        """Tell whether a sampled prompt fits; count it if not."""
        limit = self.max_prompt_tokens
        fits = not self._skips or len(self.encoder.prompts([problem.prompt])[0]) <= limit
        self.skipped_prompts += not fits
        if not fits and self.skipped_prompts == 1:
            warnings.warn(f"sampled prompts of more than {limit} tokens (max_prompt_tokens) are skipped", stacklevel=2)
        return fits

    def texts(self, completions: Sequence[Sequence[int]], chats: Sequence[bool] | None = None) -> list[str]:
        """Return the texts of finished turns, given all their tokens; without special tokens and a last stop token.

        Of a completion, which is one turn, too. Stop strings and calls are found where special tokens are spelled out.

        Args:
            completions: the tokens of each.
            chats: which of them belong to conversations that the chat template renders; None for none.
        """
        stops, wants = self.stop_token_ids, self.verifier.wants
        turns = [ids[:-1] if ids[-1] in stops else ids for ids in completions]
        texts = self.shown(turns)
        calls: list[Sequence[Call] | None] = [None] * len(texts)
        if self.stop_strings or (chats is not None and "calls" in wants):
            whole = decode(self.tokenizer, turns)
            spelled = [text[: _end_of(self.stop_strings, text)] for text in whole]
            pairs = zip(texts, whole, spelled, strict=True)
            texts = [text.removesuffix(before[len(cut) :]) for text, before, cut in pairs]
            if chats is not None and "calls" in wants:
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
        found = self._read_calls(turn) if chat else None
        return read_calls(turn, [tool.__name__ for tool in self.verifier.tools]) if found is None else found

    @cached_property
    def _read_calls(self) -> CallReader:
        """What reads calls of tools in conversations, as far as the tokenizer says how they are written."""
        chat = self.encoder.chat
        return CallReader(self.tokenizer, "".join(piece.text for piece in chat.pieces("-")), chat.schemas)

    def at_stop_string(self, turns: Sequence[Sequence[int]]) -> list[bool]:
        """Return whether the texts of running turns have a stop string, given their tokens."""
        return [_end_of(self.stop_strings, text) is not None for text in decode(self.tokenizer, turns)]

    def ending(self, turn: Sequence[int]) -> str | None:
        """Return how the last of these tokens ends a turn, `STOP` or `STRING`; None if it does not."""
        if turn[-1] in self.stop_token_ids:
            return STOP
        return STRING if self.stop_strings and self.at_stop_string([turn])[0] else None

    def end_token(self, problem: Problem) -> int:
        """Return the stop token that ends a demonstration: of a conversation, the chat template's, if it has one."""
        end_of_turn = self.encoder.end_of_turn if self.encoder.is_chat(problem.prompt) else None
        return int(self.tokenizer.eos_token_id if end_of_turn is None else end_of_turn)

    def read_options(self, options: Mapping[str, Any] | None) -> None:
        """Keep what a reset tells about the training: `options["progress"]`, for verifiers that want it."""
        self.progress = (options or {}).get("progress", self.progress)

    def conclude(self, problem: Problem, verdict: Verdict) -> dict[str, Any]:
        """Return what the infos say about a verdict, and tell the curriculum, if any."""
        info = verdict_info(self.verifier, problem, verdict)
        self.hear(problem, info)
        return info

    def hear(self, problem: Problem, info: Mapping[str, Any]) -> None:
        """Tell the curriculum or choice of prompts, if any, how an episode ended; only verdicts that are "ok" count.

        Of a stream that is shared, this is one part of the verdicts; see `shared_curriculum`.
        """
        if self.share[1] == 1 and info["verdict_status"] == "ok":
            self.stream.record(problem, info["is_success"])

    @property
    def shared_curriculum(self) -> Curriculum | ThompsonChoice | None:
        """What chooses the problems of a shared stream, and has to be told of all verdicts; None if nothing does."""
        return self.stream.curriculum if self.share[1] > 1 else None

    def close(self) -> None:
        """Stop the worker processes and close the verifier; a verifier that the user passed in stays open."""
        for each in self._owned:
            each.close()

    def demonstration(self, problem: Problem, turn: str | None = None) -> list[int]:
        """Return the tokens of a demonstrated turn with its end token; of the verifier's demonstration by default.

        Raises:
            NoDemonstrationError: if there is none.
            ValueError: if it is longer than a completion may be, or ends before its last token.
        """
        text = self.verifier.demonstration(problem) if turn is None else turn
        if not text:
            raise NoDemonstrationError(
                f"{type(self.verifier).__name__} has no demonstration for {shown(problem.prompt)}, and a warm start "
                "needs one (--sft-steps 0 skips the warm start)"
            )
        tokens = self.encoder.spell("demonstration", [text])[0]
        if not self._stops_at_string(text, tokens):
            tokens = [*tokens, self.end_token(problem)]
        if len(tokens) > self.max_new_tokens:
            raise ValueError(
                f"demonstration {shown(text)} has {len(tokens)} tokens; allowed: {self.max_new_tokens} (max_new_tokens)"
            )
        if stops := set(tokens[:-1]) & set(self.stop_token_ids):
            stop = self.tokenizer.convert_ids_to_tokens(min(stops))
            raise ValueError(f"demonstration {shown(text)} goes on after the stop token {stop!r}")
        return tokens

    def _stops_at_string(self, text: str, tokens: Sequence[int]) -> bool:
        """Return whether a demonstrated turn ends with a stop string, and needs no end token."""
        if not self.stop_strings or _end_of(self.stop_strings, text) is None:
            return False
        if any(self.at_stop_string([tokens[:-1]])):
            raise ValueError(f"demonstration {shown(text)} goes on after the stop string of {self.stop_strings}")
        return True


def _check_columns(verifier: Verifier, there: Collection[str]) -> None:
    """Refuse a verifier that asks for columns which no problem has."""
    if lacking := [name for name in verifier.columns if name not in there]:
        allowed = ", ".join(["answer", *sorted(there)])
        raise ValueError(f"the reward function asks for the columns {lacking}; the problems have: {allowed}")


def _stop_strings(given: str | Sequence[str]) -> tuple[str, ...]:
    several = (given,) if isinstance(given, str) and given else tuple(given)
    if not all(isinstance(each, str) and each for each in several):
        raise ValueError(f"stop_strings must be texts of at least one character, got {shown(given)}")
    return several


def _end_of(stops: Sequence[str], text: str) -> int | None:
    """Return where the first stop string in a text ends; None without one."""
    ends = [place + len(stop) for stop in stops if (place := text.find(stop)) >= 0]
    return min(ends, default=None)


def _whole(name: str, value: Any, low: int = 1, high: float = math.inf) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
        most = "" if high == math.inf else f" and at most {high}"
        raise ValueError(f"{name} must be a whole number of at least {low}{most}, got {shown(value)}")
    return int(value)


def _share(part: Any, parts: Any) -> tuple[int, int]:
    parts = _whole("the second number of share", parts)
    if _whole("the first number of share", part, low=0) >= parts:
        raise ValueError(f"share=({part}, {parts}): the first number must be below the second")
    return int(part), parts
