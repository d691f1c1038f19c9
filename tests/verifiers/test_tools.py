"""Tools: calls in the forms of model families and in plain text, results, everything that can fail, the calculator."""

import asyncio
import json
import os
import pickle
import random
import sys
import time
from enum import Enum
from typing import Literal

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlenv.verifiers import Arith, Dialogue, Isolated, Problem, Reply, Turns, Verifier
from rlenv.verifiers.base import right_turns
from rlenv.verifiers.dialogues import begin, replay, reply_to
from rlenv.verifiers.dialogues.calculator import LONGEST, calc
from rlenv.verifiers.dialogues.calls import MOST_CALLS, Call, read_calls
from rlenv.verifiers.dialogues.toolbox import NO_OUTPUT, make_tool
from rlenv.verifiers.dialogues.tools import WithTools
from rlenv.verifiers.plugins.registry import trusting
from rlenv.verifiers.wrapping import makes_problems

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers do not import pytest

NAMES = ("calc", "look")
FORMS = {
    "hermes": '<tool_call>\n{"name": "calc", "arguments": {"expression": "12*34"}}\n</tool_call>',
    "hermes, open": 'I count.\n<tool_call>{"name": "calc", "arguments": {"expression": "12*34"}}',
    "arguments as text": '<tool_call>{"name": "calc", "arguments": "{\\"expression\\": \\"12*34\\"}"}</tool_call>',
    "openai": '<tool_call>{"type": "function", "function": {"name": "calc", "arguments": {"expression": "12*34"}}}',
    "mistral": '[TOOL_CALLS][{"name": "calc", "arguments": {"expression": "12*34"}, "id": "abcdefghi"}]',
    "mistral, spaced": '[TOOL_CALLS] [{"name": "calc", "arguments": {"expression": "12*34"}}]',
    "mistral, named": '[TOOL_CALLS]calc[ARGS]{"expression": "12*34"}',
    "mistral, numbered": '[TOOL_CALLS]calc[CALL_ID]a1b2c3d4e[ARGS]{"expression": "12*34"}',
    "llama": '{"name": "calc", "parameters": {"expression": "12*34"}}',
    "llama, typed": '\n{"type": "function", "name": "calc", "parameters": {"expression": "12*34"}}\n',
    "llama, tagged": '<|python_tag|>{"name": "calc", "parameters": {"expression": "12*34"}}',
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_each_form_is_read_but_not_in_thoughts_fences_or_quotes(form):
    one = [Call("calc", {"expression": "12*34"})]
    for around in ("{}", "<think>{}</think>\n{}", "```python\nx = 1\n```\n{}"):
        assert read_calls(around.replace("{}", form), NAMES) == one, around
    for around in ("<think>{}</think>408", "So:\n  ~~~text\n{}\n~~~\nis a call.", "```python\nx = 1\n{}"):
        assert read_calls(around.replace("{}", form), NAMES) == [], around
    for quote in "`'\"":
        assert read_calls(f"I would write {quote}{form.removeprefix('I count.').strip()}{quote} to ask.", NAMES) == []


LOOK = Call("look", {"at": 1})
SAID = "Say '<tool_call>' or `[TOOL_CALLS]`"


@pytest.mark.parametrize(
    ("turn", "calls"),
    [
        *((turn, [Call("calc"), LOOK]) for turn in (
            '<tool_call>{"name": "calc"}</tool_call>\n<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>',
            '<tool_call>{"name": "calc"}<tool_call>{"name": "look", "arguments": {"at": 1}}',
            '[TOOL_CALLS][{"name": "calc", "arguments": {}}, {"name": "look", "arguments": {"at": 1}}]',
            '[TOOL_CALLS]calc[ARGS]{}[TOOL_CALLS]look[ARGS]{"at": 1}',
            '<|python_tag|>{"name": "calc", "parameters": {}}; {"name": "look", "parameters": {"at": 1}}',
        )),
        (f'<tool_call>{{"name": "look", "arguments": {{"at": "{SAID}"}}}}</tool_call>', [Call("look", {"at": SAID})]),
        ("calc(12*34)", [Call("calc", "12*34")]),
        ("I ask twice:\n calc((1+2)*3) \nlook(at=1)\n", [Call("calc", "(1+2)*3"), Call("look", "at=1")]),
        *((text, []) for text in ("sin(x)", "408", "", "calc", "calc(", "the calc(1) is", "calc(1) 2")),
        *((json.dumps(answer), []) for answer in (
            {"name": "calc"}, {"name": "Ada", "age": 3}, {"parameters": {}}, ["name"], "name",
        )),
        *((f"<tool_call>{text}</tool_call>", [Call(name, fault=fault)]) for text, name, fault in (
            ('{"name": "calc", "arguments": {"a": 1}', "", "the call is not JSON"),
            ("[" * 100_000, "", "the call is not JSON"),
            ('{"arguments": {}}', "", 'a call is {"name": ..., "arguments": {...}}'),
            ('{"name": "calc", "arguments": [1]}', "calc", "the arguments must be a JSON object"),
            ('{"name": "calc", "arguments": "{"}', "calc", "the arguments are not JSON"),
        )),
        ('[TOOL_CALLS]calc[ARGS]{"a": ', [Call("calc", fault="the arguments are not JSON")]),
    ],
)  # fmt: skip
def test_the_calls_in_a_turn_are_read_in_order_and_one_that_cannot_be_read_says_why(turn, calls):
    assert read_calls(turn, NAMES) == calls


@given(st.text() | st.lists(st.sampled_from([*FORMS.values(), "<think>", "</think>", "calc(", ")", "{", "}", "\n"])))
def test_any_text_can_be_read(turn):
    for call in read_calls(turn if isinstance(turn, str) else "".join(turn), NAMES):
        assert isinstance(call, Call)


@pytest.mark.parametrize("turn", ["<tool_call>" + "1 " * 500_000, "[TOOL_CALLS]1" * 9_000, "calc(1)\n" * 9_000])
def test_reading_stops_behind_the_limit(turn):
    assert len(read_calls(turn, NAMES)) == MOST_CALLS + 1


PROBLEM = Problem("12+34=", "46")


def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


async def late(word: str) -> str:
    """Return a word a little later."""
    await asyncio.sleep(0)
    return f"{word}, at last"


def pick(one: Literal["a", "b"], many: list[int] | None = None, share: float = 0.5) -> list:
    return [one, many, share]


class Color(Enum):
    RED, BLUE = "red", "blue"


def paint(color: Color) -> str:
    return f"a {color} wall"


def fail(how: str) -> str:
    """Fail in one of many ways."""
    if how == "exit":
        raise SystemExit(3)
    if how == "kill":
        os._exit(3)
    if how == "hang":
        time.sleep(60)
    if how == "flood":
        return "x" * 100_000
    raise RuntimeError("one\ntwo")


def answers(turn, *tools, **kwargs):
    """Return the results of a turn, and how many calls it has and how many failed."""
    reply = reply_to(begin(WithTools(Arith(), tools, **kwargs), PROBLEM), turn)
    assert reply.verdict is None and reply.reward == 0
    calls, errors = reply.counts["tool_calls"], reply.counts["tool_errors"]
    assert [message["role"] for message in reply.content] == ["tool"] * len(reply.content)
    return [message["content"] for message in reply.content], calls, errors


MISSING = "Error: missing a required argument: 'a'; the arguments of add: a, b"


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ("add(1, b=2)", "3"),
        ("late('word')", "word, at last"),
        ("paint('red')", "a red wall"),
        ("pick('a', [1, 2])", '["a", [1, 2], 0.5]'),
        ('<tool_call>{"name": "pick", "arguments": {"one": "b", "share": 1}}</tool_call>', '["b", null, 1]'),
        ('<tool_call>{"name": "sub", "arguments": {}}</tool_call>', "Error: there is no tool 'sub'; there is add"),
        ('<tool_call>{"name": "add", </tool_call>', "Error: the call is not JSON"),
        ("add(one)", "Error: the arguments cannot be read: add(one)"),
        ("add(b=1)", MISSING),
        ("paint('green')", "Error: the argument color must be 'red' or 'blue', got 'green'"),
        ("add(" + "-" * 20_000 + "1)", "Error: the arguments cannot be read"),
        ("add(a='1')", "Error: the argument a must be int, got '1'"),
        ('{"name": "add", "parameters": {"c": 1}}', MISSING),
        ('{"name": "pick", "parameters": {"one": "c"}}', "Error: the argument one must be Literal['a', 'b'], got 'c'"),
        ('{"name": "pick", "parameters": {"one": "a", "many": 3}}', "Error: the argument many must be"),
        ("fail(exit)", "Error: SystemExit: 3"),
        ("fail(lines)", "Error: RuntimeError: one"),
        ("fail(flood)", "Error: the result has 100000 characters, more than 499"),
        ("calc(1/0)", "Error: division by zero"),
    ],
)
def test_a_call_is_answered_with_its_result_as_text_or_with_a_short_error(turn, said):
    (text,), calls, errors = answers(turn, add, late, pick, paint, fail, "calculator")
    failed = said.startswith("Error: ")
    assert (text.startswith(said) and len(text) < 250) if failed else text == said
    assert (calls, errors) == (1, failed)


