"""What a rollout keeps of episodes in which the environment answers: its tokens, and where the actions stand."""

import pytest
import torch
from gymnasium.vector import AutoresetMode
from identity_checks import EXACT, assert_close
from talking_env import LETTERS, PROMPT, talking_envs
from tiny_models import text_envs, tiny_policy

from agents import Collector

CPU = torch.device("cpu")
modes = pytest.mark.parametrize("mode", list(AutoresetMode))


def episode_of(rollout, row):
    prompt = rollout.observations["tokens"][row, :PROMPT].tolist()
    return sum(token * LETTERS**place for place, token in enumerate(prompt))


@modes
def test_actions_are_found_in_the_final_tokens_and_keep_their_rewards(mode):
    envs, said = talking_envs(5, mode)
    policy = tiny_policy("gpt2", envs, 0.8)
    rollout = Collector(envs, CPU).collect(policy, 40, torch.Generator().manual_seed(0))
    assert sum(len(columns) < len(tokens) - PROMPT for tokens, columns, _ in said.values()) >= 8, "many had replies"
    assert [episode_of(rollout, row) for row in range(len(rollout))] == list(range(40))
    for row in range(len(rollout)):
        tokens, columns, rewards = said[row]
        steps = len(columns)
        assert rollout.mask[row].sum() == steps
        assert rollout.positions[row, :steps].tolist() == columns
        assert rollout.actions[row, :steps].tolist() == [tokens[column] for column in columns]
        assert rollout.rewards[row, :steps].tolist() == rewards
        assert rollout.observations["length"][row] == PROMPT
        answered = len(tokens) > PROMPT + steps
        known = tokens if answered else tokens[:PROMPT] + [0] * steps  # `positions` says so
        assert rollout.observations["tokens"][row, : len(tokens)].tolist() == known


def test_an_environment_that_does_not_say_what_it_appends_is_read_right_while_acting(monkeypatch):
    envs, _ = talking_envs(5, AutoresetMode.NEXT_STEP)
    policy, seen = tiny_policy("gpt2", envs), []
    act = policy.act
    monkeypatch.setattr(policy, "act", lambda *args, **more: seen.append(more["appended"]) or act(*args, **more))
    envs.metadata = {**envs.metadata, "traits": {}}
    silent = Collector(envs, CPU)
    told = Collector(talking_envs(5, AutoresetMode.NEXT_STEP)[0], CPU)
    ours, theirs = (each.collect(policy, 20, torch.Generator().manual_seed(0)) for each in (silent, told))
    assert_close(ours.log_probs[ours.mask], theirs.log_probs[theirs.mask], EXACT, "compared and told")
    assert seen[0] is None and any(isinstance(each, torch.Tensor) for each in seen)


def test_a_rollout_without_replies_has_no_positions():
    envs = text_envs(4)
    policy = tiny_policy("gpt2", envs)
    assert Collector(envs, CPU).collect(policy, 8, torch.Generator().manual_seed(0)).positions is None
