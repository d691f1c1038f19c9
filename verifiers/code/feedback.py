"""code-feedback: the model reads the fault of a program that fails its tests, and may mend the program."""

from __future__ import annotations

import random
from functools import cached_property

from typing_extensions import override

from rlenv._checks import check_count

from ..base import Dialogue, Execution, Problem, Reply, Turns, is_success
from ..plugins.registry import register_verifier
from .verifier import Code

LONGEST_REPLY = 300  # characters


@register_verifier("code-feedback")
class CodeFeedback(Code):
    """A Python program in a few tries: the first test that fails comes back; reward 1.0 if all pass, else 0.0.

    Prompt, completion, alphabet, tests and sandbox are those of `code`; each turn is a whole program. A reply names the
    first call that fails, with what it returned or raised, such as `Wrong: clamp(-3, 0, 10) returned -3`, never what is
    expected. The episode ends with a right program, or when the turns have run out. Its own problems are the examples
    of `code`; others can be listed, such as those of the task humaneval. A demonstration is one program.

    Not caught: a program that knows the tests and returns their answers; replies tell some of the calls.

    Args:
        turns: programs per episode, 1 to 20.
        timeout: seconds per run; see `code`.
        memory: megabytes of address space per program; see `code`.
        unsafe_local_exec: see `code`.
    """

    def __init__(
        self, turns: int = 3, timeout: float = 5.0, memory: int = 256, unsafe_local_exec: bool = False
    ) -> None:
        super().__init__(False, timeout, memory, unsafe_local_exec)
        self.turns = Turns(check_count("code-feedback: turns", turns, 1, 20), LONGEST_REPLY)
        # Isolated, so that the programs of several episodes run at once; a worker process also starts the sandbox.
        self.execution = Execution(isolated=True, timeout=timeout + 30, slow=True)

    @cached_property
    def _own(self) -> list[Problem]:
        return self.examples()

    @override
    def sample(self, rng: random.Random) -> Problem:
        return rng.choice(self._own)

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        return Mending(self, problem)


class Mending(Dialogue):
    """The other side of an episode: it runs each program, and remembers nothing."""

    def __init__(self, verifier: CodeFeedback, problem: Problem) -> None:
        self.verifier, self.problem = verifier, problem

    @override
    def reply(self, turn: str) -> Reply:
        verdict = self.verifier.verify(self.problem, turn)
        if verdict.status != "ok" or is_success(self.verifier, verdict):
            return Reply(verdict=verdict)
        plain = verdict.reason.encode("ascii", "backslashreplace").decode()
        return Reply(f"Wrong: {plain[: LONGEST_REPLY - 10]}\n")

    @override
    def recall(self, turn: str) -> None:
        pass
