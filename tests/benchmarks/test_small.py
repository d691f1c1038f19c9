"""The benchmarks' own logic at sizes where seconds mean nothing: what they compare has to be the same thing."""

import functools
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from _rlenv_benchmarks import (
    adapters,
    control,
    cores,
    env,
    floors,
    generate,
    h200_parts,
    measure,
    peers,
    refill,
    replies,
    sb3,
    scale,
    shapes,
    trl_long,
    trl_shapes,
    trl_short,
    verifier,
    worlds,
)  # fmt: skip
from _rlenv_benchmarks.gpu import Bench, Floors, qwen, tokenizer
from diagonal import slow

from agents import LanguageModelPolicy
from agents.policies.language.decoding.step import GeneralStep
from agents.policies.language.training import forward
from agents.rollouts.collector import Collector


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
    monkeypatch.setattr(generate, "TOKENS", 12)
    monkeypatch.setattr(generate, "acting_floor", lambda *sizes: 1.0)
    [row] = generate.run("generate", 1)
    assert row.name == "batch 3" and float(row.quality.split()[-1]) < 1e-4


@pytest.mark.parametrize(("share", "logarithmic"), [(False, True), (True, False), slow(True, True), slow(False, False)])
def test_waves_and_restarts_play_the_same_lengths(share, logarithmic, monkeypatch):
    monkeypatch.setattr(refill, "EPISODES", 8)
    monkeypatch.setattr(refill, "SLOTS", 4)
    monkeypatch.setattr(refill, "LONGEST", 8)
    monkeypatch.setattr(refill, "acting_floor", lambda *sizes: 1.0)
    row = refill._compare(share, logarithmic, 1)
    assert row.quality.startswith("the same 8 lengths: True")
    assert 4 <= row.details["mean_length"] <= 8


@pytest.mark.slow
def test_refill_has_four_rows(monkeypatch):
    monkeypatch.setattr(refill, "_compare", lambda *case: case)
    assert len(set(refill.run("refill", 1))) == 4


@pytest.mark.parametrize("together", [False, True])
def test_turns_and_completions_have_the_same_lengths_and_tokens(together, monkeypatch):
    for name, number in {"EPISODES": 6, "SLOTS": 4, "TURNS": 3, "LONGEST": 6, "REPLY": 3}.items():
        monkeypatch.setattr(replies, name, number)
    monkeypatch.setattr(replies.Answered, "max_turns", 3)
    row = replies._compare("tiny", together, 1)
    told = re.fullmatch(r"the same 6 lengths: True; tokens read: (\d+) and (\d+)", row.quality)
    assert told is not None and told[1] == told[2]


def test_acting_is_timed_with_and_without_an_adapter(monkeypatch):
    monkeypatch.setattr(adapters, "SLOTS", 4)
    monkeypatch.setattr(adapters, "TOKENS", 3)
    row = adapters._compare("0.43 M", "float32", 1)
    assert row.name == "0.43 M parameters, float32, rank 8" and row.pairs == 1


def test_an_update_is_timed_with_two_threads_and_with_one(monkeypatch):
    threads = []
    monkeypatch.setattr(cores, "learn", lambda agent, updates: threads.append(torch.get_num_threads()))
    row = cores._compare("job", None, 1, 2)
    assert threads == [2, 1] * 3 and torch.get_num_threads() == 1, "as it was"
    assert row.ratio["min"] > 0 and len(row.details["busy"]) == 3


def test_a_power_is_found():
    assert scale.power([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0]) == pytest.approx(2.0)


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
    watch = sb3.Watch(lambda: next(scores))  # starts at 0
    assert watch.look(sb3.EVERY - 1)
    assert watch.look(sb3.EVERY)  # stops at 1, evaluates, starts at 5
    assert not watch.look(2 * sb3.EVERY)  # stops at 7
    assert (watch.seconds, watch.solved_at) == (3.0, 2 * sb3.EVERY)


def test_the_gpu_benchmark_runs_on_a_small_model():
    model = qwen(0.07)
    rows = list(h200_parts.decode(Bench(model, Floors(1e9, 1e9), 1, batches=(3,), prompt=5, tokens=4)))
    assert [row.name for row in rows] == ["B = 3, dynamic cache", "B = 3, static cache, compiled"]
    gap = float(rows[0].quality.split()[-1])
    assert gap < 0.2  # bfloat16


def test_the_gpu_benchmarks_words_come_back():
    words = tokenizer(100)
    assert len(words) == 100
    assert words("w7 w99")["input_ids"] == [7, 99]
    assert words.decode([7, 99]) == "w7 w99"


