"""The arguments of TextGen-v0 by topic: prompts, lengths, the stream of problems, the judge.

`gym.make` takes them flat; `parted` puts each where it belongs.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from rlenv._checks import check_choice
from rlenv.verifiers import Problem
from rlenv.verifiers.conversation import NOT_UNICODE, is_unicode, shown

LONG_PROMPTS = ("skip", "error")


@dataclass(frozen=True, kw_only=True)
class Form:
    """How prompts are written, and which tokens and texts end a turn.

    Args:
        tokenizer: a folder, model id or tokenizer object; "train:2000" to train one of 2000 tokens on the training
            problems; None for one token per character of the verifier's alphabet and of the listed problems. An agent
            with a pretrained model passes the model's.
        system_prompt: the first message of conversations that have no system message.
        chat_template: the file or the text of a chat template, in place of the tokenizer's.
        chat: whether prompts that are plain texts are rendered with the chat template too, as a message of the user;
            None for yes if there is a `system_prompt` or a `chat_template`. Conversations always are.
        ask: whether prompts in words end with a sentence that asks for the place of the answer, such as "Put the answer
            in \\boxed{}."; see docs/verifiers.md.
        cue: the end of prompts in words that no chat template renders, after that sentence, such as "\\nSolution:",
            so that a model continues with the answer instead of the problem; None for nothing.
        stop_tokens: further tokens that end an episode, as texts or ids, beside those of the tokenizer, the chat
            template and the generation_config.json in the tokenizer's folder.
        stop_strings: texts that end a turn like a stop token, found where special tokens are spelled out; what follows
            them in the last token is cut from its text.

    Raises:
        ValueError: for a value that is not allowed.
    """

    tokenizer: str | Path | PreTrainedTokenizerBase | None = None
    system_prompt: str | None = None
    chat_template: str | Path | None = None
    chat: bool | None = None
    ask: bool = False
    cue: str | None = None
    stop_tokens: str | int | Sequence[str | int] = ()
    stop_strings: str | Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.chat not in (None, True, False):
            raise ValueError(f"chat must be True, False or None, got {self.chat!r}")
        for name, text in (("system_prompt", self.system_prompt), ("cue", self.cue)):
            if text is not None and not (isinstance(text, str) and text.strip()):
                raise ValueError(f"{name} must be text, got {shown(text)}; omit it for none")
        if self.system_prompt is not None and not is_unicode(self.system_prompt):
            raise ValueError(f"system_prompt {shown(self.system_prompt)}: {NOT_UNICODE}")

    @property
    def chats_texts(self) -> bool:
        """Whether the chat template renders plain texts, too."""
        return (self.system_prompt is not None or self.chat_template is not None) if self.chat is None else self.chat


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How long the parts of an episode may be, in tokens and turns.

    Args:
        max_prompt_tokens: longest prompt; None for 1024, or what a verifier that makes its problems declares. The
            context has room for the longest prompt of up to 20,000 listed problems that is not longer.
        max_new_tokens: longest completion with its end token; None for what the verifier declares (else 64), or for
            the longest demonstration of up to 20,000 listed problems if that is longer (at most 4096 tokens). With
            dialogues, the longest turn.
        max_turns: of an episode with a dialogue; None for the verifier's number.
        max_reply_tokens: longest reply of a dialogue, with the chat template's tokens around it; an episode ends
            before a longer one. None for the verifier's length, else 128 and the template's.
        max_context_tokens: longest context, replies included; None for as many tokens as prompt, turns and replies can
            have together.
        long_prompts: "skip" leaves longer prompts out and counts them in `encoding.skipped_prompts`, "error" refuses
            them.

    Raises:
        ValueError: for an unknown `long_prompts`.
    """

    max_prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    max_turns: int | None = None
    max_reply_tokens: int | None = None
    max_context_tokens: int | None = None
    long_prompts: str = "skip"

    def __post_init__(self) -> None:
        check_choice("long_prompts", self.long_prompts, LONG_PROMPTS)


@dataclass(frozen=True, kw_only=True)
class Posing:
    """Which problems are posed, in which order.

    Args:
        problems: a list of problems (Problem, prompt, conversation or mapping), the path of a file of them or "hf:"
            and the name of a data set, see `rlenv.problems.load_problems`; None to have the verifier sample them.
        columns: which column of the file holds what, such as {"prompt": "question"}.
        prompt_template: makes the prompts from the columns of the file, as in "Q: {question}".
        split: "train" or "test"; disjoint, unless the problems themselves name their split.
        test_fraction: expected share of problems in the test split.
        group_size: K consecutive episodes share a prompt.
        first_problem: number of the first group's problem in the stream; a warm start uses up the problems before it.
        share: (r, W): poses only the groups r, r + W, r + 2W, ... of the stream, for process r of W; None for all.
            A curriculum then gets verdicts only by `TextGenVectorEnv.record_outcomes`.
        curriculum: success rate at which training adds the next level of difficulty, see
            `rlenv.curriculum.Curriculum`; None for all levels from the start.
        prompt_choice: "thompson" prefers training problems that are solved half of the time, see
            `rlenv.curriculum.ThompsonChoice`; None for every problem in turn.
    """

    problems: str | Path | Sequence[Problem | Mapping[str, Any] | str] | None = None
    columns: Mapping[str, str] | None = None
    prompt_template: str | None = None
    split: str = "train"
    test_fraction: float = 0.2
    group_size: int = 1
    first_problem: int = 0
    share: tuple[int, int] | None = None
    curriculum: float | None = None
    prompt_choice: str | None = None


@dataclass(frozen=True, kw_only=True)
class Judging:
    """How the verifier is made and run.

    Args:
        verifier_kwargs: arguments of the verifier's constructor.
        tools: functions that the model may call before it answers: functions, "calculator", "python", "file.py:name"
            or "module:name"; see `rlenv.verifiers.dialogues.tools.WithTools`.
        verifier_workers: worker processes that judge; 0 for none. None for one per core if the verifier asks for
            workers or one of the next two settings is given, else for none.
        verifier_timeout: seconds per verdict in a worker process; None for the verifier's own `timeout`.
        verifier_memory_mb: memory of a worker process, in MiB; None for 2048.
        flag_errors: whether an exception of a verifier without worker processes becomes a verdict with the status
            "error", as it does with them.
        trust: False refuses verifiers that are not registered, tools of files and modules, and data sets of the hub
            that no task of `rlenv.tasks` names; for names that come from a checkpoint.
    """

    verifier_kwargs: Mapping[str, Any] | None = None
    tools: Sequence[Callable[..., Any] | str] = ()
    verifier_workers: int | None = None
    verifier_timeout: float | None = None
    verifier_memory_mb: int | None = None
    flag_errors: bool = False
    trust: bool = True


PARTS: tuple[type, ...] = (Form, Limits, Posing, Judging)
OWNERS = {one.name: part for part in PARTS for one in fields(part)}  # which part has an argument
PARAMETERS = [
    inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
    for part in PARTS
    for one in fields(part)
    if one.default is not MISSING
]


def parted(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the parts of `PARTS` that flat arguments make.

    Raises:
        TypeError: for an unknown name, with the closest match and the allowed ones.
        ValueError: for a value that is not allowed.
    """
    for name in arguments:
        if name not in OWNERS:
            known = ["verifier", *OWNERS]
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise TypeError(
                f"TextGen-v0 got an unexpected keyword argument {name!r}; {hint}allowed: {', '.join(known)}"
            )
    return [part(**{name: value for name, value in arguments.items() if OWNERS[name] is part}) for part in PARTS]
