"""Programs judged by tests, and programs that try to be judged better than they are."""

import pytest
from drawn import drawn
from hypothesis import given
from hypothesis import strategies as st

import verifiers.code.verifier as code_module
from verifiers import Code, Problem, Verdict
from verifiers.code.cases import Call
from verifiers.code.harness import DEEPEST, decode, encode
from verifiers.code.verifier import program_of
from verifiers.sandbox import run as sandbox
from verifiers.sandbox.run import SandboxError

pytestmark = pytest.mark.skipif(bool(sandbox.unavailable()), reason="see test_sandbox.py")
ADD = Problem(
    "add", "def add(a, b): return a + b", {"tests": ["assert add(1, 2) == 3", "assert add('a', b='b') == 'ab'"]}
)
CASES = Problem(
    "sum",
    "print(sum(map(int, input().split())))",
    {"cases": [{"input": "1 2\n", "output": "3"}, {"input": "4 5\n", "output": "9\n\n"}]},
)
RIGHT = "def add(a, b):\n    return a + b\n"
TOKEN = "token-38147"  # what the tests expect; no program can know it


def reward(problem, completion, **options):
    verdict = Code(**options).verify(problem, completion)
    assert verdict.status == "ok"
    return verdict.reward


def asks(*tests):
    return Problem("p", "", {"tests": list(tests)})


OUTPUTS = {
    "print(sum(map(int, input().split())))": 1.0,
    "a, b = input().split()\nprint(int(a) + int(b), end=' \\n\\n')\nexit()": 1.0,
    "if __name__ == '__main__': print(sum(map(int, input().split())))": 1.0,
    "print(' 3')": 0.0,
    "print('passed')\nraise SystemExit(0)": 0.0,
    "print(sum(map(int, input().split())), flush=True)\nwhile True: pass": 0.0,
}


@pytest.mark.parametrize(
    ("completion", "share"),
    [
        *OUTPUTS.items(),
        (RIGHT, 1.0),
        ("def add(a, b):\n    return 1 / (a != 'a')", 0.0),
        ("def add(a, b):\n    if a == 1: return 3\n    while True: pass", 0.5),
        ("def add(a, b):\n    if a == 1: return 3\n    import os; os._exit(0)", 0.5),
        ("print(3)\n" + RIGHT + "print('ab')\n", 1.0),
        ("", 0.0),
        ("\0", 0.0),
        ("\ud800", 0.0),
        ("(" * 5000, 0.0),
        (RIGHT + "#" * 100_000, 0.0),
    ],
)
def test_a_program_is_worth_the_tests_it_passes(completion, share):
    timeout = 0.5 if "while True" in completion else 5.0
    assert reward(CASES if completion in OUTPUTS else ADD, completion, timeout=timeout, partial=True) == share


@pytest.mark.parametrize(("problem", "half"), [(ADD, "def add(a, b): return 3"), (CASES, "print(3)")])
def test_some_of_the_tests_are_worth_nothing_unless_parts_are_paid(problem, half):
    assert [reward(problem, half, partial=partial) for partial in (False, True)] == [0.0, 0.5]
    assert reward(problem, problem.answer) == 1.0


