"""What is counted in dialogues: turns per episode, success by number of turns, how often the commonest reply comes."""

import gymnasium as gym
import pytest
from dialogues import Echoing
from identity_checks import collect
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from agents.training.metrics import evaluation_metrics, rollout_metrics
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier


class Counting(Verifier):
    """Ends after as many turns as the prompt has letters; the reply is "d", after the first turn "c"."""

    alphabet, prompt_length, answer_length, reply_length, max_turns = "abcd", 3, 3, 1, 5

    def sample(self, rng):
        return Problem("a" * rng.randint(1, 3))

    def dialogue(self, problem):
        class Limited(Dialogue):
            left = len(problem.text)

            def reply(self, turn):
                self.left -= 1
                over = Verdict(float(len(problem.text) == 2)) if self.left == 0 else None
                return Reply("c" if self.left == len(problem.text) - 1 else "d", verdict=over)

        return Limited()


@pytest.fixture(scope="module")
def rollout():
    envs = gym.make_vec("TextGen-v0", 8, verifier=Counting(), test_fraction=0.0)
    return collect(tiny_policy("llama", envs), envs, 32)


def test_success_by_number_of_turns(rollout):
    figures = evaluation_metrics(rollout)
    counts = [int((rollout.observations["length"] == number).sum()) for number in (1, 2, 3)]
    assert figures["by_turns"] == {
        str(number): {"episodes": count, "success_rate": float(number == 2)}
        for number, count in zip((1, 2, 3), counts, strict=True)
    }
    assert figures["mean_turns"] == pytest.approx(rollout.extras["turns"].mean().item())


def test_the_share_of_the_commonest_reply(rollout):
    lengths = rollout.observations["length"]
    first, later = int((lengths > 1).sum()), int((lengths > 2).sum())
    assert first > later > 0
    ends = rollout.actions.eq(1) & rollout.mask  # a turn that is cut gets its end token: another appended text
    assert ends.any()
    assert 0 < rollout_metrics(rollout)["rollout/reply_max_frac"] <= first / (first + later)


def test_completions_have_none_of_it():
    envs = gym.make_vec("TextGen-v0", 4, verifier="arith")
    metrics = rollout_metrics(collect(tiny_policy("llama", envs), envs, 8))
    assert not {"rollout/turns", "rollout/reply_max_frac"} & set(metrics)
    envs = gym.make_vec("TextGen-v0", 4, verifier=Echoing())
    assert "rollout/turns" in rollout_metrics(collect(tiny_policy("llama", envs), envs, 8))
