"""What the single and the batched environment share: a judge, an encoding and a stream of problems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from rlenv.verifiers import Problem, Verdict, Verifier
from rlenv.verifiers.dialogues import check_replays
from rlenv.verifiers.plugins.registry import trusting

from .curriculum import Curriculum, ThompsonChoice
from .dialogues import Completions, Dialogues
from .encoding import Encoding, whole_number
from .judge import Judge, verdict_info
from .problems import Prompt, listed_problems
from .stream import ProblemStream

_REMEMBERED = 65_536  # groups of a curriculum, whose problems can be posed again


class TextGenTask:
    """Everything about TextGen-v0 that does not depend on how many episodes run at once.

    Args:
        verifier: a name, "module:Name", "file.py:name", a Verifier, a reward function or a list of them; see
            `rlenv.verifiers.make_verifier`.
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
        problems: a list of problems (Problem, prompt, conversation or mapping), the path of a file of them or "hf:"
            and the name of a data set, see `rlenv.problems.load_problems`; None to have the verifier sample them.
        columns: which column of the file holds what, such as {"prompt": "question"}.
        template: makes the prompts from the columns of the file, as in "Q: {question}".
        split: "train" or "test"; disjoint, unless the problems themselves name their split.
        test_fraction: expected share of problems in the test split.
        group_size: K consecutive episodes share a prompt.
        first_problem: number of the first group's problem in the stream; a warm start uses up the problems before it.
        share: (r, W): poses only the groups r, r + W, r + 2W, ... of the stream, for process r of W; None for all.
            A curriculum then gets verdicts only by `TextGenVectorEnv.record_outcomes`.
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
            or "module:name"; see `rlenv.verifiers.dialogues.tools.WithTools`.
        stop_strings: texts that end a turn like a stop token, found where special tokens are spelled out; what follows
            them in the last token is cut from its text.
        ask: whether prompts in words end with a sentence that asks for the place of the answer, such as "Put the answer
            in \\boxed{}."; see docs/verifiers.md.
        cue: what prompts in words that no chat template renders end with, after that sentence, such as "\\nSolution:",
            so that a model continues with the answer instead of the problem; None for nothing.
        long_prompts: "skip" leaves longer prompts out and counts them in `encoding.skipped_prompts`, "error" refuses
            them.
        curriculum: success rate at which training adds the next level of difficulty, see
            `rlenv.curriculum.Curriculum`; None for all levels from the start.
        prompt_choice: "thompson" prefers training problems that are solved half of the time, see
            `rlenv.curriculum.ThompsonChoice`; None for every problem in turn.
        verifier_workers: worker processes that judge; 0 for none. None for one per core if the verifier asks for
            workers or one of the next two settings is given, else for none.
        verifier_timeout: seconds per verdict in a worker process; None for the verifier's own `timeout`.
        verifier_memory_mb: memory of a worker process, in MiB; None for 2048.
        flag_errors: whether an exception of a verifier without worker processes becomes a verdict with the status
            "error", as it does with them.
        trust: False refuses verifiers that are not registered, tools of files and modules, and data sets of the hub
            that no task of `rlenv.tasks` names; for names that come from a checkpoint.

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
        cue: str | None = None,
        curriculum: float | None = None,
        prompt_choice: str | None = None,
        verifier_workers: int | None = None,
        verifier_timeout: float | None = None,
        verifier_memory_mb: int | None = None,
        flag_errors: bool = False,
        trust: bool = True,
    ) -> None:
        self.judge = Judge.of(
            verifier, verifier_kwargs, tools, verifier_workers, verifier_timeout, verifier_memory_mb, flag_errors, trust
        )
        self.verifier = self.judge.verifier
        with trusting(trust):
            listed = listed_problems(problems, columns, template, self.verifier)
        self.encoding = encoding = Encoding(
            self.verifier, listed, test_fraction,
            tokenizer=tokenizer, system_prompt=system_prompt, chat_template=chat_template, chat=chat, ask=ask,
            cue=cue,
            stop_tokens=stop_tokens, stop_strings=stop_strings, long_prompts=long_prompts,
            max_prompt_tokens=max_prompt_tokens, max_new_tokens=max_new_tokens, max_turns=max_turns,
            max_reply_tokens=max_reply_tokens, max_context_tokens=max_context_tokens,
        )  # fmt: skip
        listed = encoding.listed
        self.stream = ProblemStream(
            self.verifier, split, test_fraction, listed, encoding.prompt, curriculum, prompt_choice
        )
        self.split, self.group_size = split, whole_number("group_size", group_size)
        self.first_problem = whole_number("first_problem", first_problem, low=0)
        self.share = (0, 1) if share is None else _share(*share)
        self._drawn: dict[int, Prompt] = {}  # by a curriculum, by the number of their group
        first = self.stream[0] if listed is None or listed.encoded is None else self.stream.listed[0]
        encoding.begin(first)
        self._prompt_tail = tuple(encoding.encoder.tail(first.prompt))
        _check_columns(self.verifier, first.metadata if listed is None else listed.columns or ())
        self.dialogues = Dialogues(self.judge, encoding, self.conclude) if self.verifier.has_dialogues else None
        if self.dialogues is not None and self.judge.pool is not None:
            check_replays(self.verifier, first)
        self.other_side = self.dialogues or Completions(self.judge, encoding, self.conclude)  # answers turns
        # What others read of a task.
        self.encoder, self.tokenizer, self.vocab_size = encoding.encoder, encoding.tokenizer, encoding.vocab_size
        self.stop_token_ids, self.special_token_ids = encoding.stop_token_ids, encoding.special_token_ids
        self.eos_token_id, self.pad_token_id = encoding.eos_token_id, encoding.pad_token_id
        self.max_prompt_tokens, self.max_new_tokens = encoding.max_prompt_tokens, encoding.max_new_tokens
        self.max_length = encoding.max_length
        self.action_space, self.observation_space = encoding.action_space, encoding.observation_space

    @property
    def metadata(self) -> dict[str, Any]:
        """The task's part of the metadata, in the single and the batched environment."""
        return {
            "group_size": self.group_size,
            "max_episode_steps": self.max_new_tokens * self.encoding.max_turns,
            "max_new_tokens": self.max_new_tokens,
            "tokenizer": self.tokenizer,
            "stop_token_ids": self.stop_token_ids,
            "hidden_token_ids": tuple(sorted(self.special_token_ids - {*self.stop_token_ids})),
            "prompt_tail": self._prompt_tail,
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
            ValueError: as `ProblemStream.prompt`.
        """
        part, parts = self.share
        groups = [episode // self.group_size * parts + part for episode in episodes]  # in the whole stream
        posed = {number: self._posed(number) for number in dict.fromkeys(groups)}
        if self.stream.curriculum is not None:  # which would draw another one later
            self._drawn |= posed
            while len(self._drawn) > _REMEMBERED:
                del self._drawn[next(iter(self._drawn))]  # the oldest
        return [posed[number] for number in groups]

    def prompts_again(self, groups: Sequence[int]) -> list[Prompt]:
        """Return the prompts of groups that have been posed, by their numbers in the whole stream.

        Raises:
            ValueError: if a curriculum drew one so long ago that it is forgotten.
        """
        drawn = self.stream.curriculum is not None
        if drawn and (forgotten := [number for number in groups if number not in self._drawn]):
            raise ValueError(f"group {forgotten[0]} of the curriculum is too old to be posed again")
        posed = {number: self._drawn[number] if drawn else self._posed(number) for number in dict.fromkeys(groups)}
        return [posed[number] for number in groups]

    def _posed(self, number: int) -> Prompt:
        """Return the prompt of a group."""
        return replace(self.stream.prompt(self.first_problem + number), group=number)

    def read_options(self, options: Mapping[str, Any] | None) -> None:
        """Keep a reset's word about the training, `options["progress"]`, for verifiers that want it."""
        self.encoding.progress = (options or {}).get("progress", self.encoding.progress)

    def conclude(self, problem: Problem, verdict: Verdict) -> dict[str, Any]:
        """Return the info of a verdict, and record it in the curriculum, if any."""
        info = verdict_info(self.verifier, problem, verdict)
        self.record(problem, info)
        return info

    def record(self, problem: Problem, info: Mapping[str, Any]) -> None:
        """Tell the curriculum or choice of prompts, if any, how an episode ended; only verdicts that are "ok" count.

        Of a stream that is shared, this is one part of the verdicts; see `shared_curriculum`.
        """
        if self.share[1] == 1 and info["verdict_status"] == "ok":
            self.stream.record(problem, info["is_success"])

    @property
    def shared_curriculum(self) -> Curriculum | ThompsonChoice | None:
        """The curriculum of a shared stream, which needs the verdicts of all processes; None without one."""
        return self.stream.curriculum if self.share[1] > 1 else None


def _check_columns(verifier: Verifier, there: Collection[str]) -> None:
    """Refuse a verifier that asks for columns which no problem has."""
    if lacking := [name for name in verifier.columns if name not in there]:
        allowed = ", ".join(["answer", *sorted(there)])
        raise ValueError(f"the reward function asks for the columns {lacking}; the problems have: {allowed}")


def _share(part: Any, parts: Any) -> tuple[int, int]:
    parts = whole_number("the second number of share", parts)
    if whole_number("the first number of share", part, low=0) >= parts:
        raise ValueError(f"share=({part}, {parts}): the first number must be below the second")
    return int(part), parts
