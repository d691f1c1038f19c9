"""What users of stable-baselines3 reach for works on our agents, and its agents read our text; what comes back."""

import json
import re
import warnings
from functools import partial
from inspect import signature

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from counting_env import Somebody
from gymnasium import spaces
from pages import ROOT
from refused import refusal
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.preprocessing import preprocess_obs
from tiny_models import text_envs, tiny_model, tiny_policy

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv._peer_names import SB3, TRL
from rlenv.agents import AGENTS, PPO, RLOO, ControlPolicy, Reinforce, ReinforceBaseline, TokenExtractor, as_vec_env
from rlenv.agents.policies.base import weights_digest
from rlenv.agents.training.checkpoint import space_of
from rlenv.agents.training.saving import described

CPU = {"device": "cpu"}
TEXT = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
GROUPS = {"env_kwargs": TEXT, "group_size": 2, "episodes_per_update": 4, **CPU}
kinds = pytest.mark.parametrize("kind", ["control", "text"])


def rows_of(page):
    """Return the rows of a page's tables: the names in the first cell, and the other cells."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    rows = [line.strip("| ").split(" | ") for line in lines if line.startswith("| `")]
    return [(re.findall(r"\w+", first), cells) for first, *cells in rows]


def test_errors_know_every_name_that_the_pages_say_is_another_one_here():
    ours = {setting for cls in AGENTS.values() for setting in signature(cls).parameters}
    assert ours.isdisjoint(SB3 | TRL) and ours >= {here for here in (SB3 | TRL).values() if " " not in here}
    listed = {name: cells[0] for names, cells in rows_of("docs/appendix/names.md") for name in names}
    assert {*signature(sb3.PPO).parameters, *signature(sb3.A2C).parameters} <= listed.keys()
    assert {name for name, here in listed.items() if here == "the same"} <= ours
    renamed = {name: here.replace("`", "") for name, here in listed.items() if here not in ("the same", "-")}
    in_policy = {name: f"{name} {here}" for name, here in renamed.items() if here == "in policy_kwargs"}
    assert renamed | in_policy == SB3
    assert in_policy.keys() <= {*signature(ActorCriticPolicy).parameters, *signature(ControlPolicy).parameters}
    rows = rows_of("docs/from-trl.md")
    for name, here in TRL.items():
        setting = here.split()[0]
        assert any(name in names and setting in " ".join(cells).replace("-", "_") for names, cells in rows), name
    for names, cells in rows:
        here = re.findall(r"\w+", cells[-1]) if re.fullmatch(r"(`\w+`(, )?)+", cells[-1]) else []
        if len(here) == len(names) and ours.issuperset(here):
            assert dict(zip(names, here, strict=True)).items() <= TRL.items()


def make_agent(kind):
    settings = {"baseline": "running-mean", "learning_rate": 1e-3, "lr_schedule": "constant", **CPU}
    if kind == "control":
        return ReinforceBaseline("MlpPolicy", "CartPole-v1", episodes_per_update=4, **settings)
    return ReinforceBaseline("tiny", "TextGen-v0", **{**GROUPS, "episodes_per_update": 8, **settings})


def make_env(kind):
    return gym.make("CartPole-v1") if kind == "control" else gym.make("TextGen-v0", **TEXT)


def pole(cls=PPO, env="CartPole-v1", **settings):
    few = {"num_epochs": 2, "num_minibatches": 2, "episodes_per_update": 4, "learning_rate": 1e-2}
    return cls("auto", env, **{**CPU, **few, **settings})


def two_poles():
    return make_vec_env("CartPole-v1", n_envs=2)


def same_weights(ours, theirs):
    return weights_digest(ours.policy) == weights_digest(theirs.policy)


# Tools and callbacks.


@kinds
def test_evaluation_callbacks_and_the_progress_bar_work_unchanged(kind, tmp_path, capsys):
    agent, every = make_agent(kind), 4 if kind == "text" else 12
    few = {"n_eval_episodes": 3, "return_episode_rewards": True, "warn": False}
    rewards, lengths = evaluate_policy(agent, make_env(kind), **few)
    assert len(rewards) == 3 and all(length >= 1 for length in lengths)
    best = {"n_eval_episodes": 2, "eval_freq": every, "best_model_save_path": str(tmp_path / "best"), "verbose": 0}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Training and eval env are not of the same type|rich is experimental")
        evaluation = EvalCallback(Monitor(make_env(kind)), **best)
        checkpoints = CheckpointCallback(every, str(tmp_path / "all"), name_prefix="agent")
        agent.learn(40, callback=[evaluation, checkpoints], progress_bar=True)
    shown = capsys.readouterr()
    assert np.isfinite(evaluation.last_mean_reward) and "%" in shown.out + shown.err
    saved = sorted((tmp_path / "all").iterdir())
    for path in (tmp_path / "best" / "best_model.zip", saved[-1]):
        assert type(ReinforceBaseline.load(path, **CPU)) is ReinforceBaseline


class StopAfter(BaseCallback):
    def __init__(self, calls):
        super().__init__()
        self.left, self.ended = calls, False

    def _on_step(self):
        self.left -= 1
        return self.left > 0

    def _on_training_end(self):
        self.ended = True


@kinds
def test_a_callback_that_returns_false_stops_the_training(kind):
    stop = StopAfter(3)
    agent = make_agent(kind).learn(10_000, callback=[StopAfter(100), stop])
    assert stop.left == 0 and stop.ended
    assert 3 <= agent.num_timesteps <= 3 * agent.env.num_envs and agent.num_updates == 0
    calls = []
    agent.learn(10, callback=[StopAfter(100), lambda local, glob: calls.append(local["dones"].shape)])
    assert agent.num_updates >= 1, "the next training starts afresh, and a function without an answer lets it go on"
    assert set(calls) == {(agent.env.num_envs,)}


def test_a_callback_reads_the_infos_of_each_slot():
    returns = []

    def note(local, _):
        ended = [info for info, done in zip(local["infos"], local["dones"], strict=True) if done]
        returns.extend(info["episode"]["r"] for info in ended)
        assert local["infos"][-1].keys() <= {"episode"} and len(local["infos"][:1]) == 1

    rollout, _ = next(pole(env=two_poles()).updates(total_episodes=4, callback=note))
    assert {*rollout.returns.tolist()} <= {*returns} and len(returns) >= 4


def test_a_curve_that_begins_anew_or_has_another_name_gets_a_folder_of_its_own(tmp_path):
    agent = Reinforce("MlpPolicy", "CartPole-v1", episodes_per_update=2, tensorboard_log=str(tmp_path), **CPU)
    new = []
    for given in ({}, {"reset_num_timesteps": False}, {}, {"tb_log_name": "own", "reset_num_timesteps": False}):
        before = {*tmp_path.iterdir()}
        agent.learn(total_episodes=2, **given)
        new.append([path.name for path in {*tmp_path.iterdir()} - before])
    assert new == [["Reinforce_1"], [], ["Reinforce_2"], ["own_0"]]
    own = agent.logger
    agent.set_logger(own)
    agent.learn(total_episodes=2)
    assert agent.logger is own and len([*tmp_path.iterdir()]) == 3


def test_a_policy_predicts_the_values_of_observations():
    policy, seen = pole().policy, torch.linspace(-1, 1, 12).view(3, 4)
    for obs in (seen, seen.double().numpy()):
        values = policy.values(obs)
        assert values.shape == (3, 1) and values.requires_grad
        torch.testing.assert_close(values, policy.net.predict_values(seen))
    envs = text_envs(4)
    agent = PPO(tiny_policy("llama", envs, critic="head"), envs, episodes_per_update=4, **CPU)
    rollout = agent.collector.collect(agent.policy, 4, agent.generator)
    whole, obs = agent.policy.values(rollout)[:, 0], rollout.observations
    torch.testing.assert_close(agent.policy.values(obs)[:, 0], whole, rtol=0, atol=1e-5)
    assert agent.policy.values({key: value.numpy() for key, value in obs.items()}).shape == (4, 1)


def test_dropout_stays_off_whatever_mode_is_asked_for():
    policy = tiny_policy("gpt2", text_envs(2))
    assert not any(module.training for module in policy.train().modules())


# Another environment, and evaluating by the id of one.


def test_an_agent_goes_on_in_another_environment(tmp_path):
    agent = pole().learn(total_episodes=8)
    agent.set_env("CartPole-v1", env_kwargs={"sutton_barto_reward": True})
    assert agent.env.envs[0].spec.kwargs["sutton_barto_reward"] and agent.env.num_envs == agent.num_envs == 4
    agent.learn(total_episodes=8, reset_num_timesteps=False)
    assert agent.num_episodes == 16
    agent.save(tmp_path / "agent")
    assert PPO.load(tmp_path / "agent").origin["env_kwargs"] == {"sutton_barto_reward": True}
    agent.set_env(mine := two_poles())
    assert agent.get_env() is mine and agent.n_envs == 2, "an object has its own slots"
    agent.learn(total_episodes=4)
    assert agent.origin == {"env": None, "env_kwargs": None}


def test_the_id_of_the_training_brings_its_arguments(monkeypatch):
    """An environment by id has the arguments of the training but those that are changed, and is closed at the end."""
    agent = RLOO("tiny", "TextGen-v0", **GROUPS)
    figures, episodes = agent.evaluate("TextGen-v0", 6, seed=0)
    assert figures["episodes"] == len(episodes) == 6 and agent.origin["env_kwargs"]["verifier"] == "arith"
    seen, make = [], gym.make_vec
    monkeypatch.setattr(gym, "make_vec", lambda *args, **kwargs: seen.append(make(*args, **kwargs)) or seen[-1])
    agent.evaluate("TextGen-v0", 3, env_kwargs={"split": "test"})
    assert seen[0].task.split == "test" and seen[0].num_envs == 3 and seen[0].closed
    assert agent.env.task.split == "train" and not agent.env.closed
    refusal(lambda: agent.evaluate(agent.env, 2, env_kwargs={"split": "test"}), "is for the id of an environment")
    with pytest.raises(ValueError, match="é"):  # by the tokenizer of the policy, which has no such character
        agent.evaluate("TextGen-v0", 1, env_kwargs={"problems": ["é="], "test_fraction": 0.0})
    for env, said in (("CartPole-v1", "observation space Box"), (text_envs(1), "action space Discrete")):
        refusal(partial(agent.evaluate, env, 1), f"the {said}", "is not that of the policy")
    agent.set_env("TextGen-v0", env_kwargs={**TEXT, "split": "test"})
    assert agent.group_size == 2 and agent.env.task.split == "test"
    other = pole(env_kwargs={"sutton_barto_reward": True})
    assert other.evaluate("CartPole-v1", 2, seed=0)[0]["mean_reward"] <= 0
    assert other.evaluate("gymnasium:CartPole-v1", 2, seed=0)[0]["mean_reward"] > 0, "another id has no arguments"


# Saving and loading.


def test_loading_what_is_no_checkpoint_says_so(tmp_path):
    sb3.A2C("MlpPolicy", "CartPole-v1", **CPU).save(tmp_path / "theirs")
    others = dict.fromkeys(("theirs", "theirs.zip"), r"theirs.zip' is of stable-baselines3.*train anew")
    for name, said in {"missing": "is not a checkpoint", "": "is not a checkpoint", **others}.items():
        with pytest.raises(ValueError, match=said):
            ReinforceBaseline.load(tmp_path / name)
    pole().save(tmp_path / "run" / "checkpoint")
    refusal(lambda: ReinforceBaseline.load(tmp_path / "run"), "run' is not a checkpoint", "load '", "run/checkpoint'")


CHANGED = dict.fromkeys(("merge_rows", "share_prefixes", "pack_weights", "cuda_graphs"), False)
CHANGED["activation_checkpointing"] = True


@pytest.mark.parametrize("model", ["object", "folder"])
def test_switches_the_kind_of_attention_and_the_temperature_come_back(model, tmp_path):
    envs, settings = text_envs(2), {**CHANGED, "attention": "eager", "temperature": 0.6}
    spec = tiny_model("llama")
    if model == "folder":
        spec.save_pretrained(tmp_path / "model")
        spec = tmp_path / "model"
    agent = Reinforce(spec, envs, policy_kwargs=settings, episodes_per_update=2, kl_coef=0.1, **CPU).learn(4)
    agent.save(tmp_path / "a.zip")  # the suffix is dropped
    again = Reinforce.load(tmp_path / "a", env=envs, **CPU)
    for policy in (agent.policy, again.policy, again.anchor.reference):
        held = {name: getattr(policy, name) for name in (*CHANGED, "temperature")}
        assert held | {"attention": policy.model.config._attn_implementation} == settings


def test_a_loaded_agent_predicts_without_an_environment(tmp_path):
    agent = pole(env=two_poles()).learn(total_episodes=4)
    agent.save(tmp_path / "agent")
    loaded = PPO.load(tmp_path / "agent", **CPU)
    seen = np.linspace(-1, 1, 4 * 4, dtype=np.float32).reshape(4, 4)
    wanted, got = (each.predict(seen, deterministic=True)[0] for each in (agent, loaded))
    assert np.array_equal(wanted, got) and loaded.predict(seen[0])[0].shape == ()
    assert loaded.get_env() is None
    refusal(lambda: loaded.learn(100), "was loaded without an environment: call set_env(env)")
    assert evaluate_policy(loaded, gym.make("CartPole-v1"), n_eval_episodes=2, warn=False)[0] > 0
    assert loaded.evaluate("CartPole-v1", 2)[0]["episodes"] == 2
    loaded.save(tmp_path / "again")
    again = PPO.load(tmp_path / "again", **CPU)
    again.set_env(two_poles())
    again.learn(total_episodes=4, reset_num_timesteps=False)
    assert again.num_episodes == 8


def test_a_network_comes_back_whatever_the_order_of_an_observations_keys(tmp_path):
    seen = {"z": spaces.Box(-1.0, 1.0, (2,)), "a": spaces.Box(-1.0, 1.0, (2,))}
    agent = pole(env=Somebody(spaces.Dict(**seen)))  # in this order: Gymnasium sorts the keys of a plain dictionary
    agent.save(tmp_path / "agent")
    obs = {"a": torch.tensor([[0.5, -0.5]]), "z": torch.tensor([[1.0, -0.1]])}
    for env in (None, Somebody(spaces.Dict(**seen)), Somebody(spaces.Dict(seen))):
        assert torch.equal(PPO.load(tmp_path / "agent", env=env, **CPU).policy.values(obs), agent.policy.values(obs))


SPACES = [
    spaces.Box(-np.inf, np.inf, (3,)),
    spaces.Box(np.array([-1.5, 0.1], np.float32), np.array([np.inf, 3.0], np.float32)),
    spaces.Box(0, 255, (3, 4, 4), np.uint8),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([2, 3]),
    spaces.MultiBinary(4),
    spaces.Dict({"tokens": spaces.Box(0, 9, (5,), np.int64), "length": spaces.Discrete(6)}),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_come_back_as_they_were(space):
    assert space_of(json.loads(json.dumps(described(space)))) == space
    assert described(spaces.Tuple([space])) is None


# Weights by name, and seeds.


def test_parameters_come_back(tmp_path):
    agent, other, third = (pole(seed=seed) for seed in range(3))
    kept = agent.learn(total_episodes=4).get_parameters()
    assert set(kept) == {"policy", "policy.optimizer"}
    agent.learn(total_episodes=4)
    assert not same_weights(agent, other)
    agent.set_parameters(kept)
    other.set_parameters(kept)
    assert same_weights(agent, other), "what was returned does not change with the agent"
    agent.save(tmp_path / "agent")
    third.set_parameters(tmp_path / "agent")
    assert same_weights(third, agent)
    assert torch.equal(*(each.optimizer.state_dict()["state"][0]["exp_avg"] for each in (third, agent)))


def test_some_parameters_only_if_that_is_said_and_a_refusal_changes_nothing():
    agent, other = pole(seed=0), pole(seed=1)
    weights, before = agent.policy.state_dict(), weights_digest(other.policy)
    (name, *_, last), zero = weights, torch.zeros(7)
    for wrong in ({"policy": weights}, {"polisy": weights}):
        refusal(partial(other.set_parameters, wrong), "set_parameters", "exact_match=False")
    for wrong in ({"critic": {}}, *({"policy": each} for each in ({"no": zero}, {name: weights[name], last: zero}))):
        refusal(partial(other.set_parameters, wrong, exact_match=False), "set_parameters")
    assert weights_digest(other.policy) == before
    other.set_parameters({"policy": weights}, exact_match=False)
    assert same_weights(agent, other)
    other.set_parameters({"policy": {name: torch.zeros_like(weights[name])}}, exact_match=False)
    assert not other.policy.state_dict()[name].any()


def test_a_seed_that_is_set_is_that_of_the_constructor():
    wanted, agent = pole(seed=3), pole(seed=0).learn(total_episodes=4)
    agent.set_parameters(wanted.get_parameters())
    agent.set_random_seed(3)
    state = torch.random.get_rng_state()
    for each in (wanted, agent):
        each.learn(total_episodes=8)
    assert same_weights(agent, wanted) and agent.settings["seed"] == 3
    assert torch.equal(state, torch.random.get_rng_state())
    agent.set_random_seed(None)
    assert agent.seed == 3


def test_clipping_follows_a_function_of_the_remaining_progress():
    asked = []
    agent = pole(clip_range=lambda left: asked.append(left) or 0.3 * left, clip_range_vf=lambda left: left)
    ranges = [(*agent.bounds, agent.present("clip_range_vf")) for _ in agent.updates(total_episodes=16)]
    assert ranges == [(0.3 * x, 0.3 * x, None, x) for x in (1.0, 0.75, 0.5, 0.25)]
    assert set(asked) == {1.0, 0.75, 0.5, 0.25}


# The features extractor that reads token contexts for stable-baselines3's own agents.


CONTEXTS = spaces.Dict({"tokens": spaces.Box(0, 4, (6,), np.int64), "length": spaces.Discrete(7)})


def features(extractor, rows, lengths):
    """Return the features of contexts as stable-baselines3 passes them on."""
    obs = {"tokens": torch.tensor(rows), "length": torch.tensor(lengths)}
    return extractor(preprocess_obs(obs, CONTEXTS))


def test_the_newest_tokens_stand_side_by_side_and_what_is_behind_the_end_has_no_effect():
    extractor = TokenExtractor(CONTEXTS, window=3, embedding_dim=2)
    assert extractor.features_dim == 6
    vectors = extractor.embedding.weight
    seen = features(extractor, [[1, 2, 3, 4, 0, 0], [1, 2, 3, 4, 2, 2], [3, 0, 0, 0, 0, 0]], [4, 4, 1])
    assert torch.equal(seen[0], torch.cat([vectors[2], vectors[3], vectors[4]]))
    assert torch.equal(seen[1], seen[0])
    assert torch.equal(seen[2], torch.cat([vectors[5], vectors[5], vectors[3]]))  # 5 stands before the first token
    extractor = TokenExtractor(CONTEXTS, embedding_dim=2)
    assert extractor.window == TokenExtractor(CONTEXTS, window=99).window == 6
    one, other = features(extractor, [[1, 2, 3, 4, 0, 1], [2, 2, 3, 4, 0, 1]], [6, 6])
    assert not torch.equal(one[:2], other[:2]) and torch.equal(one[2:], other[2:]), "every token, by default"


@pytest.mark.filterwarnings("ignore:.*render_mode='rgb_array'")  # which its make_vec_env asks for first
@pytest.mark.parametrize("cls", [sb3.PPO, sb3.A2C])
def test_an_agent_of_stable_baselines3_trains_it_saves_and_loads(cls, tmp_path):
    made = {sb3.PPO: lambda: as_vec_env(gym.make_vec("TextGen-v0", num_envs=4, **TEXT))}
    env = made.get(cls, lambda: make_vec_env("rlenv:TextGen-v0", 4, env_kwargs=TEXT))()
    kwargs = {"features_extractor_class": TokenExtractor, "features_extractor_kwargs": {"embedding_dim": 4}}
    agent = cls("MultiInputPolicy", env, n_steps=16, policy_kwargs=kwargs, seed=0, device="cpu")
    before = agent.policy.features_extractor.embedding.weight.detach().clone()
    agent.learn(128)
    after = agent.policy.features_extractor.embedding.weight
    assert not torch.equal(before, after)
    agent.save(tmp_path / "agent")
    loaded = cls.load(tmp_path / "agent", device="cpu")
    assert torch.equal(loaded.policy.features_extractor.embedding.weight, after)
    env.close()
