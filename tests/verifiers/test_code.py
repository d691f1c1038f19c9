"""Programs judged by tests, and what code-feedback says about a wrong one; kept programs are in answers/code.jsonl."""

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

import rlenv.verifiers.code.verifier as code_module
from rlenv.verifiers import Code, CodeFeedback, Problem, Verdict
from rlenv.verifiers.code.cases import CallCase
from rlenv.verifiers.dialogues import begin, reply_to
from rlenv.verifiers.sandbox import run as sandbox
from rlenv.verifiers.sandbox.run import SandboxError
from rlenv.verifiers.wrapping import makes_problems

pytestmark = pytest.mark.skipif(bool(sandbox.unavailable()), reason="see test_sandbox.py")
ADD = Problem("add", "def add(a, b): return a + b", {"tests": ["assert add(1, 2) == 3"]})
RIGHT = "def add(a, b):\n    return a + b\n"


VALUES = [
    ("assert f() == 240", "240.0", True),  # as in Python, and as in public collections of problems
    ("assert f() is True", "1", False),
    ("assert f()", "[]", False),
    ("assert not f()", "None", True),
    ("assert f()", "__import__('re').match('a', 'ab')", True),
    ("assert f() is True", "__import__('re').match('a', 'ab')", False),
    ("assert f() == Fraction(5, 6)", "__import__('fractions').Fraction(10, 12)", True),
    ("assert f() == Decimal('0.1')", "__import__('decimal').Decimal('0.10')", True),
    ("assert f() == Counter('aab')", "{'a': 2, 'b': 1}", True),
    ("assert f() == [1, 2]", "(1, 2)", False),
    ("assert f() == {1: 'a', (2, 3): None}", "{(2, 3): None, 1: 'a'}", True),
    ("assert f() == {'a': 1}", "[['a', 1]]", False),
    ("assert f() == 'é\\ud800'", "'é\\ud800'", True),
    ("assert f() == 1", "float('nan')", False),
    ("assert f() == 1", "10 ** 9000", False),
    ("assert f() == [1, 2]", "range(1, 3)", False),
    ("assert f() == 1", "__import__('enum').IntEnum('E', 'a').a", True),
    ("assert f() == 1", "__import__('enum').Enum('E', 'a').a", False),
    ("assert f() == {'a': 2, 'b': 1}", "__import__('collections').Counter('aba')", True),
    ("assert f() == {'a': [1]}", "__import__('collections').defaultdict(list, a=[1])", True),
    ("assert f() == [(1, 2)]", "[__import__('collections').namedtuple('P', 'x y')(1, 2)]", True),
    ("assert f() == [1, 2]", "__import__('collections').namedtuple('P', 'x y')(1, 2)", False),
    ("assert f() == 0.5", "__import__('fractions').Fraction(1, 2)", True),
    ("assert f() == {3: 1}", "{__import__('fractions').Fraction(9, 3): 1}", True),
    ("assert f() == 0.1", "__import__('decimal').Decimal('0.1')", False),
    ("assert f() == 1", "__import__('decimal').Decimal('sNaN')", False),
    ("assert f() == 2j", "2j", True),
    ("assert f() == [3 * 19, 0 ** 0, 2.0 / 3, 'a' + 'b']", "[57, 1, 2 / 3, 'ab']", True),
    ("assert set(f()) == set([1, 2])", "[2, 1, 2]", True),
    ("assert set(f()) == {1, 2}", "[2, 1, 3]", False),
    ("assert sorted(f()) == [1, 2]", "{2, 1}", True),
    ("assert tuple(f()) == tuple([1, 2])", "[1, 2]", True),
    ("assert abs(f() - 2.0 / 3) < 1e-6", "0.6666667", True),
    ("assert abs(f() - 0.5) < 1e-6", "0.500001", False),
    ("assert abs(f() - 0.5) < 1e-6", "float('nan')", False),
    ("assert math.isclose(f(), 400., rel_tol=0.001)", "400.3", True),
    ("assert math.isclose(f(), 0.5, abs_tol=1)", "'0.5'", False),
    ("assert f() == {(1, 2)}", "{1: 2}.items()", True),
    ("assert f() is True", "__import__('fractions').Fraction(1)", False),
    ("assert f() == 1", "type('I', (int,), {'__eq__': lambda a, b: False, '__hash__': None})(1)", True),
]


@pytest.mark.parametrize("equal", [True, False])
def test_values_compare_as_in_python_whatever_their_class_says(equal):
    """All in one program, since every program needs a sandbox, with a right one last that shows that all of it ran."""
    cases = [*((test, value) for test, value, is_equal in VALUES if is_equal is equal), ("assert f()", "1")]
    tests = [test.replace("f()", f"f{number}()") for number, (test, _) in enumerate(cases)]
    program = "".join(f"def f{number}():\n    return {value}\n" for number, (_, value) in enumerate(cases))
    verdict = Code(partial=True).verify(Problem("p", "", {"tests": tests}), program)
    assert (verdict.status, verdict.reward) == ("ok", 1.0 if equal else 1 / len(tests))