def test_results_share_the_room_of_a_turn():
    call = '<tool_call>{"name": "late", "arguments": {"word": "%s"}}</tool_call>'
    texts, calls, errors = answers(call % ("x" * 90) + call % "y", late, result_length=100)
    assert texts == ["Error: the result has 99 characters, more than 49"[:49], "y, at last"] and errors == 1
    texts, calls, errors = answers(call % "y" * (MOST_CALLS + 1), late)
    assert texts == [f"Error: at most {MOST_CALLS} calls in a turn"] and calls == errors == MOST_CALLS + 1


class Asking(Verifier):
    """Wants two turns without a call."""

    turns = Turns(2)

    def dialogue(self, problem):
        class Two(Dialogue):
            heard = ""

            def reply(self, turn):
                self.heard += turn
                if problem.answer == "kill" and len(self.heard) == 2:
                    os._exit(3)
                return Reply("more") if len(self.heard) < 2 else Reply(verdict=Arith().verify(problem, self.heard))

        return Two()


def test_a_replayed_dialogue_does_not_call_again():
    heard = []

    def tell(word: str) -> str:
        heard.append(word)
        return "ok"

    around = WithTools(Asking(), [tell])
    assert replay(around, PROBLEM, ["tell(a)", "4", "tell(b)"]).content[0]["content"] == "ok"
    assert replay(around, PROBLEM, ["tell(c)", "4", "6"]).verdict.reward == 1
    assert replay(around, PROBLEM, ["4", "tell(d)", None]).verdict.reward == 0
    assert heard == ["b"]


