"""gem and gym: rewards of steps, seeds, and what is refused."""

import random
import sys
import types

import gymnasium
import pytest

import rlenv  # noqa: F401
from verifiers import make_verifier


class Count(gymnasium.Env):
    """Say the digit; each right one pays 0.5, and an x raises."""

    observation_space = action_space = gymnasium.spaces.Text(8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.right = 0
        return self.ask(), {}

    def ask(self):
        self.digit = str(random.randrange(10))
        return self.digit

    def step(self, action):
        if action == "x":
            raise RuntimeError("no x")
        right = action == self.digit
        self.right += right
        return self.ask(), 0.5 * right, self.right == 2, False, {}


@pytest.fixture(params=["gym:Count-v0", "gem:Count-v0"])
def verifier(request, monkeypatch):
    monkeypatch.setitem(gymnasium.registry, "Count-v0", gymnasium.envs.registration.EnvSpec("Count-v0", Count))
    registration = types.SimpleNamespace(ENV_REGISTRY={"Count-v0": Count})
    monkeypatch.setitem(sys.modules, "gem", types.SimpleNamespace(make=lambda name: Count()))
    monkeypatch.setitem(sys.modules, "gem.envs.registration", registration)
    return make_verifier(request.param)


def test_rewards_are_those_of_the_steps_and_the_return_decides(verifier):
    problem = verifier.sample(random.Random(0))
    game, again = verifier.dialogue(problem), verifier.dialogue(problem)
    first = game.reply(problem.prompt.strip())
    assert again.reply(problem.prompt.strip()) == first and first.reward == 0.5
    last = game.reply(first.content.strip())
    assert last.reward + last.verdict.reward == 0.5 and verifier.is_success(last.verdict)


def test_an_exception_is_an_error_of_the_episode(verifier):
    env = gymnasium.make("TextGen-v0", verifier=verifier, flag_errors=True, disable_env_checker=True).unwrapped
    env.reset(seed=0)
    for token in [*env.task.encoder.ids(["x"])[0], env.task.eos_token_id]:
        _, _, over, _, info = env.step(token)
    assert over and info["verdict_status"] == "error" and "no x" in info["verdict_reason"]
