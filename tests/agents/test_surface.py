"""stable-baselines3's tools work on our agents as they are; what is saved comes back; a failed save harms nothing."""

import warnings
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
import stable_baselines3 as sb3
import torch
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from tiny_models import text_envs, tiny_model, tiny_policy

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import LanguageModelPolicy, Reinforce, ReinforceBaseline
from agents.files import seal
from agents.policies.base import weights_digest

TEXT = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}
KINDS = ["control", "text"]
kinds = pytest.mark.parametrize("kind", KINDS)


def make_agent(kind, **kwargs):
    settings = {"baseline": "running-mean", "learning_rate": 1e-3, "lr_schedule": "constant", "device": "cpu", **kwargs}
    if kind == "control":
        return ReinforceBaseline("MlpPolicy", "CartPole-v1", episodes_per_update=4, **settings)
    return ReinforceBaseline(
        "tiny", "TextGen-v0", env_kwargs=TEXT, episodes_per_update=8, **{"group_size": 2, **settings}
    )


def make_env(kind):
    return gym.make("CartPole-v1") if kind == "control" else gym.make("TextGen-v0", **TEXT)


# Tools of stable-baselines3.


@kinds
def test_evaluate_policy_of_stable_baselines3_works_unchanged(kind):
    rewards, lengths = evaluate_policy(
        make_agent(kind), make_env(kind), n_eval_episodes=3, return_episode_rewards=True, warn=False
    )
    assert len(rewards) == 3 and all(length >= 1 for length in lengths)


@kinds
def test_eval_and_checkpoint_callbacks_work_unchanged(kind, tmp_path):
    agent, every = make_agent(kind), 4 if kind == "text" else 12
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Training and eval env are not of the same type")
        evaluation = EvalCallback(
            Monitor(make_env(kind)),
            n_eval_episodes=2,
            eval_freq=every,
            best_model_save_path=str(tmp_path / "best"),
            verbose=0,
        )
        checkpoints = CheckpointCallback(every, str(tmp_path / "all"), name_prefix="agent")
        agent.learn(40, callback=[evaluation, checkpoints])
    assert np.isfinite(evaluation.last_mean_reward)
    saved = sorted((tmp_path / "all").iterdir())
    for path in [tmp_path / "best" / "best_model.zip", *saved]:
        assert type(ReinforceBaseline.load(path, device="cpu")) is ReinforceBaseline
    assert saved


@kinds
def test_progress_bar_shows(kind, capsys):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="rich is experimental")
        make_agent(kind).learn(20, progress_bar=True)
    shown = capsys.readouterr()
    assert "%" in shown.out + shown.err


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
    agent = make_agent(kind).learn(10_000, callback=stop)
    assert stop.left == 0 and stop.ended
    assert 3 <= agent.num_timesteps <= 3 * agent.env.num_envs and agent.num_updates == 0
    agent.learn(10)
    assert agent.num_updates >= 1, "the next training starts afresh"


def test_functions_and_lists_are_callbacks():
    calls = []
    make_agent("text").learn(8, callback=lambda local, glob: calls.append(local["dones"].shape) or True)
    assert calls and set(calls) == {(8,)}
    stop = StopAfter(2)
    agent = make_agent("text").learn(10_000, callback=[StopAfter(100), stop])
    assert stop.left == 0 and agent.num_updates == 0
    assert make_agent("text").learn(10_000, callback=lambda local, glob: False).num_updates == 0


# Acting.


@kinds
@pytest.mark.parametrize("deterministic", [True, False])
def test_predict_takes_one_observation_or_a_batch(kind, deterministic):
    agent, env = make_agent(kind), make_env(kind)
    obs, _ = env.reset(seed=0)
    action, state = agent.predict(obs, deterministic=deterministic)
    assert np.shape(action) == () and env.action_space.contains(action)
    env.step(action)
    assert (state is None) == (kind == "control")
    batch = {k: np.stack([v] * 3) for k, v in obs.items()} if kind == "text" else np.stack([obs] * 3)
    actions, _ = agent.predict(batch, deterministic=deterministic)
    assert actions.shape == (3,) and isinstance(actions, np.ndarray)
    if deterministic:
        assert (actions == action).all()


def test_predict_with_a_running_state_equals_predict_without():
    agent, env = make_agent("text"), make_env("text")
    obs, _ = env.reset(seed=0)
    state, start, done = None, np.ones(1, dtype=bool), False
    while not done:
        action, state = agent.predict(obs, state, start, deterministic=True)
        assert action == agent.predict(obs, deterministic=True)[0]
        obs, _, done, _, _ = env.step(action)
        start = np.zeros(1, dtype=bool)


def test_predict_stays_inside_a_box():
    agent = Reinforce("MlpPolicy", "Pendulum-v1", episodes_per_update=1, device="cpu")
    with torch.no_grad():
        agent.policy.net.log_std.fill_(3.0)
    obs = agent.env.single_observation_space.sample()
    actions = np.stack([agent.predict(obs)[0] for _ in range(20)])
    assert actions.shape == (20, 1) and (np.abs(actions) <= 2).all() and (np.abs(actions) == 2).any()


