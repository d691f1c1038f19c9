"""The language of an environment: its tokenizer, found, made or trained, and the chat template."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from verifiers import Problem, Verifier
from verifiers.conversation import ROLES, shown

from ..problems.listed import Problems, turns_of
from ..problems.splits import hashed_side, named_side
from ..problems.stream import ProblemStream
from ..text.chat import Chat, read_template
from ..text.encoder import Encoder
from ..text.texts import NOT_UNICODE, is_unicode
from ..text.tokenizer import load_tokenizer, train_tokenizer, trained_size

SAMPLED = 2000  # problems that a tokenizer is trained on if the verifier poses them


def make_encoder(
    tokenizer: str | Path | PreTrainedTokenizerBase | None,
    verifier: Verifier,
    listed: Problems | None,
    test_fraction: float,
    system_prompt: str | None,
    chat_template: str | Path | None,
    chat: bool | None,
    ask: bool,
) -> Encoder:
    """Return what turns the prompts and answers of these problems into tokens; see `TextGenTask` for the arguments.

    Raises:
        ValueError: in one line, for a tokenizer, a template or a setting that cannot be used.
    """
    if chat not in (None, True, False):
        raise ValueError(f"chat must be True, False or None, got {chat!r}")
    if system_prompt is not None and not (isinstance(system_prompt, str) and system_prompt.strip()):
        raise ValueError(f"system_prompt must be text, got {shown(system_prompt)}; omit it for none")
    if system_prompt is not None and not is_unicode(system_prompt):
        raise ValueError(f"system_prompt {shown(system_prompt)}: {NOT_UNICODE}")
    template = None if chat_template is None else read_template(chat_template)
    size = trained_size(tokenizer)
    if size is not None:
        found: Any = train_tokenizer(size, _training_texts(verifier, listed, test_fraction))
    else:
        further = [system_prompt or "", *([template, *ROLES] if template is not None else [])]
        found = load_tokenizer(tokenizer, "" if tokenizer is not None else _alphabet(verifier, listed, further))
    if template is not None:
        found = copy.copy(found)  # the caller's own object keeps its template
        found.chat_template = template
    chats_texts = (system_prompt is not None or template is not None) if chat is None else chat
    if ask and not verifier.request:
        raise ValueError(f"ask=True: {type(verifier).__name__} has no place of the answer to ask for; omit it")
    return Encoder(found, Chat(found, system_prompt, verifier.tools), chats_texts, verifier.request if ask else "")


def _alphabet(verifier: Verifier, listed: Problems | None, further: Iterable[str]) -> str:
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


def _training_texts(verifier: Verifier, listed: Problems | None, test_fraction: float) -> Iterator[str]:
    """Yield the texts of training problems: listed ones, or a sample of the verifier's that is always the same."""
    if listed is None:
        stream = ProblemStream(verifier, "train", test_fraction)
        problems: Iterable[Problem] = map(stream.__getitem__, range(SAMPLED))
    else:
        sides = ((named_side(each) or hashed_side(each, verifier, test_fraction), each) for each in listed)
        problems = (problem for side, problem in sides if side == "train")
    for problem in problems:
        yield from _contents(problem)
        yield from dict.fromkeys([problem.answer, *turns_of(verifier, problem)])


def _contents(problem: Problem) -> Sequence[str]:
    if isinstance(problem.prompt, str):
        return [problem.prompt]
    return [message["content"] for message in problem.prompt]
