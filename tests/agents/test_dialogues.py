"""Replies between the actions: what was sampled is what is trained, in all modes; and what is counted of turns."""

import gymnasium as gym
import pytest
import torch
from diagonal import slow
from dialogues import Echoing, talking
from gymnasium.vector import AutoresetMode
from identity_checks import EXACT, assert_close, collect
from tiny_models import tiny_policy

import rlenv  # noqa: F401
from agents import RLOO, Agent, Collector, Rollout
from agents.policies.base import weights_digest
from agents.training.metrics import evaluation_metrics, rollout_metrics
from verifiers import Dialogue, Problem, Reply, Verdict, Verifier
from verifiers.dialogues.calls import Call
from verifiers.dialogues.tools import WithTools


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", ["gpt2", slow("llama"), slow("mistral")])
def test_acting_equals_training_over_all_turns(name, mode):
    envs = talking(mode=mode, group_size=2)
    policy = tiny_policy(name, envs, 0.7)
    rollout = collect(policy, envs, 24)
    gaps = (rollout.positions[:, 1:] - rollout.positions[:, :-1])[rollout.mask[:, 1:]]
    assert (gaps > 1).sum() > 8, "there are replies"
    assert (rollout.rewards.where(rollout.mask, 0)[:, :-1] > 0).any(), "turns are paid"
    log_probs = policy.evaluate(rollout)["log_probs"]
    assert_close(log_probs[rollout.mask], rollout.log_probs[rollout.mask], EXACT, "acting and training")


def trained(agent, updates):
    """Train for some updates of a long run."""
    steps = agent.updates(10**6 - agent.num_timesteps, reset_num_timesteps=agent.num_updates == 0)
    for _ in range(updates):
        next(steps)
    steps.close()
    return agent


class Ringing(WithTools):
    """Every turn with an "a" calls a tool, one with a "b" a tool that is not there."""

    def calls(self, turn):
        return [Call(name) for name in ("ring",) * turn.count("a") + ("no",) * turn.count("b")]


def ring():
    return "ab"


def test_turns_and_calls_are_counted_per_episode():
    verifier = Ringing(Echoing(), [ring], alphabet="abcd\n", failed="c")
    limits = {"max_new_tokens": 4, "max_reply_tokens": 17, "max_context_tokens": 60}
    envs = gym.make_vec("TextGen-v0", 4, verifier=verifier, verifier_workers=0, **limits)
    ended = []

    def note(taken, local):
        infos = local["infos"]
        rows = [row for row in range(4) if "_turns" in infos and infos["_turns"][row]]
        ended.extend([infos[name][row] for name in ("turns", "tool_calls", "tool_errors")] for row in rows)
        return True

    collector = Collector(envs, torch.device("cpu"))
    rollout = collector.collect(tiny_policy("gpt2", envs), 24, torch.Generator().manual_seed(0), on_step=note)
    means = torch.tensor(ended, dtype=torch.float64).mean(0).tolist()
    metrics = rollout_metrics(rollout)
    assert [metrics[f"rollout/{name}"] for name in ("turns", "tool_calls", "tool_errors")] == pytest.approx(means)
    assert len(ended) == 24 and means[0] > 1 and means[1] > means[2] > 0
    assert "rollout/turns" not in rollout_metrics(Rollout(**{**vars(rollout), "extras": {}}))


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, slow(AutoresetMode.NEXT_STEP), slow(AutoresetMode.SAME_STEP)])
def test_a_kill_in_the_middle_of_a_rollout_with_late_replies_changes_nothing(mode, tmp_path):
    """Replies come when the clock says; that they do not decide anything makes the rollout a replay."""

    def made():
        return talking(8, mode, group_size=4, verifier_workers=1, late_replies=True)

    def agent(**settings):
        return RLOO("tiny", made(), episodes_per_update=16, seed=3, device="cpu", **settings)

    class Killed(BaseException):
        pass

    straight, killed = trained(agent(), 2), trained(agent(), 1)
    killed.save(tmp_path / "agent")
    waited, step = [], killed.env.step

    def kill(actions):
        out = step(actions)
        waited.append("waiting" in out[4])
        if len(waited) > 6 and waited[-1]:
            raise Killed
        return out

    killed.env.step = kill
    with pytest.raises(Killed):
        trained(killed, 1)
    again = trained(Agent.load(tmp_path / "agent", env=made(), continue_env=True, device="cpu"), 1)
    assert weights_digest(again.policy) == weights_digest(straight.policy)
    assert again.num_timesteps == straight.num_timesteps
    del killed.env.step  # the same process can go on, too: nothing of the broken rollout is left
    killed = Agent.load(tmp_path / "agent", env=killed.env, continue_env=True, device="cpu")
    assert weights_digest(trained(killed, 1).policy) == weights_digest(straight.policy)
    for each in (straight, again, killed):
        each.env.close()


def test_agents_choose_late_replies():
    kwargs = {"verifier": "guess", "verifier_workers": 1}
    for env_kwargs, late in ((kwargs, True), ({**kwargs, "late_replies": False}, False)):
        agent = RLOO("tiny", "TextGen-v0", env_kwargs=env_kwargs, group_size=2, episodes_per_update=4, device="cpu")
        assert agent.env.metadata["late_replies"] == late
        agent.env.close()


def sharded_runs(folder):
    """Return the weights after two updates of sharded processes, in one run and with a break, and their numbers."""

    def made(shard=True):
        envs = talking(4, group_size=2)
        return RLOO("tiny", envs, episodes_per_update=8, seed=3, device="cpu", shard=shard)

    straight = trained(made(), 2)
    trained(made(), 1).save(folder)
    again = Agent.load(folder, env=talking(4, group_size=2), continue_env=True, device="cpu", shard=True)
    again = trained(again, 1)
    return [(weights_digest(agent.policy), agent.num_timesteps) for agent in (straight, again)]


def test_a_break_changes_nothing_in_sharded_processes_that_are_answered(two, tmp_path):
    ours, theirs = two(sharded_runs, tmp_path / "agent")
    assert ours[0] == ours[1] and theirs[0] == theirs[1]


# What is counted: turns per episode, success by number of turns, how often the commonest reply comes.


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
