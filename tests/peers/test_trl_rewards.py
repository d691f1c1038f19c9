"""The same reward functions on the same completions: ours receive and add up what TRL's trainer gives and adds up."""

import asyncio
import contextlib
import threading
from types import SimpleNamespace

import pytest
import torch

from verifiers import Problem, make_verifier
from verifiers.base import Completion

pytest.importorskip("trl", reason="the extra 'peers' is not installed (make test-peers)")

PROBLEMS = [Problem("1+1=", "2", {"solution": "2"}), Problem("2+2=", "4", {"solution": "4"})]
TALK = [Problem([{"role": "user", "content": problem.prompt}], "", problem.metadata) for problem in PROBLEMS]
IDS = [[5, 6, 1], [7, 1]]
HEARD = []


def right(prompts, completions, solution, **kwargs):
    HEARD.append((prompts, completions, solution, kwargs["completion_ids"], kwargs["trainer_state"].global_step))
    texts = [text if isinstance(text, str) else text[0]["content"] for text in completions]
    return [float(text == wanted) for text, wanted in zip(texts, solution, strict=True)]


async def short(completion_ids, **kwargs):
    return [None if len(ids) == 2 else -float(len(ids)) for ids in completion_ids]


def never(completions, **kwargs):
    return [None] * len(completions)


@pytest.fixture
def theirs(monkeypatch):
    """Return TRL's rewards per function [N, F] of a list of functions, prompts and completions."""
    from trl.trainer import grpo_trainer

    monkeypatch.setattr(grpo_trainer, "profiling_context", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(grpo_trainer, "gather", lambda tensor: tensor)
    monkeypatch.setattr(grpo_trainer, "logger", SimpleNamespace(warning=lambda *_: None))  # it needs an accelerator
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def rewards(functions, prompts, completions):
        trainer = SimpleNamespace(
            accelerator=SimpleNamespace(device="cpu"), reward_funcs=functions, environments=None, async_loop=loop,
            reward_func_names=[f.__name__ for f in functions], reward_processing_classes=[None] * len(functions),
            state=SimpleNamespace(global_step=3), _log_completion_extra=None, _log_metric=None,
        )  # fmt: skip
        inputs = [{"prompt": prompt, **problem.metadata} for prompt, problem in zip(prompts, PROBLEMS, strict=True)]
        calculate = grpo_trainer.GRPOTrainer._calculate_rewards.__wrapped__
        return calculate(trainer, inputs, prompts, completions, IDS)

    yield rewards
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("problems", [PROBLEMS, TALK], ids=["text", "conversation"])
@pytest.mark.parametrize("functions", [[right], [right, short], [right, short, never], [never, short]])
def test_the_sum_is_that_of_trl(theirs, problems, functions):
    weights = [1.0, 0.25, 2.0][: len(functions)]
    texts = ["2", "3"]
    said = [text if problems is PROBLEMS else [{"role": "assistant", "content": text}] for text in texts]
    HEARD.clear()
    per_function = theirs(functions, [problem.prompt for problem in problems], said)
    expected = (per_function * torch.tensor(weights)).nansum(1)
    unscorable = per_function.isnan().all(1)
    completions = [
        Completion.of(text, ids, {"num_updates": 3, "max_updates": None})
        for text, ids in zip(texts, IDS, strict=True)
    ]  # fmt: skip
    verdicts = make_verifier(functions, reward_weights=weights).verify_batch(problems, completions)
    assert [verdict.status != "ok" for verdict in verdicts] == unscorable.tolist()
    assert [verdict.reward for verdict in verdicts] == expected.tolist()
    assert HEARD[0] == HEARD[1] if right in functions else not HEARD, "ours receives what TRL's receives"
