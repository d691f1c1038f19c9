"""Every agent of the registry: it trains on text and on control, a seed decides, bad settings are one clear line."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from agent_kinds import GROUPED, LIKE_GRPO, PASSES, each_agent_once, fitting, is_taught, with_teacher
from diagonal import diagonal
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import AGENTS, Agent, ReinforceBaseline, ReinforcePlusPlus, find_agent
from agents.algorithms._actor_critic import ActorCritic
from agents.trainer.proximal import ProximalAgent

NAN, INF = float("nan"), float("inf")
names = pytest.mark.parametrize("name", AGENTS)
PROXIMAL = [name for name, cls in AGENTS.items() if issubclass(cls, ProximalAgent)]
CRITICS = [name for name, cls in AGENTS.items() if issubclass(cls, ActorCritic)]


def make_agent(name: str, kind: str = "control", **settings: Any) -> Agent:
    settings = fitting(name, {"episodes_per_update": 8, "device": "cpu", **settings})
    if kind == "control":
        return with_teacher(AGENTS[name]("MlpPolicy", "CartPole-v1", **settings))
    settings = {"learning_rate": 0.01, **settings}
    return with_teacher(AGENTS[name](tiny_model("gpt2"), text_envs(4, group_size=4), **settings))


def weights_of(agent: Agent) -> dict[str, torch.Tensor]:
    return copy.deepcopy(agent.policy.state_dict())


# Training.


@each_agent_once(text=("ppo", "gspo"))
def test_every_agent_trains_and_says_how_it_went(name: str, kind: str) -> None:
    agent = make_agent(name, kind, ent_coef=0.01, kl_coef=0.01)
    before, losses = weights_of(agent), []
    agent.learn(total_episodes=16, callback=lambda local, _: losses.append(dict(agent.last_metrics)) or True)
    assert agent.num_updates >= 2 and agent.num_episodes >= 16 and agent.policy_optimizer.skipped == 0
    for metrics in (*losses, agent.last_metrics):
        assert all(math.isfinite(figure) for figure in metrics.values()), metrics
    kl = "train/kl_teacher" if is_taught(name) else "train/kl_ref"
    assert {"train/loss", "train/policy_loss", "train/grad_norm", "train/entropy_loss", kl} <= set(agent.last_metrics)
    assert ("train/value_loss" in agent.last_metrics) == (name in CRITICS)
    assert ("train/clip_fraction" in agent.last_metrics) == (name in PASSES)
    after = agent.policy.state_dict()
    assert all(torch.isfinite(value).all() for value in after.values())
    actor = {id(p) for p in agent.policy.actor_parameters()}
    moved = [p for key, p in agent.policy.named_parameters() if not torch.equal(p, before[key])]
    assert any(id(p) in actor for p in moved)
    assert any(id(p) not in actor for p in moved) == (name in CRITICS), "only critics train critics"


@each_agent_once(text=("dapo",), rare=LIKE_GRPO)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(name: str, kind: str) -> None:
    runs = []
    for attempt, seed in enumerate((3, 3, 4)):
        with torch.random.fork_rng():
            torch.manual_seed(attempt)
            runs.append(weights_of(make_agent(name, kind, seed=seed).learn(total_episodes=16)))
    assert all(torch.equal(value, runs[1][key]) for key, value in runs[0].items())
    assert any(not torch.equal(value, runs[2][key]) for key, value in runs[0].items())


@names
def test_an_agent_is_found_by_its_name_and_says_its_equation(name: str) -> None:
    assert find_agent(name) is AGENTS[name]
    assert "L = -" in (AGENTS[name].__doc__ or "")


# Bad settings.


def refuses(message: str, name: str, kind: str = "control", **settings: Any) -> None:
    with pytest.raises(ValueError) as error:
        make_agent(name, kind, **settings)
    assert str(error.value).startswith(message) and "\n" not in str(error.value), error.value


@diagonal("name", GROUPED, rare=LIKE_GRPO)
def test_who_compares_within_groups_needs_two_of_a_prompt(name: str) -> None:
    line = f"{AGENTS[name].__name__} compares episodes of a group, so group_size must be at least 2, got 1"
    refuses(line.replace("group_size", "episodes_per_update"), name, episodes_per_update=1)
    with pytest.raises(ValueError) as error:
        AGENTS[name]("tiny", "TextGen-v0", env_kwargs={"verifier": "arith"}, group_size=1, device="cpu")
    assert str(error.value) == line
    with pytest.raises(ValueError, match=r"group_size must be at least 2, got 1; pass the id as env, or gym.make_vec"):
        AGENTS[name](tiny_model("gpt2"), text_envs(4, group_size=1), device="cpu")


@pytest.mark.parametrize("name", [name for name in AGENTS if name not in GROUPED])
def test_who_does_not_compare_takes_groups_of_one(name: str) -> None:
    agent = AGENTS[name](tiny_model("gpt2"), text_envs(4, group_size=1), episodes_per_update=4, device="cpu")
    assert agent.group_size == 1
    assert make_agent(name, episodes_per_update=1).learn(total_episodes=1).num_updates == 1


def test_a_baseline_of_the_group_needs_a_group_in_reinforce_plus_plus_too() -> None:
    with pytest.raises(ValueError, match=r"^ReinforcePlusPlus compares episodes of a group, so group_size must be"):
        ReinforcePlusPlus(tiny_model("gpt2"), text_envs(4), baseline="group-mean", device="cpu")
    refuses("ReinforcePlusPlus compares", "reinforce-plus-plus", baseline="group-mean", episodes_per_update=1)
    assert make_agent("reinforce-plus-plus", "text", baseline="group-mean").group_size == 4


@diagonal("name, value, setting", PASSES, [0, -1, 1.5, "2", True], ["num_epochs", "num_minibatches"])
def test_passes_and_parts_are_positive_whole_numbers(name: str, setting: str, value: Any) -> None:
    refuses(f"{setting} must be a whole number of at least 1, got {value!r}", name, **{setting: value})


@diagonal("name, value", PROXIMAL, [0, 1, -0.1, 1.5, NAN, INF, "x"])
def test_clip_ranges_lie_between_zero_and_one(name: str, value: Any) -> None:
    line = "must be a finite number above 0 and below 1, got"
    refuses(f"clip_range {line} {value!r}", name, clip_range=value)
    refuses(f"clip_range_high {line} {value!r}", name, clip_range_high=value)


@diagonal("name, value", PROXIMAL, [0, 1.3, NAN, INF, "x"])
def test_the_bound_of_the_ratio_lies_above_the_clip(name: str, value: Any) -> None:
    line = f"max_ratio must be a finite number above 1.3, got {value!r}"
    refuses(line, name, clip_range_high=0.3, max_ratio=value)
    assert make_agent(name, clip_range_high=0.3, max_ratio=1.31).max_ratio == 1.31


@pytest.mark.parametrize("name", CRITICS)
@pytest.mark.parametrize("value", [-0.01, 1.01, NAN, "0.9"])
def test_lambda_is_at_least_zero_and_at_most_one(name: str, value: Any) -> None:
    refuses(f"gae_lambda must be a finite number of at least 0 and at most 1, got {value!r}", name, gae_lambda=value)


@pytest.mark.parametrize("name", CRITICS)
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_the_ends_of_lambda_are_allowed(name: str, value: float) -> None:
    assert make_agent(name, gae_lambda=value).gae_lambda == value


@pytest.mark.parametrize(
    ("name", "settings", "line"),
    [
        ("ppo", {"clip_range_vf": 0}, "clip_range_vf must be a finite number above 0, got 0"),
        ("ppo", {"clip_range_vf": NAN}, "clip_range_vf must be a finite number above 0, got nan"),
        ("reinforce-plus-plus", {"baseline": "group-maen"}, "unknown baseline 'group-maen'; did you mean 'group-mean'"),
        ("reinforce-plus-plus", {"baseline": "value"}, "unknown baseline 'value'; allowed: none, group-mean"),
        ("dapo", {"overlong_buffer": -1}, "overlong_buffer must be a whole number of at least 0, got -1"),
        ("dapo", {"overlong_buffer": 0.5}, "overlong_buffer must be a whole number of at least 0, got 0.5"),
        ("dapo", {"max_rounds": 0}, "max_rounds must be a whole number of at least 1, got 0"),
        ("dapo", {"overlong_buffer": 5, "max_steps": 0}, "max_steps must be a whole number of at least 1, got 0"),
        ("dapo", {"mask_truncated": 1}, "mask_truncated must be true or false, got 1"),
        ("cispo", {"max_ratio": 0.9}, "max_ratio must be a finite number of at least 1, got 0.9"),
        ("cispo", {"max_ratio": None}, "max_ratio must be a finite number of at least 1, got None"),
        ("cispo", {"scale": "std"}, "unknown scale 'std'; allowed: group, batch"),
        ("grpo", {"scale": "bach"}, "unknown scale 'bach'; did you mean 'batch'? allowed: group, batch"),
        ("gspo", {"scale": 1}, "unknown scale 1; allowed: group, batch"),
        ("dppo", {"max_moved": 0}, "max_moved must be a finite number above 0, got 0"),
        ("sapo", {"gate_temperature": 0}, "gate_temperature must be a finite number above 0, got 0"),
        (
            "sapo",
            {"gate_temperature_negative": INF},
            "gate_temperature_negative must be a finite number above 0, got inf",
        ),
        ("topr", {"threshold": NAN}, "threshold must be a finite number, got nan"),
        ("kl-cov", {"share": 1.5}, "share must be a finite number above 0 and at most 1, got 1.5"),
        ("clip-cov", {"max_covariance": "x"}, "max_covariance must be a finite number, got 'x'"),
        ("clip-cov", {"min_covariance": 6}, "min_covariance=6 is not below max_covariance=5, so no step is"),
        ("kl-cov", {"max_covariance": 0}, "min_covariance=0 is not below max_covariance=0, so no step is ever chosen;"),
        (
            "rloo",
            {"mismatch": "tokens"},
            "unknown mismatch 'tokens'; did you mean 'token-mask'?",
        ),
        ("rloo", {"mismatch_max": 0.5}, "mismatch_max must be a finite number of at least 1, got 0.5"),
        ("rloo", {"mismatch_min": 1.5}, "mismatch_min must be a finite number of at least 0 and at most 1, got 1.5"),
        ("rloo", {"mismatch_max": 2}, "mismatch_max=2.0 has no effect without mismatch (token-truncate, "),
        ("ppo", {"mismatch_max": None}, "mismatch_max=None has no effect without mismatch (token-truncate, "),
        ("rloo", {"mismatch_min": 0.5}, "mismatch_min=0.5 has no effect without mismatch (token-truncate, "),
        ("grpo", {"off_policy_mask": 0}, "off_policy_mask must be a finite number above 0, got 0"),
        ("rloo", {"kl_ratio": "constant"}, "kl_ratio='constant' needs kl_in='loss' and an estimate from the sampled"),
        ("pkpo", {"k": 0}, "k must be a whole number of at least 1, got 0"),
        ("pkpo", {"k": 9}, "k=9 is more than the 8 episodes of a group; use k=1 to 8, or larger groups"),
        ("pkpo", {"baseline": "loo-2"}, "unknown baseline 'loo-2'; did you mean 'loo-1'"),
        (
            "gdpo",
            {"part_weights": {"right": "1"}},
            'part_weights must map parts to numbers, as in {"right": 1, "short":',
        ),
        ("gdpo", {"normalize_rewards": True}, "normalize_rewards=True has no effect in GDPO, which standardizes every"),
        ("dr-grpo", {"max_steps": -3}, "max_steps must be a whole number of at least 1, got -3"),
    ],
)
def test_settings_of_one_agent_name_themselves_and_what_is_allowed(
    name: str, settings: dict[str, Any], line: str
) -> None:
    refuses(line, name, **settings)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("grop", "grpo"), ("dr-gpro", "dr-grpo"), ("reinforce++", "reinforce"), ("rlo", "rloo"), ("PPo", None)],
)
def test_an_unknown_agent_is_named_with_the_closest_match(name: str, meant: str | None) -> None:
    with pytest.raises(ValueError) as error:
        find_agent(name)
    hint = f"did you mean {meant!r}? " if meant else ""
    assert str(error.value) == f"unknown agent {name!r}; {hint}allowed: {', '.join(AGENTS)}"


def test_pkpo_takes_the_best_of_four_or_of_a_smaller_group() -> None:
    assert [make_agent("pkpo", episodes_per_update=size).best_of for size in (2, 3, 4, 8)] == [2, 3, 4, 4]
    assert make_agent("pkpo", "text", k=3).best_of == 3
    refuses("k=5 is more than the 4 episodes of a group; use k=1 to 4, or larger groups", "pkpo", "text", k=5)


def test_defaults_of_the_algorithm_go_before_those_of_the_policy() -> None:
    ppo, text = make_agent("ppo"), make_agent("ppo", "text")
    assert (ppo.num_epochs, ppo.num_minibatches, ppo.gae_lambda, ppo.gamma) == (4, 4, 0.95, 0.99)
    assert (text.num_epochs, text.num_minibatches, text.gae_lambda, text.gamma) == (2, 2, 1.0, 1.0)
    own = make_agent("ppo", num_epochs=1, num_minibatches=3, gae_lambda=0.5, clip_range=0.1)
    assert (own.num_epochs, own.num_minibatches, own.gae_lambda) == (1, 3, 0.5)
    assert (own.clip_range, own.clip_range_high) == (0.1, 0.1)
    dapo = make_agent("dapo")
    assert (dapo.clip_range, dapo.clip_range_high, dapo.num_epochs) == (0.2, 0.28, 1)
    assert isinstance(make_agent("reinforce-baseline"), ReinforceBaseline)