# Saving and loading.


def test_loading_what_is_no_checkpoint_says_so(tmp_path):
    with pytest.raises(ValueError, match="is not a checkpoint"):
        ReinforceBaseline.load(tmp_path / "missing")
    with pytest.raises(ValueError, match="is not a checkpoint"):
        ReinforceBaseline.load(tmp_path)
    for path in (tmp_path / "theirs", tmp_path / "theirs.zip"):
        sb3.A2C("MlpPolicy", "CartPole-v1", device="cpu").save(path)
        with pytest.raises(ValueError, match=r"theirs.zip' is of stable-baselines3.*train anew"):
            ReinforceBaseline.load(path)


RENAMES = {"first rename": 1, "second rename": 2}
FAILING = ("agents.training.state.save_file", "json.dumps", "safetensors", *RENAMES)


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        pytest.param(kind, target, marks=[] if (kind == "text") == (target in RENAMES) else [pytest.mark.slow])
        for kind in KINDS
        for target in FAILING
    ],
)
def test_a_save_that_fails_half_way_leaves_the_old_checkpoint(kind, target, tmp_path, monkeypatch):
    agent = make_agent(kind).learn(20)
    agent.save(tmp_path / "a")
    before = {p: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()}
    agent.learn(20)

    replace, renamed = Path.replace, []

    def fail(*args, **kwargs):
        raise OSError("disk full")

    def rename(path, name):
        renamed.append(name)
        return fail() if len(renamed) == RENAMES[target] else replace(path, name)

    with monkeypatch.context() as patch:
        if target == "safetensors":
            patch.setattr(type(agent.policy), "save", fail)
        elif target in RENAMES:
            patch.setattr(Path, "replace", rename)
        else:
            patch.setattr(target, fail)
        with pytest.raises(OSError, match="disk full"):
            agent.save(tmp_path / "a")
    assert {p: p.read_bytes() for p in (tmp_path / "a").rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["a"], "nothing half-written is left"
    assert ReinforceBaseline.load(tmp_path / "a", device="cpu").num_updates == 1
    agent.save(tmp_path / "a")
    assert weights_digest(ReinforceBaseline.load(tmp_path / "a", device="cpu").policy) == weights_digest(agent.policy)


@pytest.mark.parametrize("given", [torch.nn.ReLU, "ReLU"])
def test_an_activation_is_a_class_of_torch_or_its_name_and_comes_back(given, tmp_path):
    agent = Reinforce("MlpPolicy", "CartPole-v1", policy_kwargs={"activation_fn": given}, device="cpu")
    agent.save(tmp_path / "a")
    layers = Reinforce.load(tmp_path / "a", device="cpu").policy.net.mlp_extractor.policy_net
    assert [type(layer).__name__ for layer in layers] == ["Linear", "ReLU"] * 2


CHANGED = dict.fromkeys(("merge_rows", "share_prefixes", "pack_weights", "cuda_graphs"), False)
CHANGED["activation_checkpointing"] = True


@pytest.mark.parametrize("model", [pytest.param("tiny", marks=pytest.mark.slow), "object", "folder"])
def test_switches_the_kind_of_attention_and_the_temperature_come_back(model, tmp_path):
    envs, settings = text_envs(2), {**CHANGED, "attention": "eager", "temperature": 0.6}
    spec = tiny_model("llama") if model == "object" else "tiny"
    if model == "folder":
        tiny_model("llama").save_pretrained(tmp_path / "model")
        spec = tmp_path / "model"
    agent = Reinforce(spec, envs, policy_kwargs=settings, episodes_per_update=2, kl_coef=0.1, device="cpu").learn(4)
    agent.save(tmp_path / "a.zip")  # the suffix is dropped
    again = Reinforce.load(tmp_path / "a", env=envs, device="cpu")
    for policy in (agent.policy, again.policy, again.anchor.reference):
        held = {name: getattr(policy, name) for name in (*CHANGED, "temperature")}
        assert held | {"attention": policy.model.config._attn_implementation} == settings
    (tmp_path / "a" / "policy" / "policy.json").write_text('{"temperature": 1.0, "critic": null}')
    seal(tmp_path / "a")
    assert Reinforce.load(tmp_path / "a", env=envs, device="cpu").policy.merge_rows is True, "written without switches"


def test_there_is_no_logger_before_learning():
    agent = make_agent("control")
    with pytest.raises(RuntimeError, match="no logger"):
        _ = agent.logger
    assert agent.learn(10).logger is not None
    assert agent.get_vec_normalize_env() is None and agent.get_env().env is agent.env


def test_dropout_stays_off_whatever_mode_is_asked_for():
    envs = text_envs(2)
    policy = tiny_policy("gpt2", envs)
    assert isinstance(policy, LanguageModelPolicy)
    assert not any(module.training for module in policy.train().modules())