def test_a_floor_counts_the_tokens_that_are_read(monkeypatch):
    from _rlenv_benchmarks.trl_short import our_agent

    monkeypatch.delattr(GeneralStep, "__call__")  # counting leaves the fast step in its place
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
    assert 0 < tokens["steps"] < tokens["acting"]
    assert again == {"acting": 0, "training": 0, "steps": 0}  # nothing is counted outside the block


class FakeTrainer:
    """Takes TRL's arguments and trains nothing, but calls back after every step as TRL does."""

    def __init__(self, model, args, callbacks, train_dataset, **rest):
        self.model, self.args, self.callback, self.rows = model, args, *callbacks, train_dataset

    def remove_callback(self, cls):
        pass

    def train(self):
        control = SimpleNamespace(should_training_stop=False)
        self.callback.on_train_begin(self.args, None, control)
        for step in range(1, self.args.max_steps + 1):
            self.callback.on_step_end(self.args, SimpleNamespace(global_step=step), control)
            logs = {"reward": (step + 10 * self.args.seed) / 100, "completions/mean_length": 4.0}
            self.callback.on_log(self.args, None, control, logs)
        assert control.should_training_stop


@pytest.fixture
def fake_trl(monkeypatch):
    """Put a peer that trains nothing in TRL's place; return its trainers, with settings in `args` and rows."""
    trainers = []

    def trainer(**arguments):
        trainers.append(FakeTrainer(**arguments))
        return trainers[-1]

    names = {f"{name}Config": SimpleNamespace for name in ("GRPO", "RLOO")}
    fake = SimpleNamespace(**names, GRPOTrainer=trainer, RLOOTrainer=trainer)
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(Dataset=SimpleNamespace(from_list=list)))
    for module in (peers, trl_long, trl_shapes, trl_short):
        monkeypatch.setattr(module, "require_trl", lambda: fake)
    for module in (trl_long, trl_short):
        monkeypatch.setattr(module, "update_floor", lambda agent: 1.0)
        for name, size in {"STEPS": 1, "GROUPS": 2, "K": 4, "TOKENS": 4, "EVALUATED": 8}.items():
            monkeypatch.setattr(module, name, size, raising=False)
    return trainers


def plan(trainer):
    """Return the seed, the updates per turn and the turns of a training with two groups per update."""
    steps, turns = trainer.callback.steps, trainer.callback.turns
    assert trainer.args.max_steps == steps * turns and len(trainer.rows) == 2 * steps * turns
    return trainer.args.seed, steps, turns


