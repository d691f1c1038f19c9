"""The tokenizer of a task: named, trained on its problems, or with a token for each of their characters."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from rlenv.verifiers.base import Poser
from rlenv.verifiers.conversation import ROLES, as_messages

from .chat import read_template
from .forms import Form
from .problems import Problems, turns_of
from .stream import ProblemStream
from .tokenizer import load_tokenizer, train_tokenizer, trained_size

SAMPLED = 2000  # problems that a tokenizer is trained on if the verifier poses them
LINES = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"  # a template: each message is a line


def make_tokenizer(form: Form, verifier: Poser, listed: Problems | None, test_fraction: float) -> Any:
    """Return the tokenizer of a task, with its chat template.

    Args:
        form: names the tokenizer and the template.
        verifier: declares the alphabet, and poses problems if none are listed.
        listed: the listed problems, if any.
        test_fraction: a tokenizer is trained on the problems outside this share.

    Raises:
        ValueError: for a tokenizer or a template that cannot be loaded, and for problems from which none can be made.
    """
    given, template = form.tokenizer, None if form.chat_template is None else read_template(form.chat_template)
    size = trained_size(given)
    if template is None and given is None and listed is not None and not isinstance(listed[0].prompt, str):
        template = LINES  # nobody else can give it one
    if size:
        tokenizer: Any = train_tokenizer(size, _training_texts(verifier, listed, test_fraction))
    else:
        further = [form.system_prompt or "", *([template, *ROLES] if template is not None else [])]
        tokenizer = load_tokenizer(given, "" if given is not None else _alphabet(verifier, listed, further))
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
    stream = ProblemStream(verifier, "train", test_fraction)
    for problem in map(stream.__getitem__, range(SAMPLED)) if listed is None else filter(stream.has, listed):
        yield from (message["content"] for message in as_messages(problem.prompt))
        yield from dict.fromkeys([problem.answer, *turns_of(verifier, problem)])
