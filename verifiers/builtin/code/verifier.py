"""code: Python programs, judged by running them against tests in a sandbox."""

from __future__ import annotations

import itertools
import marshal
import os
import string
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from typing_extensions import override

from ...base import Problem, Verdict, Verifier
from ...isolation.sandbox.run import Limits, Outcome, SandboxError, run, unavailable
from ...plugins.registry import register_verifier, require_trust
from ...reading.extraction import STRICT
from ...reading.statements.documents import document_rule
from . import harness
from .cases import Call, Case, read_tests
from .counterexamples import forgeries, lookup, superseded
from .examples import EXAMPLES
from .paraphrases import WAYS_TO_WRITE
from .programs import program_of

_HARNESS = Path(harness.__file__).read_text(encoding="utf-8")
_SCRIPT = """\
import builtins, runpy, sys
builtins.exit = builtins.quit = sys.exit
runpy.run_path("solution.py", run_name="__main__")
"""
_LONGEST_PROGRAM = 100_000


@register_verifier("code")
class Code(Verifier):
    """Runs a Python program against the tests of its problem; every run has a new sandbox.

    Prompt: anything, such as a signature with its docstring. Completion: the whole program (at most 100,000
    characters), or text with it in a block fenced by ```python and ```. The fence may say `py`, `python3` or nothing,
    in any case, be indented or be of tildes, and the last one may miss its end; a block that says Python comes before
    one that says nothing, a closed one before an open one. Of several blocks, the last one that defines a function
    under test counts (or that reads or prints, if the tests are `cases`), with earlier ones that define or import what
    it uses; later ones show its use. Alphabet: printable ASCII. Reward: 1.0 if every test passes, else 0.0; with
    `partial` the share of tests that pass. A program that crashes, takes too long or too much memory fails its test; a
    sandbox that fails is an "error".

    A problem has one of two columns. `tests`: assertions `assert f(1, [2], key="c") == [3]`, `... is True` (False,
    None), `assert f(1)` or `assert not f(1)` with plain literals; Fraction, Decimal, Counter, OrderedDict, set and
    frozenset of literals may be expected. `cases`: mappings of `input`, the text on standard input, and `output`, the
    text expected on standard output up to whitespace at the ends of lines and of the text. The sandbox gets only the
    calls and inputs; results are compared outside, by value: a Counter, a namedtuple, a Fraction or an IntEnum is equal
    to what Python says, but no class is asked what its own objects are equal to. So a program cannot find or forge the
    expected results, and its exit code does not matter.

    Programs see the standard library and no installed packages, and cannot start processes; docs/sandbox.md has the
    limits of the sandbox. `timeout` is wall-clock time: allow more of it on a busy machine.

    Not caught: a program that knows the tests, because the prompt shows them, and returns their answers.

    Args:
        partial: reward the share of tests passed.
        timeout: seconds per run: all calls of a problem, or one of its cases.
        memory: megabytes of address space per program, at least 64.
        unsafe_local_exec: if programs cannot be isolated, run them as ordinary processes of this user. They can then
            read, change and send everything that this user can.
        extract: "stated", or "strict": the last block, whatever is in it.

    Raises:
        ValueError: for an option out of range, where programs cannot be isolated here, or (when judging) for tests
            of another form.
    """

    alphabet = string.printable
    slow = True
    does_not_catch = {"known-tests": "a program that knows the tests may look up what they expect"}

    def __init__(
        self,
        partial: bool = False,
        timeout: float = 5.0,
        memory: int = 256,
        unsafe_local_exec: bool = False,
        extract: str | None = None,
    ) -> None:
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= 3600:
            raise ValueError(f"code: timeout must be above 0 and at most 3600 seconds, got {timeout!r}")
        if isinstance(memory, bool) or not isinstance(memory, int) or not 64 <= memory <= 1 << 20:
            raise ValueError(f"code: memory must be a whole number of megabytes, 64 to {1 << 20}, got {memory!r}")
        if sys.platform == "win32":
            raise ValueError("code: programs can be run on Linux, or with unsafe_local_exec=True on macOS")
        if unsafe_local_exec:
            require_trust("code: unsafe_local_exec=True")
        reason = unavailable()
        if reason and not unsafe_local_exec:
            raise ValueError(
                f"code: programs cannot be isolated here ({reason}); to run them as ordinary processes, with all the "
                "rights of this user, set unsafe_local_exec=True (--unsafe-local-exec)"
            )
        self.rule = document_rule("code", extract)
        self.partial = partial
        self.isolating = not reason
        self._limits = Limits(seconds=timeout, memory=memory << 20)

    def examples(self) -> list[Problem]:
        """Return a few problems with tests of both forms."""
        return [Problem(prompt, programs[0], dict(tests)) for prompt, programs, tests in EXAMPLES]

    def paraphrases(self, problem: Problem) -> list[str]:
        """Return the answer in fenced blocks of many kinds; for the examples, other solutions, too."""
        others = next((programs[1:] for prompt, programs, _ in EXAMPLES if prompt == problem.text), ())
        programs = [text for text in (problem.answer, *others) if text]
        turns = itertools.cycle(programs) if programs else ()
        return [*others, *(fenced(text) for fenced, text in zip(WAYS_TO_WRITE, turns, strict=False))]

    def counterexamples(self, problem: Problem) -> dict[str, list[str]]:
        """Return programs that forge a success, right ones that a wrong one follows, and one that knows the tests."""
        tests = read_tests(problem)
        return {
            "forged-success": forgeries(tests),
            "superseded": superseded(problem.answer) if problem.answer else [],
            "known-tests": [lookup(tests)],
        }

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        tests = read_tests(problem)
        program = self._program(tests, completion)
        if not program:
            return Verdict(0.0)
        try:
            share = self._count(tests, program) / len(tests)
        except SandboxError as error:
            return Verdict(0.0, status="error", reason=f"sandbox: {error}")
        return Verdict(share if self.partial else float(share == 1.0))

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Run many completions, one per processor at a time."""
        pairs = list(zip(problems, completions, strict=True))
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # its threads wait for processes
            return list(pool.map(lambda pair: self.verify(*pair), pairs))

    def _program(self, tests: list[Call] | list[Case], completion: str) -> str:
        """Return the program in a completion; empty if there is none, or it is too long."""
        called = {test.function for test in tests if isinstance(test, Call)}
        program = program_of(completion, called, last=self.rule == STRICT)
        return program if program.strip() and len(program) <= _LONGEST_PROGRAM else ""

    def _count(self, tests: list[Call] | list[Case], program: str) -> int:
        """Return how many tests a program passes; if all are needed, stop after the first failed run."""
        calls = [test for test in tests if isinstance(test, Call)]
        if calls:
            return sum(map(Call.is_passed_by, calls, self._called(calls, program).output.split(b"\n")[:-1]))
        return self._count_cases([test for test in tests if isinstance(test, Case)], program)

    def _called(self, calls: list[Call], program: str) -> Outcome:
        """Run the functions of a program; see `harness`."""
        stdin = marshal.dumps([call.request() for call in calls])
        return run({"main.py": _HARNESS, "solution.py": program}, stdin, self._limits, self.isolating)

    def _given(self, case: Case, program: str) -> tuple[bool, Outcome]:
        """Run a program on an input; return whether it passes, too."""
        files = {"main.py": _SCRIPT, "solution.py": program}
        outcome = run(files, case.input.encode(), self._limits, self.isolating)
        return outcome.ended == "itself" and case.is_passed_by(outcome.output), outcome

    def _count_cases(self, cases: list[Case], program: str) -> int:
        passed = 0
        for case in cases:
            right, _ = self._given(case, program)
            if not (right or self.partial):
                break
            passed += right
        return passed
