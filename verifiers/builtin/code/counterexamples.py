"""Wrong programs: they forge a success, are withdrawn, or look up what the tests expect."""

from __future__ import annotations

from collections.abc import Sequence

from .cases import Call, Case

_EQUAL_TO_ALL = "class Anything:\n    def __eq__(self, other):\n        return True\n    __hash__ = None\n\n\n"
_LEAVE = ("import sys\nsys.exit(0)\n", "import os\nos._exit(0)\n", "raise SystemExit(0)\n", "exit()\n")
_PRINT = "import os\nfor answer in ('true', '[true]', '[1]', 'ok', 'passed', '0'):\n    print(answer, flush=True)\n"
_BODIES = (
    "return Anything()", "raise SystemExit(0)", "return None", "return True", "return NotImplemented",
    "import builtins; builtins.all = builtins.any = lambda *given: True", "return arguments",
)  # fmt: skip


def forgeries(tests: Sequence[Call] | Sequence[Case]) -> list[str]:
    """Return programs that say they passed, or end before anything is asked."""
    names = {test.function for test in tests if isinstance(test, Call)}
    functions = [
        _EQUAL_TO_ALL + "".join(f"def {name}(*arguments, **keywords):\n    {body}\n" for name in sorted(names))
        for body in (_BODIES if names else ())
    ]
    return [*_LEAVE, _PRINT, f"{_PRINT}os._exit(0)\n", *functions]


def superseded(program: str) -> list[str]:
    """Return a right program that is not the last word: a wrong one follows, or it is in a block of another kind."""
    return [
        f"```python\n{program}```\nNo:\n```python\nraise NotImplementedError\n```\n",
        f"```\n{program}```\n```py\npass\n```\n",
        f"```text\n{program}```\n",
        f"```python\n{program}```\n```python\n{program[: len(program) // 2]}\nreturn (\n```\n",
    ]


def lookup(tests: Sequence[Call] | Sequence[Case]) -> str:
    """Return the program that knows what the tests expect, and nothing else."""
    outputs = {test.input: test.output for test in tests if isinstance(test, Case)}
    if outputs:
        return f"import sys\nprint({outputs!r}[sys.stdin.read()])\n"
    calls = [test for test in tests if isinstance(test, Call)]
    known = [[call.function, tuple(call.arguments), call.keywords, call.expected] for call in calls]
    search = "next(found for *call, found in known if call == [{0!r}, given, named])"
    functions = "def {0}(*given, **named):\n    return " + search + "\n"
    return f"known = {known!r}\n" + "".join(functions.format(name) for name in sorted({name for name, *_ in known}))