@pytest.mark.parametrize(
    "name", [name if name == "trl-prompt" else pytest.param(name, marks=pytest.mark.slow) for name in trl_shapes.SHAPES]
)
def test_users_shapes_are_measured_on_prompts_that_ours_trains_on(name, fake_trl, monkeypatch):
    shape = trl_shapes.SHAPES[name]
    tokens = 2 if name == "trl-prompt" else shape.tokens // 16
    small = trl_shapes.Shape(shape.prompt // 32, tokens, shape.groups, 4, width=32, layers=1, updates=6)
    monkeypatch.setitem(trl_shapes.SHAPES, name, small)
    monkeypatch.setattr(floors, "product_speed", functools.partial(floors.product_speed, work=1e7))
    [row] = trl_shapes.run(name, 2)
    assert [(call.args.seed, call.args.max_steps, call.callback.steps) for call in fake_trl] == [(0, 6, 3), (1, 6, 3)]
    first, second = ([each["prompt"] for each in call.rows] for call in fake_trl)
    assert len(first) == len(second) == small.groups * 6 and first != second
    assert {len(prompt.split()) for prompt in first} == {small.prompt}
    assert row.pairs == 2 and row.details["floor"] > 0 and 0 < row.details["length"][0] <= small.tokens
    assert row.details["peer_reward"] == [0.06, 0.16] and len(row.details["reward"]) == 2
    assert "TRL 0.11 (0.06 to 0.16) after 5 updates; mean and range over 2 seeds" in row.quality
    settings = fake_trl[0].args
    assert settings.max_completion_length == small.tokens and settings.loss_type == "grpo" and settings.beta == 0.0
    assert settings.per_device_train_batch_size == small.groups * 4 and settings.num_generations == 4
    assert settings.learning_rate == trl_shapes.RATE


def test_a_missing_word_counts_as_half_of_an_even_one():
    reward = trl_shapes.surplus_of_even(4)
    assert reward(["w2 w4 w6 w8", "w2 w4 w6 w7", "w3", "w2", "", "w11 w13 w15 w17"]) == [1, 0.75, 0.375, 0.625, 0.5, 0]


def test_techniques_for_users_shapes_are_measured_on_and_off(monkeypatch):
    small = trl_shapes.Shape(prompt=48, tokens=8, groups=2, k=80, width=32, layers=1)
    for name, value in {"SHAPES": {"small": small}, "VOCABULARIES": ((64, 4096),), "DRAWS": 4}.items():
        monkeypatch.setattr(shapes, name, value)
    forest, written_out, *acting, together, drawing = shapes.run("shapes", 1)
    for row in (written_out, together):
        assert len({part.split()[0] for part in row.quality.split("; ")}) == 1, "the same tokens are read"
    with_it, without = (int(part.split()[0]) for part in forest.quality.split("; "))
    assert 2 * 48 + 160 * 7 - 160 < with_it < 2 * 48 + 160 * 7 and without > with_it
    for row in acting:
        with_it, without = (float(part.split()[2]) for part in row.quality.split("; "))
        assert row.name.startswith("small, acting") and abs(with_it - without) < 1e-5
    found = [float(word) for word in re.findall(r"-\d+\.\d+", drawing.quality)]
    assert len(found) == 3 and max(found) - min(found) < 0.5
    left = [getattr(module, constant) for module, constant, _ in shapes.SWITCHES.values()]
    assert left == [1024, forward.is_written_out, 1024, 2**17], "as they were"


def test_the_models_of_users_shapes_have_4_7_and_31_million_parameters():
    with torch.device("meta"):
        sizes = {name: trl_shapes.qwen3(shape).num_parameters() for name, shape in trl_shapes.SHAPES.items()}
    assert {name: round(size / 1e6, 1) for name, size in sizes.items()} == {
        "trl-prompt": 4.7, "trl-balanced": 4.7, "trl-reasoning": 4.7, "trl-30m": 30.7,
    }  # fmt: skip


def test_success_is_compared_over_seeds_and_only_with_the_same_loss(fake_trl, monkeypatch):
    scores = iter([0.2, 0.4, 0.6, 0.8, 0.5])  # ours and the peer's for two seeds, then where both start
    monkeypatch.setattr(trl_short, "greedy_success", lambda model: next(scores, 0.0))
    monkeypatch.setattr(trl_short, "warm_model", lambda: worlds.endless_model(15, 16, 1))
    same, defaults = trl_short.run("trl-grpo", 2)
    assert [plan(call) for call in fake_trl] == [(0, 1, 3), (1, 3, 1), (0, 1, 3)]
    assert same.quality.startswith("success 0.50 -> ours 0.40 (0.20 to 0.60), TRL 0.60 (0.40 to 0.80) after 3 updates")
    assert "over 2 seeds" in same.quality and "timed only" in defaults.quality


@pytest.mark.slow  # the same trainings on shorter answers: test_success_is_compared_over_seeds
def test_long_answers_are_compared_over_seeds(fake_trl):
    [row] = trl_long.run("trl-long", 2)
    assert [plan(call) for call in fake_trl] == [(0, 1, 3), (1, 3, 1)]
    assert row.pairs == 2 and "over 2 seeds" in row.quality and len(row.details["reward"]) == 2


def test_techniques_for_control_change_nothing(monkeypatch):
    for name, value in {"ROLLOUTS": 1, "SEEDS": 2, "ALONE": 2, "MOST_STEPS": 600, "SUMS": (2, 9)}.items():
        monkeypatch.setattr(control, name, value)
    for name, value in {"THRESHOLD": 12.0, "EVERY": 100, "EPISODES": 4}.items():
        monkeypatch.setattr(sb3, name, value)
    rows = control.run("control", 1)
    assert [row.quality for row in rows[:2]] == ["the same actions: True"] * 2
    assert rows[2].ours + sum(float(part.split()[-2]) for part in rows[2].quality.split(",")) <= rows[2].peer + 1
    assert float(rows[3].quality.split()[-1]) < 1e-5
    assert rows[4].quality == "2 of 2 solved; the same curves: True"


def test_the_share_of_control_counts_acting_in_numpy(monkeypatch):
    row = env._cartpole(2, 1)
    assert 0 < row.ours < row.peer


def test_a_single_value_has_no_range():
    assert measure.mean_and_range([0.5]) == "0.50"
    assert measure.mean_and_range([0.25, 0.75]) == "0.50 (0.25 to 0.75)"