def test_a_tool_that_ends_or_stops_its_process_is_answered(request):
    pool = Isolated(WithTools(Asking(), [add, fail]), workers=1, timeout=0.5)
    request.addfinalizer(pool.close)
    turns = ["fail(kill)", "add(1)", "fail(hang)", "fail(exit)", "add(2)"]
    futures = pool.ask([*((PROBLEM, ["4", turn]) for turn in turns), (Problem("", "kill"), ["4", "6"])])
    *replies, lost = [future.result() for future in futures]
    assert lost.verdict.status == "error", "the verifier's own end is not a tool's"
    assert [reply.verdict for reply in replies] == [None] * 5
    killed, one, hung, left, two = (reply.content[0]["content"] for reply in replies)
    assert killed == "Error: the worker exited with code 3" and hung == "Error: no answer within 0.5 s"
    assert (one, left, two) == ("2", "Error: SystemExit: 3", "3")
    assert [reply.counts["tool_errors"] for reply in replies] == [1, 0, 1, 1, 0]


def test_a_wrapped_verifier_keeps_its_own_ways():
    inner = Arith(digits=3, levels=2)
    around = pickle.loads(pickle.dumps(WithTools(inner, ["calculator"])))
    assert around.levels == 2 and makes_problems(around)
    assert around.split_key(PROBLEM) == inner.split_key(PROBLEM) and around.demonstration(PROBLEM) == "46"
    assert set(inner.alphabet) < set(around.alphabet)
    turns = ["calc(1+1)", "2"]
    assert right_turns(around, Problem("1+1=", "2", {"turns": turns}), random.Random(0)) == turns
    assert around.demonstration_turns(PROBLEM, random.Random(0)) == ["46"]
    assert not makes_problems(WithTools(Verifier(), ["calculator"]))
    assert WithTools(Asking(), [add], turns=3).turns.max_turns == 5, "beside those of the verifier"
    assert not around.execution.isolated and WithTools(Arith(), ["calculator", add]).execution.isolated