VALUES = [
    ("assert f() == 240", "240.0", True),  # as in Python, and as in public collections of problems
    ("assert f() is True", "1", False),
    ("assert f()", "[0]", True),
    ("assert f()", "[]", False),
    ("assert not f()", "None", True),
    ("assert not f()", "'no'", False),
    ("assert f() == Fraction(5, 6)", "__import__('fractions').Fraction(10, 12)", True),
    ("assert f() == Decimal('0.1')", "__import__('decimal').Decimal('0.10')", True),
    ("assert f() == Counter('aab')", "{'a': 2, 'b': 1}", True),
    ("assert f() is None", "0", False),
    ("assert f() == [1, 2]", "(1, 2)", False),
    ("assert f() == {1: 'a', (2, 3): None}", "{(2, 3): None, 1: 'a'}", True),
    ("assert f() == {'a': 1}", "[['a', 1]]", False),
    ("assert f() == -1.5e300, 'a message'", "-1.5e300", True),
    ("assert f() == 'é\\ud800'", "'é\\ud800'", True),
    ("assert f() == 1", "float('nan')", False),
    ("assert f() == 1", "10 ** 9000", False),
    ("assert f() == 1", "'1'", False),
    ("assert f() == [1, 2]", "range(1, 3)", False),
    ("assert f() == 1", "__import__('enum').IntEnum('E', 'a').a", True),
    ("assert f() == 1", "__import__('enum').Enum('E', 'a').a", False),
    ("assert f() == {'a': 2, 'b': 1}", "__import__('collections').Counter('aba')", True),
    ("assert f() == {'a': [1]}", "__import__('collections').defaultdict(list, a=[1])", True),
    ("assert f() == [1, 2]", "__import__('collections').deque([1, 2])", False),
    ("assert f() == [(1, 2)]", "[__import__('collections').namedtuple('P', 'x y')(1, 2)]", True),
    ("assert f() == [1, 2]", "__import__('collections').namedtuple('P', 'x y')(1, 2)", False),
    ("assert f() == 0.5", "__import__('fractions').Fraction(1, 2)", True),
    ("assert f() == {3: 1}", "{__import__('fractions').Fraction(9, 3): 1}", True),
    ("assert f() == 0.1", "__import__('decimal').Decimal('0.1')", False),
    ("assert f() == 1", "__import__('decimal').Decimal('sNaN')", False),
    ("assert f() == 2j", "2j", True),
    ("assert f() == {1, 2}", "{1: 0, 2: 0}.keys()", True),
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
    assert reward(asks(*tests), program, partial=True) == (1.0 if equal else 1 / len(tests))


FORGERIES = {
    "equal to everything": "class Yes:\n    def __eq__(self, other): return True\ndef f(x): return Yes()\n",
    "a str equal to everything": (
        "class Yes(str):\n    __eq__ = lambda self, other: True\n    __hash__ = None\ndef f(x): return Yes('token')\n"
    ),
    "a Fraction equal to everything": (
        "import fractions, decimal\n"
        "def lying(base, *given):\n"
        "    return type('Yes', (base,), {'__eq__': lambda a, b: True, '__hash__': lambda a: hash(a.value),\n"
        "        '__class__': str, '__len__': lambda a: 11, '__str__': lambda a: 'token'})(*given)\n"
        "def f(x): return lying(fractions.Fraction, 1) if len(x) % 2 else lying(decimal.Decimal, 1)\n"
    ),
    "a class that says it is another": (
        "class Meta(type):\n    __mro__ = (str, object)\n    mro = lambda cls: [cls, str, object]\n"
        "    __eq__ = lambda a, b: True\n    __hash__ = type.__hash__\n"
        "class Yes(str, metaclass=Meta):\n    __eq__ = lambda self, other: True\n    __hash__ = str.__hash__\n"
        "def f(x): return Yes('token')\n"
    ),
    "exit while importing": "import sys\nsys.exit(0)\n",
    "exit in the call": "def f(x): raise SystemExit(0)\n",
    "verdicts on every pipe": (
        "import os\nfor fd in range(64):\n    for text in (b'[true]', b'1', b'passed', b'[]', b'[1.0]'):\n"
        "        try: os.write(fd, text + b'\\n')\n        except OSError: pass\nos._exit(0)\n"
    ),
    "results that are no JSON": (
        "import os\nfor fd in (3, 4, 5):\n    try: os.write(fd, b'\\xff{' * 9999)\n    except OSError: pass\n"
    ),
    "a patched encoder": "import json\njson.dumps = lambda *a, **k: '[true]'\ndef f(x): return 1\n",
    "patched builtins": (
        "import builtins, sys\nbuiltins.type = lambda *a: str\nsys.modules['__main__'].encode = lambda *a: True\n"
        "def f(x): return object()\n"
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_success_is_a_failed_test(name):
    assert reward(asks(f"assert f('x') == {TOKEN!r}"), FORGERIES[name]) == 0.0


SEARCH = """
import gc, os, sys

def places():
    frame = sys._getframe()
    while frame:
        yield from (repr(frame.f_locals), repr(frame.f_globals), repr(frame.f_code.co_consts))
        frame = frame.f_back
    yield from map(repr, gc.get_objects())
    for folder in ("/tmp", "/proc/self", "/proc/1", "/proc/self/fd"):
        for name in os.listdir(folder) if os.path.isdir(folder) else ():
            if folder.endswith("fd") and name in ("0", "1", "2"): continue
            try: yield open(f"{folder}/{name}", errors="replace").read(10**6)
            except OSError: pass

def f(x):
    for text in places():
        at = text.find("tok" + "en-")
        if at >= 0: return text[at:at + 11]
"""


def test_what_is_expected_is_nowhere_in_the_sandbox():
    assert reward(asks(f"assert f('x') == {TOKEN!r}"), SEARCH) == 0.0
    assert reward(asks(f"assert f({TOKEN!r}) == {TOKEN!r}"), SEARCH) == 1.0  # the search finds what is there


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.sets(st.integers() | st.text())
        | st.dictionaries(st.text(), inner)
    ),
    max_leaves=20,
)


@drawn(30)
@given(plain)
def test_plain_data_comes_back_as_it_went(value):
    import json

    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert repr(type(back)) == repr(type(value))
    assert Call("f", [], {}, value).is_passed_by(json.dumps([encode(value)]).encode())


@given(st.binary() | st.text().map(str.encode) | plain.map(repr).map(lambda text: text.encode("utf-8", "replace")))
@drawn(40)
def test_whatever_comes_back_is_an_answer_and_never_an_error(line):
    call = Call("f", [], {}, TOKEN)
    assert call.is_passed_by(line) is False
    assert call.is_passed_by(b"[" + line + b"]") is False


@pytest.mark.parametrize(
    "line",
    [
        b'[{"Fraction": ["1e99999999"]}]', b'[{"Fraction": ["1e99999999", 1]}]', b'[{"Fraction": [1, 0]}]',
        b'[{"Decimal": [["1e9"]]}]', b'[{"Decimal": ["1e99999999"]}]', b'[{"Decimal": ["sNaN"]}]',
        b'[{"set": [{"Decimal": ["1e99999999"]}]}]', b'[{"complex": [1e999, 0]}]', b'[{"dict": [{"Decimal": ["x"]}]}]',
    ],
)  # fmt: skip
@pytest.mark.timeout(60)
def test_a_number_that_would_take_for_ever_is_another_number(line):
    assert not Call("f", [], {}, 1).is_passed_by(line)


DOCUMENTED = '''def f(x):
    """Return x.

    ```python
    f(1)
    ```
    """
    return x
'''


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("x", "x"),
        ("a\n```python\nx\n```\nb", "x"),
        ("```python\nx\n```\nExample usage:\n```python\nprint(y)\n```", "x"),
        ("```python\nx", "x"),
        ('~~~python title="x.py"\nx\n```\n~~~', "x\n```"),
        ("````\nx\n```\n````", "x\n```"),
        ("1. So:\n   ``` PYTHON3\n   if x:\n       y\n   ```\n", "if x:\n    y"),
        ("say ```python\nx\n```", ""),
        (DOCUMENTED, DOCUMENTED),
        (f"```python\n{DOCUMENTED}```\n", DOCUMENTED.rstrip("\n")),
        ("<think>\n```\ny\n```\n</think>\n```\nx\n```", "x"),
        ("<think>\n```\nx\n```", ""),
        ("```python\n```", ""),
        ("", ""),
    ],
)
def test_the_first_block_else_the_whole_text_is_the_program(completion, program):
    assert program_of(completion) == program
    assert Code().extract(ADD, completion) == (program or None)


