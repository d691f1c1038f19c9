"""code: Python programs, judged by running them against tests in a sandbox."""

from __future__ import annotations

import marshal
import os
import re
import string
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from typing_extensions import override

from rlenv._checks import check_count, check_number

from ..answer import document_in
from ..base import Execution, Problem, Verdict, Verifier
from ..plugins.registry import register_verifier, require_trust
from ..problem import examples_beside
from ..sandbox.run import ProgramLimits, SandboxError, run, unavailable
from . import harness
from .cases import CallCase, InputCase, fault_of_call, fault_of_case, read_tests

_HARNESS = Path(harness.__file__).read_text(encoding="utf-8")
_SCRIPT = """\
import builtins, runpy, sys
builtins.exit = builtins.quit = sys.exit
runpy.run_path("solution.py", run_name="__main__")
"""
_LONGEST_PROGRAM = 100_000
_NEXT = re.compile(r"\n(?:class|def|#|if|print)")  # ends a continuation (Chen et al. 2021, arXiv:2107.03374)


@register_verifier("code")
class Code(Verifier):
    """Runs a Python program against the tests of its problem; every run has a new sandbox.

    Prompt: anything, such as a signature with its docstring. Completion: the program is the first fenced block, or all
    of the text without a block (at most 100,000 characters); thoughts are cut off first. Alphabet: printable ASCII.
    Reward: 1.0 if every test passes, else 0.0; with `partial` the share of tests that pass. A program that crashes,
    takes too long or too much memory fails its test; a sandbox that fails is an "error". The verdict's reason is the
    fault at the first test that fails.

    A problem has one of three columns:

    - `tests` (`test_list` of MBPP): assertions `assert f(1, [2], key="c") == [3]`, `... is True` (False, None),
      `assert f(1)`, `assert not f(1)`, `assert set(f(1)) == {3}` (list, tuple, sorted, int),
      `assert abs(f(1) - 0.5) < 1e-6` and `assert math.isclose(f(1), 0.5)`, with plain literals and arithmetic of
      them; Fraction, Decimal, Counter, OrderedDict, set and frozenset of literals may be expected.
    - `cases`: mappings of `input`, the text on standard input, and `output`, the text expected on standard output up
      to whitespace at the ends of lines and of the text.
    - `test`, with the name of a function in `entry_point`, as in HumanEval: a function `check(candidate)` of such
      assertions. If the prompt, or the fenced block in it, begins that function, a completion may go on with its body.

    The sandbox gets only the calls and inputs; results are compared outside, by value: a Counter, a namedtuple, a
    Fraction or an IntEnum is equal to what Python says, but no class is asked what its own objects are equal to. So a
    program cannot find or forge the expected results, and its exit code does not matter.

    Programs see the standard library and no installed packages, and cannot start processes; docs/tools.md has the
    limits of the sandbox. `timeout` is processor time, whatever else the machine does; a program that waits or sleeps
    ends after ten times as many seconds of the clock.

    Not caught: a program that knows the tests, because the prompt shows them, and returns their answers.

    Args:
        partial: reward the share of tests passed.
        timeout: seconds of processor time per run, rounded up: all calls of a problem, or one of its cases.
        memory: megabytes of address space per program, at least 64.
        unsafe_local_exec: if programs cannot be isolated, run them as ordinary processes of this user. They can then
            read, change and send everything that this user can.

    Raises:
        ValueError: for an option out of range, where programs cannot be isolated here, or (when judging) for tests
            of another form.
    """

    alphabet = string.printable
    request = "Put the program between two lines of three backticks."
    execution = Execution(slow=True)
    examples = examples_beside(__file__)

    def __init__(
        self,
        partial: bool = False,
        timeout: float = 5.0,
        memory: int = 256,
        unsafe_local_exec: bool = False,
    ) -> None:
        check_number("code: timeout", timeout, 0, 3600, above=True)
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
        self.partial = partial
        self.isolating = not reason
        self._limits = ProgramLimits(seconds=timeout, memory=check_count("code: memory", memory, 64, 1 << 20) << 20)

    @override
    def extract(self, problem: Problem, completion: str) -> str | None:
        return program_of(problem, completion) or None

    @override
    def verify(self, problem: Problem, completion: str) -> Verdict:
        tests = read_tests(problem)
        program = program_of(problem, completion)
        if not program:
            return Verdict(0.0, reason="there is no program")
        faults = []
        try:
            for fault in self.faults(tests, program):
                faults.append(fault)
                if fault and not self.partial:
                    break
        except SandboxError as error:
            return Verdict(0.0, status="error", reason=f"sandbox: {error}")
        share = faults.count("") / len(tests)
        return Verdict(share if self.partial else float(share == 1), reason=next(filter(None, faults), ""))

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Run many completions, one per processor at a time."""
        pairs = list(zip(problems, completions, strict=True))
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # its threads wait for processes
            return list(pool.map(lambda pair: self.verify(*pair), pairs))

    def faults(self, tests: list[CallCase] | list[InputCase], program: str) -> Iterator[str]:
        """Yield the fault of a program at each test, empty if it passes.

        The calls share a run (see `harness`), a case has its own, which begins when it is asked for.
        """
        calls = [test for test in tests if isinstance(test, CallCase)]
        if calls:
            stdin = marshal.dumps([call.request() for call in calls])
            outcome = run({"main.py": _HARNESS, "solution.py": program}, stdin, self._limits, self.isolating)
            lines: list[bytes | None] = [*outcome.output.split(b"\n")[:-1], *[None] * len(calls)]
            for call, line in zip(calls, lines, strict=False):
                yield "" if call.is_passed_by(line) else fault_of_call(call, line, outcome)
        for case in (test for test in tests if isinstance(test, InputCase)):
            files = {"main.py": _SCRIPT, "solution.py": program}
            outcome = run(files, case.input.encode(), self._limits, self.isolating)
            right = outcome.ended == "itself" and case.is_passed_by(outcome.output)
            yield "" if right else fault_of_case(case, outcome)


def program_of(problem: Problem, completion: str) -> str:
    """Return the program in a completion; empty if there is none, or it is too long.

    If the prompt, or the fenced block in it, begins the entry point, the program begins with that; a completion that
    does not define the entry point goes on with it.
    """
    program, begun = document_in(completion), document_in(problem.text).rstrip()
    if not program.strip() or len(program) > _LONGEST_PROGRAM:
        return ""
    entry = re.compile(rf"^(?:async )?def {re.escape(str(problem.metadata.get('entry_point')))}\b", re.MULTILINE)
    if not entry.search(begun):
        return program
    return f"{begun}\n{program if entry.search(program) else _NEXT.split(program)[0]}"
