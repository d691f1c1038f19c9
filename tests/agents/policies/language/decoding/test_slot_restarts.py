"""Slots that restart while others run on: the log-probabilities of teacher forcing, in fewer steps than waves need."""

import pytest
import torch
from identity_checks import ROUNDING, assert_close
from tiny_models import text_envs, tiny_policy

from agents import Collector

EPISODES, SLOTS = 256, 32


def play(name, monkeypatch, slots=SLOTS, group_size=1, episodes=EPISODES, longest=24, **switches):
    """Collect the episodes; return the rollout, the policy and its decode steps."""
    envs = text_envs(slots, group_size=group_size, max_new_tokens=longest)
    policy = tiny_policy(name, envs, dtype="float32", **switches)
    act, steps = policy.act, []

    def counted(*args, **kwargs):
        steps.append(1)
        return act(*args, **kwargs)

    monkeypatch.setattr(policy, "act", counted)
    collector = Collector(envs, torch.device("cpu"))
    collector.seed(0)
    rollout = collector.collect(policy, episodes, torch.Generator().manual_seed(0))
    return rollout, policy, len(steps)


@pytest.mark.parametrize(
    ("name", "group_size", "share"),
    [
        *(("gpt2", 1, False), ("llama", 4, True)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("gpt2", 1, True), ("llama", 4, False))),
        *(pytest.param("mistral", 1, share, marks=pytest.mark.slow) for share in (True, False)),
    ],
)
def test_256_episodes_over_32_slots_are_what_teacher_forcing_says_in_fewer_steps(name, group_size, share, monkeypatch):
    rollout, policy, steps = play(name, monkeypatch, group_size=group_size, share_contexts=share)
    with torch.no_grad():
        log_probs, _ = policy.evaluate_actions(rollout)
    assert_close(log_probs[rollout.mask], rollout.log_probs[rollout.mask], ROUNDING, "acting and teacher forcing")
    assert rollout.lengths.unique().numel() > 15, "the episodes must differ in length"
    waves = int(rollout.lengths.view(EPISODES // SLOTS, SLOTS).amax(1).sum())
    assert steps < 0.8 * waves, f"{steps} steps, waves need {waves}"
    assert steps <= rollout.lengths.sum() / SLOTS + 2 * rollout.lengths.max(), "slots must not stand idle"


def test_the_number_of_slots_does_not_change_which_problems_are_posed(monkeypatch):
    few, many = (play("gpt2", monkeypatch, slots, episodes=128, longest=8)[0] for slots in (16, 50))
    first = [rollout.observations["tokens"][:, :8].tolist() for rollout in (few, many)]
    assert first[0] == first[1]