def test_a_batch_keeps_its_order():
    completions = [f"import time\ntime.sleep({0.15 if n < 1 else 0})\ndef f(): return {n}\n" for n in range(4)]
    problems = [asks(f"assert f() == {n if n % 2 else -1}") for n in range(4)]
    assert [v.reward for v in Code().verify_batch(problems, completions)] == [0.0, 1.0] * 2
    assert Code().verify_batch([], []) == []
    with pytest.raises(ValueError, match="shorter"):
        Code().verify_batch(problems, completions[:3])


def test_a_sandbox_that_fails_is_no_verdict(monkeypatch):
    def fail(*args):
        raise SandboxError("no more processes")

    monkeypatch.setattr(code_module, "run", fail)
    assert Code().verify(ADD, RIGHT) == Verdict(0.0, status="error", reason="sandbox: no more processes")


def test_without_isolation_programs_run_only_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(code_module, "unavailable", lambda: "namespaces need Linux, this is darwin")
    with pytest.raises(
        ValueError, match=r"\(namespaces need Linux, this is darwin\).*unsafe_local_exec=True \(--unsafe"
    ) as caught:
        Code()
    assert "\n" not in str(caught.value)
    verifier = Code(unsafe_local_exec=True, timeout=0.5)
    assert not verifier.isolating
    assert [v.reward for v in verifier.verify_batch([ADD, ADD, CASES], [RIGHT, "while True: pass", "print(3)"])] == [
        1.0,
        0.0,
        0.0,
    ]
    monkeypatch.undo()
    assert Code(unsafe_local_exec=True).isolating  # the option allows, it does not ask for it


def test_no_windows(monkeypatch):
    monkeypatch.setattr(code_module.sys, "platform", "win32")
    with pytest.raises(ValueError, match="Linux"):
        Code(unsafe_local_exec=True)


def test_an_answer_much_longer_than_the_expected_one_is_not_even_read(monkeypatch):
    assert not Call("f", [], {}, {1}).is_passed_by(b'[{"set": [' + b"1," * 1000 + b"1]}]")
    assert Call("f", [], {}, {1}).is_passed_by(b'[{"set": [1, 1, 1]}]')


def test_depth_is_limited_on_both_sides():
    value = []
    for _ in range(DEEPEST + 1):
        value = [value]
    with pytest.raises(ValueError, match="nested more than 50 deep"):
        encode(value)
    with pytest.raises(ValueError, match="nested more than 50 deep"):
        decode(value)


def test_memory_is_limited_by_option():
    problem = asks("assert f() == 1")
    program = "def f():\n    return len(bytearray(100 << 20)) // (100 << 20)\n"
    assert reward(problem, program) == 1.0
    assert reward(problem, program, memory=64) == 0.0
