"""The benchmarks' own logic at sizes where seconds mean nothing: what they compare has to be the same thing."""

import pytest
import torch
from _rlenv_benchmarks import floors, generate, h200_decode, refill, sb3, scale, verifier, worlds
from _rlenv_benchmarks.gpu import qwen, tokenizer

from agents import LanguageModelPolicy
from agents.collector import Collector


def test_an_endless_model_never_ends_and_does_choose():
    envs = worlds.letter_envs(8, worlds.letter_prompts(8, 4), 6)
    model = worlds.endless_model(envs.task.vocab_size, envs.task.max_length, envs.task.eos_token_id)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model)
    rollout = Collector(envs, torch.device("cpu")).collect(policy, 32, torch.Generator().manual_seed(0))
    assert rollout.truncated.all() and (rollout.lengths == 6).all()
    assert rollout.actions.unique().numel() > 3 and float(rollout.log_probs.mean()) < -0.1


def test_prompts_of_letters_are_distinct():
    prompts = worlds.letter_prompts(512, 8)
    assert len(set(prompts)) == 512 and {len(prompt) for prompt in prompts} == {8}


def test_generate_checks_its_log_probabilities(monkeypatch):
    monkeypatch.setattr(generate, "REPEATS", {3: 1})
    [row] = generate.run("generate", 1)
    assert row.name == "batch 3" and float(row.quality.split()[-1]) < 1e-4


def test_waves_and_restarts_play_the_same_lengths(monkeypatch):
    monkeypatch.setattr(refill, "EPISODES", 24)
    monkeypatch.setattr(refill, "SLOTS", 8)
    for row in refill.run("refill", 1):
        assert row.quality.startswith("the same 24 lengths: True")
        assert 4 <= row.details["mean_length"] <= 64


def test_a_power_is_found():
    assert scale._power([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0]) == pytest.approx(2.0)


def test_a_slow_verifier_says_what_the_fast_one_says():
    inner = worlds.arith_envs(1).task.verifier
    problem = inner.sample(__import__("random").Random(0))
    slow = verifier.Slow(inner)
    assert slow.verify_batch([problem] * 2, [problem.answer, "x"]) == inner.verify_batch(
        [problem] * 2, [problem.answer, "x"]
    )


def test_the_watch_stops_its_clock_while_it_evaluates(monkeypatch):
    now = iter([0.0, 1.0, 5.0, 7.0])
    monkeypatch.setattr(sb3.time, "perf_counter", lambda: next(now))
    scores = iter([10.0, 480.0])
    watch = sb3._Watch(lambda: next(scores))  # starts at 0
    assert watch.look(sb3.EVERY - 1)
    assert watch.look(sb3.EVERY)  # stops at 1, evaluates, starts at 5
    assert not watch.look(2 * sb3.EVERY)  # stops at 7
    assert (watch.seconds, watch.solved_at) == (3.0, 2 * sb3.EVERY)


def test_the_gpu_benchmark_runs_on_a_small_model():
    model = qwen(0.07)
    rows = h200_decode.compare(model, batch=3, prompt=5, tokens=4, pairs=1)
    assert [row.name for row in rows] == ["B = 3, dynamic cache", "B = 3, static cache, compiled"]
    gap = float(rows[0].quality.split()[-1])
    assert gap < 0.2  # bfloat16


def test_the_gpu_benchmarks_words_come_back():
    words = tokenizer(100)
    assert len(words) == 100
    assert words("w7 w99")["input_ids"] == [7, 99]
    assert words.decode([7, 99]) == "w7 w99"


def test_a_floor_counts_the_tokens_that_are_read():
    from _rlenv_benchmarks.trl_short import our_agent

    model = worlds.endless_model(15, 16, 1)
    agent = our_agent("rloo", model)
    with floors.counted_tokens(agent.policy) as tokens:
        agent.learn(total_episodes=agent.episodes_per_update)
    episodes = worlds.GROUPS * worlds.K
    assert worlds.GROUPS * 6 <= tokens["acting"] <= episodes * (6 + 5)  # prompts once each; nothing twice
    assert 0 < tokens["training"] <= episodes * (6 + 5)
    size = sum(p.numel() for p in agent.policy.parameters())
    assert floors.operations(agent.policy, {"acting": 10, "training": 20}) == 2 * size * 10 + 6 * size * 20
    with floors.counted_tokens(agent.policy) as again:
        pass
    agent.learn(total_episodes=agent.episodes_per_update, reset_num_timesteps=False)
    assert again == {"acting": 0, "training": 0}  # nothing is counted outside the block
