"""Reward functions as TRL takes them: what they are called with, and what they may return."""

import asyncio
from fractions import Fraction

import numpy as np
import pytest
import torch

from rlenv.verifiers import FunctionVerifier, Problem, Verdict
from rlenv.verifiers.base import Completion

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
