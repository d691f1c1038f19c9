import pickle

import pytest

from verifiers import Arith, FunctionVerifier, Problem
from verifiers.conversation import as_conversation, text_of

TURNS = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "1+1="},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "2+2="},
]


def called(name, arguments, **more):
    return {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}, **more}]}


CALLING = called("add", '{"a": 1, "b": 2}', id="call00001", type="function")
RESULT = {"role": "tool", "content": "3", "tool_call_id": "call00001"}


def test_a_conversation_may_hold_earlier_turns_of_tools():
    prompt = Problem([TURNS[1], CALLING, {**RESULT, "name": None}, RESULT]).prompt
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}, "id": "call00001"}
    assert prompt == [TURNS[1], {"role": "assistant", "content": "", "tool_calls": [call]}, RESULT, RESULT]
    assert Problem(prompt).prompt == prompt
    bare = {"role": "assistant", "content": " So: ", "tool_calls": [{"name": "add", "arguments": {"a": "é"}}]}
    text = Problem([TURNS[1], bare, {"role": "tool", "content": "3"}]).text
    assert text.splitlines()[1:] == [
        "assistant:  So: ", '<tool_call>{"name": "add", "arguments": {"a": "é"}}</tool_call>', "tool: 3",
    ]  # fmt: skip


def test_a_prompt_may_be_a_conversation():
    given = [dict(message) for message in TURNS]
    problem = Problem(tuple(given), "4")
    given[0]["content"] = "changed later"
    assert problem.prompt == TURNS
    assert problem == Problem(TURNS, "4") == pickle.loads(pickle.dumps(problem))
    assert problem.text == "system: Add.\nuser: 1+1=\nassistant: 2\nuser: 2+2="


def test_a_single_message_counts_as_its_text():
    asked = Problem([{"role": "user", "content": "12+34=", "name": None}])
    assert asked.prompt == [{"role": "user", "content": "12+34="}]
    assert asked.text == Problem("12+34=").text == text_of("12+34=") == "12+34="
    assert Arith().split_key(asked) == Arith().split_key(Problem("34+12="))


def test_reward_functions_get_the_messages():
    seen = []
    FunctionVerifier(lambda prompts, completions: seen.extend(prompts) or [1.0]).verify(Problem(TURNS), "4")
    assert seen == [TURNS]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (3, "a prompt must be text or a list of messages, got 3"),
        (None, "a prompt must be text or a list of messages, got None"),
        ({"role": "user", "content": "a"}, "a prompt must be text or a list of messages, got {'role'"),
        ([], "the conversation is empty: it needs at least one message of the user"),
        (["a"], "message 1 must have a role and a content, got 'a'"),
        ([{"content": "a"}], "message 1 has no role: {'content': 'a'}"),
        ([TURNS[0], {"role": "user"}], "message 2 has no content: {'role': 'user'}"),
        ([{"role": "user", "content": None}], "message 1 has no content: "),
        ([{"role": "bot", "content": "a"}], "message 1 has the unknown role 'bot'; allowed: system, user, assistant"),
        ([{"role": "tool", "content": "2"}], "message 1 is a tool's result, but the message before it calls no tool"),
        ([CALLING, RESULT], "a conversation needs at least one message of the user"),
        ([TURNS[1], {**CALLING, "tool_calls": [{}]}], 'call 1 of message 2 must be {"name": ..., "arguments": {...}}'),
        ([TURNS[1], {**CALLING, "tool_calls": "f"}], "the tool_calls of message 2 must be a list of calls, got 'f'"),
        ([TURNS[1], called("add", "{")], "the arguments of call 1 of message 2 are not JSON: '{'"),
        ([TURNS[1], called("", {})], "the name of call 1 of message 2 must be a text, got ''"),
        ([TURNS[1], CALLING, {**RESULT, "name": 3}], "name of message 3 must be a text, got 3"),
        ([{"role": ["user"], "content": "a"}], "message 1 has the unknown role ['user']; allowed: "),
        ([{"role": "user", "content": ""}], "message 1 must have text as its content, got ''"),
        ([{"role": "user", "content": " \n"}], "message 1 must have text as its content, got ' \\n'"),
        ([{"role": "user", "content": [{"type": "text"}]}], "message 1 must have text as its content, got [{'type'"),
        ([{"role": "user", "content": "a", "tool_calls": [1]}], "message 1 has the key 'tool_calls'; allowed: role, c"),
        ([TURNS[1], TURNS[0]], "only the first message of a conversation may have the role 'system'"),
        (TURNS[:3], "the last message of a conversation must have the role 'user' or 'tool', got 'assistant'; "),
        (TURNS[:1], "the last message of a conversation must have the role 'user' or 'tool', got 'system'; "),
    ],
)
def test_a_malformed_conversation_is_one_clear_line(prompt, message):
    with pytest.raises(ValueError) as error:
        Problem(prompt)
    assert str(error.value).startswith(message)
    assert len(str(error.value).splitlines()) == 1
    with pytest.raises(ValueError, match=r"message|conversation"):
        as_conversation(prompt)
