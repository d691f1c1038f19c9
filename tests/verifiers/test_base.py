"""Verdicts and dialogues as verifiers give them: what may be in them, what is a success, what is not replayed."""

import json
import math
from decimal import Decimal

import pytest
import torch

from rlenv.verifiers import Arith, Dialogue, Problem, Reply, Verdict, Verifier
from rlenv.verifiers.base import checked, describe, has_dialogues, is_success
from rlenv.verifiers.conversation import text_of
from rlenv.verifiers.dialogues import begin, replay, reply_to

TALK = [
    {"role": "system", "content": "Add."},
    {"role": "user", "content": "1+1="},
    {"role": "assistant", "content": "2"},
    {"role": "user", "content": "2+2="},
]


def test_a_verdict_keeps_numbers_of_other_libraries_as_floats():
    rewards = [Verdict(number).reward for number in (Decimal("0.5"), torch.tensor(0.5), True)]
    assert rewards == [0.5, 0.5, 1.0] and set(map(type, rewards)) == {float}


def test_an_error_is_described_with_the_line_of_the_author_and_not_with_that_of_a_library():
    for fault in (lambda: json.loads(""), lambda: Verdict(1.0, "late"), lambda: Verdict(1.0, late=True)):
        with pytest.raises((ValueError, TypeError)) as raised:
            fault()
        assert describe(raised.value).endswith(f"(test_base.py:{fault.__code__.co_firstlineno})")


def test_success_needs_the_reward_and_a_verdict_that_was_reached():
    verdicts = Verdict(1.0), Verdict(0.99), Verdict(1.0, status="timeout")
    assert [is_success(Verifier(), verdict) for verdict in verdicts] == [True, False, False]
    said = Verdict(1.0, success=False), Verdict(0.0, success=True), Verdict(0.0, status="error", success=True)
    assert [is_success(Verifier(), verdict) for verdict in said] == [False, True, False]


class Between(Verifier):
    def __init__(self, low, high):
        self.reward_range = (low, high)


@pytest.mark.parametrize(
    ("low", "high", "reward", "inside", "status"),
    [
        (0.0, 1.0, 1.0 + 1e-7, True, "ok"),  # rounding
        (0.0, 1.0, 1.00001, False, "ok"),
        (-1.0, 2.5, -1.0, True, "ok"),
        (0.0, math.inf, -1e-3, False, "ok"),
        (-math.inf, math.inf, -3e38, True, "ok"),
        *((1.0, 2.0, 0.0, True, status) for status in ("timeout", "error", "not_applicable")),  # which has no reward
    ],
)
def test_a_reward_outside_the_declared_range_is_an_error(low, high, reward, inside, status):
    given = Verdict(reward, {"part": 1.0}, status=status, reason="why")
    (verdict,) = checked(Between(low, high), [given], 1)
    if inside:
        assert verdict is given
    else:
        name = f"reward_range ({low}, {high}) of Between"
        reason = f"the reward {reward} is outside {name}; declare another reward_range"
        assert verdict == Verdict(0.0, status="error", reason=reason)


@pytest.mark.parametrize(("judged", "ends"), [(iter([Verdict(0.5)]), None), ([], "got 0"), ([None], "got 1")])
def test_one_completion_is_judged_by_a_batch_as_many_are(judged, ends):
    batched = type("Batched", (Verifier,), {"verify_batch": lambda self, problems, completions: judged})()
    if ends is None:
        assert batched.verify(Problem("?"), "").reward == 0.5
    else:
        with pytest.raises(ValueError, match=f"^Batched: .* {ends}"):
            batched.verify(Problem("?"), "")


# Dialogues and conversations.


def test_a_prompt_may_be_a_conversation_of_which_a_single_message_counts_as_its_text():
    assert Problem(TALK).text == "system: Add.\nuser: 1+1=\nassistant: 2\nuser: 2+2="
    asked = Problem([{"role": "user", "content": "12+34=", "name": None}])
    assert asked.prompt == [{"role": "user", "content": "12+34="}]
    assert asked.text == text_of("12+34=") == "12+34=" and Arith().split_key(asked) == "12+34"


def test_a_conversation_may_hold_earlier_turns_of_tools():
    function = {"name": "add", "arguments": '{"a": 1, "b": 2}'}
    calling = {"role": "assistant", "tool_calls": [{"function": function, "id": "call00001", "type": "function"}]}
    result = {"role": "tool", "content": "3", "tool_call_id": "call00001"}
    prompt = Problem([TALK[1], calling, {**result, "name": None}, result]).prompt
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}, "id": "call00001"}
    assert prompt == [TALK[1], {"role": "assistant", "content": "", "tool_calls": [call]}, result, result]


def saying(reply, **attributes):
    """Return a verifier whose dialogues answer with a function, and those of them that were closed."""
    closed, methods = [], {"reply": lambda self, turn: reply(turn), "close": lambda self: closed.append(self)}
    talk = type("Talk", (Dialogue,), methods | attributes)
    return type("Says", (Verifier,), {"dialogue": lambda self, problem: talk()})(), closed


def test_a_completion_is_a_dialogue_of_one_turn_which_is_closed_whatever_happens():
    problem = Problem("?", "7")
    guess, closed = saying(lambda turn: Reply("no", 0.25, Verdict(0.5) if turn == "7" else None))
    assert has_dialogues(guess) and not has_dialogues(Verifier()) and Verifier().dialogue(problem) is None
    assert [guess.verify(problem, turn).reward for turn in ("7", "8")] == [0.75, 0.25] and len(closed) == 2
    failing, closed = saying(lambda turn: {}[turn])
    with pytest.raises(KeyError):
        failing.verify(problem, "a")
    assert len(closed) == 1
    chance, _ = saying(lambda turn: Reply("go on"), deterministic=False)
    with pytest.raises(ValueError, match="not deterministic"):
        replay(chance, problem, ["", ""])


@pytest.mark.parametrize(("low", "high", "least"), [(0.0, 1.0, 0.0), (0.5, 2.0, 0.5), (-2.0, -1.0, -1.0)])
def test_without_an_answer_a_verifier_of_completions_pays_what_is_nearest_to_nothing(low, high, least):
    verifier = Verifier()
    verifier.reward_range = (low, high)
    assert reply_to(begin(verifier, Problem("?")), None).verdict == Verdict(least, success=False)


def test_an_episode_that_runs_out_of_turns_is_no_success_however_little_is_enough():
    """Such as where each step costs 1."""
    guess, _ = saying(lambda turn: Reply("no", -1.0))
    guess.success_reward = -2.0
    assert not is_success(guess, reply_to(begin(guess, Problem("?")), None).verdict)
