import pickle

from verifiers import Arith, Problem
from verifiers.conversation import text_of

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