PARTS = ["[", "]", "{", "}", '"set"', '"dict"', '"Decimal"', '"Fraction"', ": ", ", ", "1", "null", '"token-38147"']


@given(st.binary() | st.text().map(str.encode) | st.lists(st.sampled_from(PARTS)).map("".join).map(str.encode))
@drawn(40)
def test_whatever_comes_back_is_an_answer_and_never_an_error(line):
    call = CallCase("f", [], {}, "token-38147")
    for each in (line, b"[" + line + b"]"):
        assert call.is_passed_by(each) is (each == b'["token-38147"]')


@pytest.mark.parametrize(
    "line",
    [
        b'[{"Fraction": ["1e99999999"]}]', b'[{"Fraction": ["1e99999999", 1]}]', b'[{"Fraction": [1, 0]}]',
        b'[{"Decimal": [["1e9"]]}]', b'[{"Decimal": ["1e99999999"]}]', b'[{"Decimal": ["sNaN"]}]',
        b'[{"set": [{"Decimal": ["1e99999999"]}]}]', b'[{"complex": [1e999, 0]}]', b'[{"dict": [{"Decimal": ["x"]}]}]',
        b'[{"set": [' + b"1," * 1000 + b"1]}]",
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_value_that_would_take_for_ever_to_read_is_another_value(line):
    assert not CallCase("f", [], {}, 1).is_passed_by(line)
    assert not CallCase("f", [], {}, {1}).is_passed_by(line)
    assert CallCase("f", [], {}, {1}).is_passed_by(b'[{"set": [1, 1, 1]}]')


def test_a_sandbox_that_fails_is_no_verdict(monkeypatch):
    def fail(*args):
        raise SandboxError("no more processes")

    monkeypatch.setattr(code_module, "run", fail)
    assert Code().verify(ADD, RIGHT) == Verdict(0.0, status="error", reason="sandbox: no more processes")


def test_without_isolation_programs_run_only_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(code_module, "unavailable", lambda: "namespaces need Linux, this is darwin")
    with pytest.raises(ValueError, match=r"\(namespaces need Linux, this is darwin\).*=True \(--unsafe") as caught:
        Code()
    assert "\n" not in str(caught.value)
    verifier = Code(unsafe_local_exec=True)
    assert not verifier.isolating
    assert [v.reward for v in verifier.verify_batch([ADD, ADD], [RIGHT, "add = max"])] == [1.0, 0.0]
    monkeypatch.undo()
    assert Code(unsafe_local_exec=True).isolating  # the option allows, it does not ask for it
    monkeypatch.setattr(code_module.sys, "platform", "win32")
    with pytest.raises(ValueError, match="Linux"):
        Code(unsafe_local_exec=True)


# code-feedback


CLAMP = Problem(
    "def clamp(value, low, high):", "def clamp(v, low, high):\n    return max(low, min(v, high))\n",
    {"tests": ["assert clamp(5, 0, 10) == 5", "assert clamp(-3, low=0, high=10) == 0"]},
)  # fmt: skip
SUM = Problem("Sum the lines.", "print(sum(map(int, open(0))))", {"cases": [{"input": "1\n2\n", "output": "3"}]})
BODY = "def clamp(v, low, high)"
ODD = 'class Odd(Exception):\n    def __str__(self): raise self\ndef clamp(*a):\n    raise Odd("é" * 1000)'


@pytest.mark.parametrize(
    ("problem", "program", "reply"),
    [
        (CLAMP, f"{BODY}:\n    return min(v, high)", "clamp(-3, low=0, high=10) returned -3"),
        (CLAMP, f"{BODY}:\n    return [][v]", "clamp(5, 0, 10) raised IndexError: list index out of range"),
        (CLAMP, BODY, "the program raised SyntaxError: expected ':'"),
        (CLAMP, f"{BODY}:\n    while True: pass", "the program took too long"),
        (CLAMP, "", "there is no program"),
        (CLAMP, CLAMP.answer + "#" * 100_000, "there is no program"),
        (CLAMP, ODD, "clamp(5, 0, 10) raised Odd"),
        (SUM, "print(input())", r"for the input '1\n2\n' it printed '1'"),
        (CLAMP, f'{BODY}:\n    raise ValueError("é" * 1000)', None),
    ],
)
def test_a_wrong_program_comes_back_with_its_first_fault_in_short_ascii(problem, program, reply):
    verifier = CodeFeedback(timeout=0.05 if "while True" in program else 9.0)
    answer = reply_to(begin(verifier, problem), program)
    assert (answer.verdict is None and answer.content == f"Wrong: {reply}\n") or reply is None
    assert len(answer.content) <= verifier.turns.reply_length and answer.content.isascii()


def test_a_mended_program_is_right():
    verifier = CodeFeedback(timeout=1.0)
    dialogue = begin(verifier, CLAMP)
    assert reply_to(dialogue, "pass").verdict is None
    assert reply_to(dialogue, f"```python\n{CLAMP.answer}```").verdict.reward == 1
    assert dialogue.out_of_budget().reward == 0 and verifier.verify(CLAMP, CLAMP.answer).reward == 1
    assert verifier.turns.max_turns == 3 and makes_problems(verifier) and len(verifier.examples()) > 8
