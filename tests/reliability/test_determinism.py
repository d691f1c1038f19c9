"""The same seed gives the same run, to the last bit; docs/reliability.md lists what can break that."""

import random
import sys
import time

import cloudpickle
import pytest

import rlenv  # noqa: F401
from agents import AGENTS
from agents.kl_anchor import weights_digest
from verifiers import Problem, Verdict, Verifier

cloudpickle.register_pickle_by_value(
    sys.modules[__name__]
)  # so that workers do not SETTINGS = {"episodes_per_update": 320, "num_envs": 32, "learning_rate": 2e-3, "seed": 7, "device": "cpu"}


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


def trained(name, workers=0, updates=3, **more):
    """Return the weights after some updates, and the metrics of each."""
    env = {"verifier": Dawdler(), "verifier_workers": workers, "curriculum": 0.2, "test_fraction": 0.0}
    agent = AGENTS[name]("tiny", "TextGen-v0", env_kwargs=env, **SETTINGS, **more)
    metrics = [figures for _, figures in agent.updates(total_episodes=updates * SETTINGS["episodes_per_update"])]
    agent.env.close()
    return weights_digest(agent.policy), metrics


def same(one, other):
    for update, (figures, others) in enumerate(zip(one[1], other[1], strict=True)):
        assert figures == others, f"update {update}"
    assert one == other


@pytest.mark.parametrize("name", ["reinforce", "rloo"])
def test_the_number_of_verifier_workers_changes_nothing(name):
    """Nor the order in which their verdicts arrive: the curriculum hears of them in the order of the episodes."""
    more = {"group_size": 4} if name == "rloo" else {}
    here, one, three = (trained(name, workers, **more) for workers in (0, 1, 3))
    assert "rollout/success_rate/level_2" in here[1][1], "the curriculum goes on with 256 of 320 episodes"
    same(here, one)
    same(one, three)