def test_a_tool_in_a_file_needs_trust(tmp_path):
    (tmp_path / "my_tools.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    name = f"{tmp_path}/my_tools.py:double"
    assert make_tool(name).run(Call("double", {"x": 4})) == "8"
    with trusting(False):
        assert make_tool("calculator").name == "calc"
        with pytest.raises(ValueError, match=r"the checkpoint names the tool .* pass --trust"):
            make_tool(name)


def test_python_runs_in_the_sandbox():
    tool = make_tool("python")
    assert tool.isolated and tool.run(Call("python", {"code": "import math\nprint(math.factorial(10))"})) == "3628800"
    assert tool.run(Call("python", {"code": "import sys; print('aside', file=sys.stderr)"})) == "aside"
    for code, message in (
        ("1 +", "SyntaxError: invalid syntax"),
        ("print('x' * (1 << 21))", "the program printed more than 1048576 bytes"),
        ("import os; os._exit(3)", r"the program exited with code 3$"),
        ("import sys; sys.exit('a reason')", r"the program exited with code 1: a reason$"),
    ):
        with pytest.raises(ValueError, match=message):
            tool.run(Call("python", {"code": code}))
    assert answers("python(print(6*7))", "python") == (["42"], 1, 0)
    assert answers("python(6*7)", "python") == ([NO_OUTPUT], 1, 0)


# The calculator.


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("12*34", "408"), ("(1+2)*3", "9"), ("2**10", "1024"), ("2^10", "1024"), ("7/2", "3.5"), ("6/3", "2"),
        ("0.1+0.2", "0.3"), ("-3", "-3"), ("2--3", "5"), ("7//2", "3"), ("-7 % 3", "2"), ("1/3", "0.333333333333"),
        ("12×34÷2", "204"), ("007+1", "8"), ("2**-1", "0.5"), ("(-1)**999999999999", "-1"), ("1**(10**300)", "1"),
        ("99999999999999999999*99999999999999999999", "9999999999999999999800000000000000000001"), ("0**0", "1"),
    ],
)  # fmt: skip
def test_the_calculator_is_exact(expression, result):
    assert calc(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "", "1+", "a", "1e9", "__import__('os')", "1 2", "1,2", "()", "1/0", "0**-1", "5%0", "2**0.5", "9**9**9**9",
        "10**100000", "(" * 150, "-" * 199 + "", "9" * (LONGEST + 1), "1.2.3", "1<2", "'1'", "1_0", "5//0",
        "*".join(["9" * 90] * 2) + "**9",
    ],
)  # fmt: skip
def test_the_calculator_refuses_everything_else_at_once(expression):
    with pytest.raises(ValueError) as refused:
        calc(expression)
    assert len(str(refused.value)) < 120 and "\n" not in str(refused.value)
