"""Calls of tools in turns: the forms of model families, the plain one, and what cannot be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifiers.dialogues.calls import MOST_CALLS, Call, read_calls

NAMES = ("calc", "look")
ONE = Call("calc", {"expression": "12*34"})
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


@pytest.mark.parametrize("form", FORMS)
def test_each_form_is_read(form):
    assert read_calls(FORMS[form], NAMES) == [ONE]
    assert read_calls(f"<think>{FORMS[form]}</think>\n{FORMS[form]}", NAMES) == [ONE], "thoughts call nothing"
    assert read_calls(f"<think>{FORMS[form]}</think>408", NAMES) == []


@pytest.mark.parametrize(
    "turn",
    [
        '<tool_call>{"name": "calc"}</tool_call>\n<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>',
        '<tool_call>[{"name": "calc"}, {"name": "look", "arguments": {"at": 1}}]</tool_call>',
        '<tool_call>{"name": "calc"}<tool_call>{"name": "look", "arguments": {"at": 1}}',
        '[TOOL_CALLS][{"name": "calc", "arguments": {}}, {"name": "look", "arguments": {"at": 1}}]',
        '[TOOL_CALLS]calc[ARGS]{}[TOOL_CALLS]look[ARGS]{"at": 1}',
        '<|python_tag|>{"name": "calc", "parameters": {}}; {"name": "look", "parameters": {"at": 1}}',
    ],
)
def test_several_calls_are_read_in_order(turn):
    assert read_calls(turn, NAMES) == [Call("calc"), Call("look", {"at": 1})]


def test_plain_calls_are_lines_with_the_name_of_a_tool():
    assert read_calls("calc(12*34)", NAMES) == [Call("calc", "12*34")]
    assert read_calls("I ask twice:\n calc((1+2)*3) \nlook(at=1)\n", NAMES) == [
        Call("calc", "(1+2)*3"), Call("look", "at=1"),
    ]  # fmt: skip
    for text in ("sin(x)", "408", "", "calc", "calc(", "the calc(1) is", "calc(1) 2", '{"name": "calc"}'):
        assert read_calls(text, NAMES) == [], text


@pytest.mark.parametrize("form", FORMS.values())
def test_what_is_quoted_is_no_call(form):
    assert read_calls(form, NAMES)
    for quoting in ("```\n{}\n```", "So:\n  ~~~text\n{}\n~~~\nis a call.", "```python\nx = 1\n{}"):
        assert read_calls(quoting.replace("{}", form), NAMES) == [], quoting
    for quote in "`'\"":
        assert read_calls(f"I would write {quote}{form.removeprefix('I count.').strip()}{quote} to ask.", NAMES) == []
    assert read_calls(f"```python\nx = 1\n```\n{form}", NAMES) == read_calls(form, NAMES)


def test_arguments_may_hold_quoted_tags():
    text = "Say '<tool_call>' or `[TOOL_CALLS]`"
    call = json.dumps({"name": "look", "arguments": {"at": text}})
    assert read_calls(f"<tool_call>{call}</tool_call>", NAMES) == [Call("look", {"at": text})]


@pytest.mark.parametrize(
    ("turn", "fault"),
    [
        ('<tool_call>{"name": "calc", "arguments": {"a": 1}</tool_call>', "the call is not JSON"),
        ("[TOOL_CALLS]", "the call is not JSON"),
        ("<tool_call>" + "[" * 100_000, "the call is not JSON"),
        ('<tool_call>{"arguments": {}}</tool_call>', 'a call is {"name": ..., "arguments": {...}}'),
        ('<tool_call>{"name": "calc", "arguments": [1]}</tool_call>', "the arguments must be a JSON object"),
        ('<tool_call>{"name": "calc", "arguments": "{"}</tool_call>', "the arguments are not JSON"),
        ('[TOOL_CALLS]calc[ARGS]{"a": ', "the arguments are not JSON"),
        ("<|python_tag|>print(1)", "the call is not JSON"),
    ],
)
def test_a_call_that_cannot_be_read_says_why(turn, fault):
    (call,) = read_calls(turn, NAMES)
    assert call.fault == fault


@pytest.mark.parametrize("answer", [{"name": "Ada"}, {"name": "Ada", "age": 3}, {"parameters": {}}, ["name"], "name"])
def test_a_json_answer_that_is_no_call_is_an_answer(answer):
    assert read_calls(json.dumps(answer), NAMES) == []


@given(st.text() | st.lists(st.sampled_from([*FORMS.values(), "<think>", "</think>", "calc(", ")", "{", "}", "\n"])))
def test_any_text_can_be_read(turn):
    for call in read_calls(turn if isinstance(turn, str) else "".join(turn), NAMES):
        assert isinstance(call, Call)


@pytest.mark.parametrize("turn", ["<tool_call>" + "1 " * 500_000, "[TOOL_CALLS]1" * 9_000, "calc(1)\n" * 9_000])
def test_reading_stops_behind_the_limit(turn):
    assert len(read_calls(turn, NAMES)) == MOST_CALLS + 1
