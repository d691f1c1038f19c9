"""What a model writes never warns: warnings are for those who write programs, patterns and schemas."""

import threading
import warnings

import pytest

from verifiers import Problem, make_verifier
from verifiers.plugins import registry
from verifiers.text import quiet

# Each of them makes `re`, `ast` or the compiler warn, in one of the Pythons that we support.
WARNS = [
    "[0--", "[[a]", "[^[a]", "[a&&b]", "[a||b]", "[a~~b]", "[+--a]", "(?(\u0661)a)", "(?P<a>b)(?P=\u0661)",
    "'\\q'", '"\\d"', "1is 1", "1if 2else 3", "0x1for x in y", "1 is 1", "(1)(2)", "[1][2, 3]", "assert (1, 2)",
]  # fmt: skip
FENCED = [f"```python\n{line}\n```" for line in WARNS]
SCHEMA = {"patternProperties": {"[[a]": {}}, "propertyNames": {"pattern": "[a||b]"}}
TASKS = [f"reasoning_gym:{name}" for name in ("string_insertion", "spiral_matrix", "binary_matrix", "n_queens")]


PLAIN = ["arith", "choice", "code", "countdown", "exact", "length", "math", "numeric"]
MADE = {
    **{name: (name, {}, None) for name in (*PLAIN, "calculator-sums", "code-feedback", "guess")},
    **{task: (task, {"size": 50}, None) for task in TASKS},
    "format": ("format", {}, Problem("?")),
    "regex": ("regex", {}, Problem("?", "", {"pattern": "[[a&&b]+"})),
    "pattern": ("json_schema", {}, Problem("?", "", {"schema": {"type": "string", "pattern": "[[a]"}})),
    "json_schema": ("json_schema", {}, Problem("?", "", {"schema": SCHEMA})),
}


def test_every_verifier_that_judges_here_is_looked_at():
    ours = {name for name, cls in registry._REGISTRY.items() if cls.__module__.startswith("verifiers.")}
    elsewhere = {"environment", "gem", "gym", "openenv", "reward_model", "textarena", "weighted"}
    assert {kind.partition(":")[0] for kind, _, _ in MADE.values()} == ours - elsewhere


@pytest.mark.parametrize("name", MADE)
def test_no_verifier_warns_of_what_a_model_wrote(name):
    kind, options, problem = MADE[name]
    verifier = make_verifier(kind, **options)
    problem = problem or verifier.examples()[0]
    quoted = [f'"{line}"' for line in WARNS if '"' not in line and "\\" not in line]
    texts = [*WARNS, *quoted, f"[{', '.join(quoted)}]", *(f"${line}$" for line in WARNS)]
    for text in FENCED[-3:] if name.startswith("code") else texts:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            assert verifier.verify(problem, text).status == "ok"
        assert not seen, f"{text}: {seen[0].message}"


def test_a_program_that_the_compiler_warns_of_is_judged_by_its_results():
    verifier = make_verifier("code")
    problem = Problem("?", "", {"tests": ["assert f() == 'q'"]})
    assert verifier.verify(problem, "def f():\n    '\\d'\n    return 'q' if 1is 1 else (1)(2)\n").reward == 1.0


def test_other_threads_are_warned_meanwhile_and_nothing_is_left_behind():
    inside, done = threading.Event(), threading.Event()

    def be_quiet():
        with quiet():
            inside.set()
            done.wait(10)
            warnings.warn("of the quiet thread", UserWarning, stacklevel=1)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        thread = threading.Thread(target=be_quiet)
        thread.start()
        inside.wait(10)
        warnings.warn("of another thread", UserWarning, stacklevel=1)
        done.set()
        thread.join()
        warnings.warn("afterwards", UserWarning, stacklevel=1)
    assert [str(each.message) for each in seen] == ["of another thread", "afterwards"]


def test_a_filter_that_comes_later_does_not_end_the_quiet():
    for _ in range(3):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with quiet():
                warnings.warn("nothing", UserWarning, stacklevel=1)
            with pytest.raises(UserWarning):
                warnings.warn("something", UserWarning, stacklevel=1)
