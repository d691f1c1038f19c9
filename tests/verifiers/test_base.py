"""Verdicts and dialogues as verifiers give them: what may be in them, what is a success, what is not replayed.

And reward functions as TRL takes them: what they are called with, and what they may return.
"""

import asyncio
import json
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from rlenv.verifiers import Arith, Dialogue, FunctionVerifier, Problem, Reply, Verdict, Verifier
from rlenv.verifiers.base import Completion, checked, describe, has_dialogues, is_success
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
    costs, _ = saying(lambda turn: Reply(reward=-0.25, verdict=Verdict(1.0)))  # the verdict decides, as in episodes
    assert is_success(costs, costs.verify(problem, "7"))
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


# Reward functions.

PROBLEMS = [Problem("1+1=", "2", {"level": 1}), Problem("2+2=", "4", {"hint": "even"})]
SAID = [{"role": "user", "content": "1+1?"}]


def judged(function, *texts):
    return FunctionVerifier(function).verify_batch(PROBLEMS, texts or ("x", "4"))


@pytest.mark.parametrize(
    ("returned", "verdict"),
    [
        *((number, Verdict(1.0)) for number in (True, 1, np.float32(1.0), np.int64(1), 1.0)),
        (None, Verdict(0.0, status="not_applicable")),
        *(
            pytest.param(
                number, Verdict(0.0, status="error", reason=f"reward function <lambda> returned {said}"), id=name
            )
            for name, number, said in (
                ("nan", float("nan"), "nan"),
                ("numpy's nan", np.float32("nan"), "nan"),
                ("inf", float("inf"), "inf"),
                ("10**400", 10**400, "inf"),
                ("-(10**5000)", -(10**5000), "-inf"),
                ("a fraction", Fraction(10**400, 3), "inf"),
            )
        ),
    ],
)
def test_what_a_function_returns_is_a_reward_not_applicable_or_an_error(returned, verdict):
    verdicts = judged(lambda prompts, completions: [1.0, returned])
    assert verdicts == [Verdict(1.0), verdict] and type(verdicts[1].reward) is float


async def count_b(prompts, completions):
    await asyncio.sleep(0)
    return [float(completion.count("b")) for completion in completions]


def test_a_coroutine_function_is_waited_for_where_an_event_loop_runs_already():
    async def notebook():
        return judged(count_b, "b", "bbb")

    assert [verdict.reward for verdict in asyncio.run(notebook())] == [1.0, 3.0]


def test_a_function_is_called_once_a_batch_with_lists_and_the_columns_that_it_asks_for():
    calls = []

    def plain(prompts, completions):
        calls.append((prompts, completions))
        return [0.25, 1.0]

    assert judged(plain) == [Verdict(0.25), Verdict(1.0)] and calls == [(["1+1=", "2+2="], ["x", "4"])]

    def every(prompts, completions, log_metric, log_extra, **columns):
        calls.append(columns)
        return [0.0, 0.0]

    judged(every)
    assert calls[1] == {"answer": ["2", "4"], "level": [1, None], "hint": [None, "even"]}

    def echo(prompts, completions, **columns):
        return [float(completion == "gold") for completion in completions]

    problem = Problem("p", "", {"completions": "gold", "prompts": "q"})
    assert FunctionVerifier(echo).verify(problem, "bad").reward == 0.0, "no column takes the place of the completions"


def test_what_a_function_takes_from_a_list_of_its_problem_is_there_for_other_completions():
    def first_word(completions, words):
        return [float(bool(left) and left.pop(0) == text) for text, left in zip(completions, words, strict=True)]

    problem = Problem("A word?", metadata={"words": ["a", "b"]})
    assert FunctionVerifier(first_word).verify_batch([problem] * 2, ["a", "a"]) == [Verdict(1.0)] * 2


def test_a_conversation_is_answered_with_a_message():
    seen = []

    def reward(prompts, completions, **kwargs):
        seen.append((prompts, completions))
        return [1.0, 0.0]

    texts = [Completion.of("2", [7], {}), Completion.of("4x", [9], {})]
    FunctionVerifier(reward).verify_batch([Problem(SAID, "2"), PROBLEMS[1]], texts)
    assert seen == [([SAID, "2+2="], [[{"role": "assistant", "content": "2"}], "4x"])]


def test_a_function_that_asks_gets_token_ids_and_the_state_of_the_trainer():
    def reward(completions, completion_ids, trainer_state):
        assert completion_ids == [[7, 1], [9, 8, 1]]
        assert all(type(text) is str for text in completions)
        return [trainer_state.global_step + len(ids) / trainer_state.max_steps for ids in completion_ids]

    progress = {"num_updates": 5, "max_updates": 10}
    texts = Completion.of("2", [7, 1], progress), Completion.of("4x", [9, 8, 1], progress)
    assert [verdict.reward for verdict in judged(reward, *texts)] == [5.2, 5.3]


def test_outside_of_an_environment_nobody_knows_the_tokens():
    def careful(completions, completion_ids=None):
        return [float(completion_ids is None)]

    assert FunctionVerifier(careful).verify(PROBLEMS[0], "2").reward == 1.0
    with pytest.raises(ValueError, match="<lambda> asks for completion_ids"):
        FunctionVerifier(lambda completions, completion_ids: [0.0]).verify(PROBLEMS[0], "2")


def test_numbers_that_a_function_logs_are_parts_of_the_verdict_and_texts_are_not():
    def reward(completions, log_metric, log_extra):
        log_metric("share", 0.5)
        log_extra("length", np.array([1, 2]))
        log_extra("found", [torch.tensor(True), np.float32(0.5)])
        log_extra("second", [None, 3])
        log_extra("extracted", ["1", "b"])
        return [1.0, None]

    with pytest.warns(UserWarning, match="log_extra.'extracted', ....: only numbers are logged") as warned:
        first, second = judged(reward)
    assert first == Verdict(1.0, {"share": 0.5, "length": 1.0, "found": 1.0}) and warned[0].filename == __file__
    assert second.status == "not_applicable"
