"""The same seed gives the same run, to the last bit; docs/resuming.md lists what can break that."""

import random
import sys
import time

import cloudpickle
import pytest
import torch
from identity_checks import collect
from tiny_models import text_envs

from rlenv.agents import AGENTS, LanguageModelPolicy
from rlenv.agents.training.kl_anchor import weights_digest
from rlenv.verifiers import Problem, Verdict, Verifier

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # so that workers do not import torch
SETTINGS = {"num_envs": 32, "learning_rate": 2e-3, "seed": 7, "device": "cpu"}


class Dawdler(Verifier):
    """Even digits, on three levels; a verdict takes up to 4 ms, otherwise each time."""

    alphabet, prompt_length, answer_length, levels = "0123456789:", 3, 2, 3

    def sample(self, rng):
        return self.sample_at(rng, rng.randint(1, 3))

    def sample_at(self, rng, level):
        return Problem(f"{level}{rng.randrange(10)}:", "0", {"level": level})

    def verify(self, problem, completion):
        time.sleep(random.SystemRandom().choice((0.0, 0.0, 0.001, 0.004)))
        return Verdict(float(completion[:1] in tuple("02468")), {"length": float(len(completion))})


def trained(name, workers=0, updates=2, episodes=320, **more):
    """Return the weights after some updates, and the metrics of each."""
    env = {"verifier": Dawdler(), "verifier_workers": workers, "curriculum": 0.2, "test_fraction": 0.0}
    settings = {**SETTINGS, "episodes_per_update": episodes, **more}
    agent = AGENTS[name]("tiny", "TextGen-v0", env_kwargs=env, **settings)
    metrics = [figures for _, figures in agent.updates(total_episodes=updates * episodes)]
    agent.env.close()
    return weights_digest(agent.policy), metrics


def same(one, other):
    for update, (figures, others) in enumerate(zip(one[1], other[1], strict=True)):
        assert figures == others, f"update {update}"
    assert one == other


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reinforce", "rloo"])
def test_the_number_of_verifier_workers_changes_nothing(name):
    """Nor the order in which their verdicts arrive: the curriculum hears of them in the order of the episodes."""
    more = {"group_size": 4} if name == "rloo" else {}
    here, one, three = (trained(name, workers, **more) for workers in (0, 1, 3))
    assert "rollout/success_rate/level_2" in here[1][1], "the curriculum goes on with 256 of 320 episodes"
    same(here, one)
    same(one, three)


def names(function):
    """Return the names of the steps of a backward pass."""
    found, todo = {}, [function]
    while todo:
        step = todo.pop()
        if step is not None and step not in found:
            found[step] = step.name()
            todo += [after for after, _ in step.next_functions]
    return set(found.values())


@pytest.mark.parametrize("critic", ["head", "separate"])
def test_no_gradient_of_a_language_model_depends_on_the_order_of_threads(critic):
    """Steps with the same context share an output: the gradient of plain indexing adds them up as threads come by."""
    envs = text_envs(32, group_size=4)
    spaces = envs.single_observation_space, envs.single_action_space
    policy = LanguageModelPolicy(*spaces, "tiny", critic=critic)
    reference = LanguageModelPolicy(*spaces, "tiny")
    rollout = collect(policy, envs, 64)
    for made in (
        *policy.evaluate(rollout, ("log_probs", "entropy", "kl"), reference).values(),
        *policy.evaluate(rollout).values(),
        policy.values(rollout),
    ):
        assert "IndexSelectBackward0" in names(made.grad_fn)
        assert "IndexBackward0" not in names(made.grad_fn)


def test_two_threads_give_the_same_run_again():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        same(*(trained("rloo", updates=1, episodes=64, group_size=4) for _ in range(2)))
    finally:
        torch.set_num_threads(before)
