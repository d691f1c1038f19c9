"""reasoning_gym: the procedural tasks of the package reasoning-gym, "reasoning_gym:leg_counting" and a hundred more."""

from __future__ import annotations

import difflib
import random
import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from typing_extensions import override

from ...base import RIGHT, WRONG, Problem, Verdict, Verifier
from ...plugins.arguments import flag, whole_number
from ...plugins.extras import require
from ...plugins.registry import register_verifier
from ...reading.extraction import STRICT, extract_rule
from ...reading.quiet import quiet
from ...reading.text import WHITESPACE, frame_name, framed, in_frame
from .answers import answer_in
from .rules import is_harmless, is_strict
from .values import judged

SIZE = 10_000
_PROBED = 32  # problems that alphabet and lengths are read off
_LONGEST = 20_000


@register_verifier("reasoning_gym")
class ReasoningGym(Verifier):
    """A task of reasoning-gym: its problems, and its scorer after the stated answer has been found.

    The answer is what the completion states, in a sentence, a box or a fence, with working before it; tasks with
    numbers read it as `numeric` does. Reward 1.0 for a full score, else 0.0; some twenty tasks whose scorers give it
    for more than the answer are judged by a stricter rule: the same number, the given numbers, the form that the
    question asks for. With `strict=False` the task's own score of that answer, 0 to 1, with what it pays for parts and
    for junk.

    Prompt: the task's question and a newline. Alphabet and lengths are read off 32 problems. Scorers that evaluate
    answers as Python get literals and formulas only; all of them run in worker processes, since some take very long.
    Not caught: what the task's scorer does not, such as yes-or-no tasks that guessing solves half of.

    Args:
        task: its name, such as "leg_counting".
        strict: full score or nothing.
        inside: the tag whose section is the answer, such as "answer"; "/think" for what follows `</think>`.
        size: how many problems the task has.
        extract: "stated"; "last", the last answer in the completion; "boxed", that in `\\boxed{}`; or "strict": the
            whole completion, without the whitespace around it, is the answer.
        settings: further settings of the task, such as min_digits.

    Raises:
        ValueError: if reasoning-gym is not installed, for an unknown task (with the closest matches), or settings that
            the task does not take.
    """

    isolated = True
    needs = {"reasoning_gym": "reasoning-gym"}

    def __init__(
        self,
        task: str,
        strict: bool = True,
        inside: str | None = None,
        size: int = SIZE,
        extract: str | None = None,
        **settings: Any,
    ) -> None:
        self.task, self.settings = task, settings
        self.size = whole_number("reasoning_gym", "size", size, 1, 10**9)
        self.strict = flag("reasoning_gym", "strict", strict)
        self.rule = extract_rule("reasoning_gym", extract)
        self.inside = None if inside is None else frame_name("reasoning_gym", inside)
        self._dataset = self._make()
        rng = random.Random(0)
        probed = [self.sample(rng) for _ in range(min(_PROBED, self.size))]
        answers = [self.demonstration(problem) for problem in probed]
        used = set().union(*(problem.text for problem in probed), *answers)
        self.alphabet = string.printable + "".join(sorted(used - set(string.printable)))
        self.prompt_length = 2 * max(len(problem.text) for problem in probed)
        self.answer_length = 2 * max(map(len, answers)) or None

    def sample(self, rng: random.Random) -> Problem:
        """Return one of the task's problems; those without a reference answer have an empty one."""
        index = rng.randrange(self.size)
        with _global_random(index):
            entry = self._dataset[index]
        return Problem(f"{entry['question']}\n", entry["answer"] or "", {"entry": entry})

    def examples(self) -> list[Problem]:
        """Return a few of the task's problems; some tasks take a second to make one."""
        rng = random.Random(0)
        return [self.sample(rng) for _ in range(8)]

    @override
    def demonstration(self, problem: Problem) -> str:
        answer = problem.answer
        return framed(answer, self.inside) if self.inside and answer else answer

    @override
    def extract(self, problem: Problem, completion: str) -> str | None:
        text = completion if self.inside is None else in_frame(completion, self.inside)
        text = (text or "").strip(WHITESPACE)
        if self.rule == STRICT or not 0 < len(text) <= self._longest(problem):
            return text or None
        return answer_in(self.task, problem.metadata["entry"], text, self.rule)

    @override
    @quiet()
    def verify(self, problem: Problem, completion: str) -> Verdict:
        text = completion if self.inside is None else in_frame(completion, self.inside)
        text = (text or "").strip(WHITESPACE)
        if not 0 < len(text) <= self._longest(problem):
            return WRONG
        entry = problem.metadata["entry"]
        answer = text if self.rule == STRICT else answer_in(self.task, entry, text, self.rule)
        if not answer:
            return WRONG if self.strict else self._scored(text, entry)
        if answer == problem.answer or not self.strict:
            return self._scored(answer, entry)
        if not is_harmless(self.task, answer):
            return WRONG
        right = judged(self.task, answer, problem.answer, entry)
        if right is not None:
            return RIGHT if right else WRONG
        return self._scored(answer, entry) if is_strict(self.task, answer, problem.answer, entry) else WRONG

    def _scored(self, answer: str, entry: Mapping[str, Any]) -> Verdict:
        """Return the verdict of the task's own scorer."""
        reference = entry["answer"]
        if answer != reference and not is_harmless(self.task, answer):
            return WRONG
        try:
            score = float(self._dataset.score_answer(answer, entry))
        except Exception:  # scorers raise whatever their parsers do; only the right answer is one they have to read
            if answer == reference:
                raise
            return WRONG
        if self.strict:
            return RIGHT if score >= 1.0 else WRONG
        return Verdict(min(max(score, 0.0), 1.0))

    def _longest(self, problem: Problem) -> int:
        return max(_LONGEST, 2 * len(problem.answer))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_dataset"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._dataset = self._make()

    def _make(self) -> Any:
        library = require("reasoning_gym", "reasoning-gym", "verifier 'reasoning_gym'")
        tasks = sorted(library.factory.DATASETS)
        if self.task not in tasks:
            close = difflib.get_close_matches(str(self.task), tasks, n=3)
            hint = f"did you mean {', '.join(close)}?" if close else f"there are {len(tasks)}, such as {tasks[0]}"
            raise ValueError(f"reasoning_gym: unknown task {self.task!r}; {hint}")
        try:
            return library.create_dataset(self.task, size=self.size, seed=0, **self.settings)
        except (AssertionError, TypeError, ValueError) as error:  # how it refuses settings
            given = ", ".join(f"{name}={value!r}" for name, value in {"size": self.size, **self.settings}.items())
            raise ValueError(f"reasoning_gym:{self.task} refuses {given}: {error}") from error


@contextmanager
def _global_random(seed: int) -> Iterator[None]:
    """Give Python's and NumPy's global randomness a known state for a while; a few tasks draw from it, or reseed it."""
    arrays = require("numpy", "reasoning-gym", "verifier 'reasoning_gym'").random  # which comes with reasoning-gym
    python, numpy = random.getstate(), arrays.get_state()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(python)
        arrays.set_state(numpy)
