"""What has to hold on a CUDA device, a real or a pretend one; see `conftest.py`."""

import gymnasium as gym
import pytest
import torch
from agent_kinds import fitting, with_teacher
from diagonal import slow
from dialogues import talking
from tiny_models import text_envs, tiny_model

import rlenv  # noqa: F401
from agents import AGENTS, PPO, Collector, LanguageModelPolicy, ReinforceBaseline
from agents.policies.base import actor_parameters


def short_envs(slots, **kwargs):
    return text_envs(slots, max_new_tokens=6, **kwargs)


def make_envs(device, slots=32, **kwargs):
    return gym.make_vec("TextGen-v0", num_envs=slots, verifier="arith", device=device, **kwargs)


def test_the_environment_lives_on_the_device_and_equals_the_one_on_the_cpu():
    here, there = make_envs("cpu"), make_envs("cuda")
    obs, _ = here.reset(seed=1)
    obs_cuda, _ = there.reset(seed=1)
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        assert obs_cuda["tokens"].is_cuda
        torch.testing.assert_close(obs_cuda["tokens"].cpu(), obs["tokens"])
        actions = torch.randint(here.task.vocab_size, (32,), generator=generator)
        obs, rewards, *_ = here.step(actions)
        obs_cuda, rewards_cuda, *_ = there.step(actions.cuda())
        torch.testing.assert_close(rewards_cuda.cpu(), rewards)


@pytest.mark.parametrize("dtype", [slow("float32"), "float64"])
def test_acting_equals_training(dtype):
    envs = make_envs("cuda", slots=8)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, "tiny", dtype=dtype).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    rollout = Collector(envs, torch.device("cuda")).collect(policy, 20, generator)
    log_probs = policy.evaluate(rollout)["log_probs"]
    assert (log_probs - rollout.log_probs).abs().max() < (1e-4 if dtype == "float32" else 1e-10)


@pytest.mark.parametrize("kind", ["llama", slow("gpt2"), "replies"])
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_captured_step_chooses_as_an_eager_one(kind, deterministic):
    """Also where some slots have a reply, others go on, and the pass that reads both is not the one captured."""
    rollouts, replies = [], kind == "replies"
    for cuda_graphs in (True, False):
        envs = (talking if replies else short_envs)(8, group_size=4, device="cuda")
        spaces = (envs.single_observation_space, envs.single_action_space)
        model = tiny_model("llama" if replies else kind)
        policy = LanguageModelPolicy(*spaces, model, dtype="float64", cuda_graphs=cuda_graphs).cuda()
        collector = Collector(envs, torch.device("cuda"))
        collector.seed(0)
        generator = torch.Generator("cuda").manual_seed(0)
        for _ in range(2):  # the second rollout replays what the first captured
            rollouts.append(collector.collect(policy, 16 if replies else 8, generator, deterministic))
        assert (rollouts[-1].positions is not None) == replies
        log_probs = policy.evaluate(rollouts[-1])["log_probs"]
        assert (log_probs - rollouts[-1].log_probs)[rollouts[-1].mask].abs().max() < 1e-6
    for captured, eager in zip(rollouts[:2], rollouts[2:], strict=True):
        drawn_alike = deterministic or not replies  # the draws of the two with replies are others
        assert not drawn_alike or torch.equal(captured.actions, eager.actions)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.5)])
def test_captured_steps_follow_an_adapter(dtype, tolerance):
    envs = short_envs(8, group_size=4, device="cuda")
    spaces = (envs.single_observation_space, envs.single_action_space)
    policy = LanguageModelPolicy(*spaces, tiny_model("llama"), dtype=dtype, lora_rank=4).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    for _ in range(3):
        rollout = Collector(envs, torch.device("cuda")).collect(policy, 16, generator)
        log_probs = policy.evaluate(rollout)["log_probs"]
        assert (log_probs - rollout.log_probs).abs().max() < tolerance
        with torch.no_grad():
            for name, weight in policy.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.2, generator=generator)


def test_acting_never_waits_for_the_device():
    envs = make_envs("cuda", slots=8, max_new_tokens=8)
    policy = LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, "tiny").cuda()
    collector, generator = Collector(envs, torch.device("cuda")), torch.Generator("cuda").manual_seed(0)
    collector.collect(policy, 8, generator)
    state = policy.initial_state(8)
    obs, _ = envs.reset()
    actions, _, state = policy.act(obs, state, torch.ones(8, dtype=torch.bool), False, generator)
    obs, *_ = envs.step(actions)
    none = torch.zeros(8, dtype=torch.bool)
    torch.cuda.set_sync_debug_mode("error")
    try:
        policy.act(obs, state, none, False, generator, appended=0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.slow
def test_an_agent_learns_and_its_checkpoint_moves_to_the_cpu(tmp_path):
    agent = ReinforceBaseline("tiny", "TextGen-v0", env_kwargs={"verifier": "arith"}, device="cuda", ent_coef=0.01)
    before = [parameter.detach().clone() for parameter in agent.policy.parameters()]
    agent.learn(3_000)
    assert all(not torch.equal(old, new) for old, new in zip(before, agent.policy.parameters(), strict=True))
    agent.save(tmp_path / "agent")
    loaded = ReinforceBaseline.load(tmp_path / "agent", device="cpu")
    for ours, theirs in zip(agent.policy.parameters(), loaded.policy.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("name", [name if name == "grpo" else slow(name) for name in AGENTS])
def test_every_agent_trains_on_the_device_with_finite_figures(name):
    settings = fitting(name, {"ent_coef": 0.01, "kl_coef": 0.01, "episodes_per_update": 16, "device": "cuda"})
    envs = text_envs(8, group_size=4, device="cuda")
    agent = with_teacher(AGENTS[name](tiny_model("llama"), envs, **settings))
    before = [parameter.detach().clone() for parameter in actor_parameters(agent.policy)]
    agent.learn(total_episodes=32)
    assert all(torch.isfinite(torch.tensor(list(agent.last_metrics.values()))))
    assert not any(torch.equal(old, new) for old, new in zip(before, actor_parameters(agent.policy), strict=True))


@pytest.mark.slow
def test_a_separate_critic_and_parts_of_a_rollout_live_on_the_device():
    settings = {"num_epochs": 2, "num_minibatches": 3, "episodes_per_update": 16, "device": "cuda"}
    agent = PPO(
        "tiny", "TextGen-v0", env_kwargs={"verifier": "arith"}, policy_kwargs={"critic": "separate"}, **settings
    )
    before = [parameter.detach().clone() for parameter in agent.policy.critic.trunk.parameters()]
    agent.learn(total_episodes=32)
    after = agent.policy.critic.trunk.parameters()
    assert all(new.is_cuda and not torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.slow
def test_the_global_generator_is_left_alone():
    torch.cuda.manual_seed(7)
    before = torch.cuda.get_rng_state()
    ReinforceBaseline("tiny", "TextGen-v0", env_kwargs={"verifier": "arith"}, device="cuda").learn(1_000)
    assert torch.equal(before, torch.cuda.get_rng_state())


def test_control_trains_on_the_device():
    agent = PPO("MlpPolicy", "CartPole-v1", episodes_per_update=4, num_envs=2, ent_coef=0.01, device="cuda")
    before = [parameter.detach().clone() for parameter in agent.policy.parameters()]
    agent.learn(total_episodes=4)
    assert all(torch.isfinite(torch.tensor(list(agent.last_metrics.values()))))
    for old, new in zip(before, agent.policy.parameters(), strict=True):
        assert new.is_cuda and not torch.equal(old, new)


def test_a_policy_moves_to_the_cpu_and_back():
    envs = {device: short_envs(8, group_size=4, device=device) for device in ("cuda", "cpu")}
    spaces = (envs["cpu"].single_observation_space, envs["cpu"].single_action_space)
    policy = LanguageModelPolicy(*spaces, tiny_model("llama"), dtype="float64")
    rollouts = []
    for device in ("cuda", "cpu", "cuda"):
        collector = Collector(envs[device], torch.device(device))
        collector.seed(0)
        rollout = collector.collect(policy.to(device), 8, deterministic=True)
        with torch.no_grad():
            log_probs = policy.evaluate(rollout)["log_probs"]
        assert (log_probs - rollout.log_probs).abs().max() < 1e-6
        rollouts.append(rollout.actions.cpu())
    assert all(torch.equal(rollouts[0], other) for other in rollouts[1:])


@pytest.mark.parametrize("deterministic", [True, slow(False)])
def test_a_second_evaluation_captures_nothing(deterministic, monkeypatch):
    captures, capture = [], torch.cuda.graph
    monkeypatch.setattr(torch.cuda, "graph", lambda *args, **kwargs: captures.append(1) or capture(*args, **kwargs))
    agent = PPO(tiny_model("llama"), short_envs(4, device="cuda"), episodes_per_update=4, device="cuda")
    played = []
    for seed in (0, 1, 1):
        played.append(agent.evaluate(agent.env, 8, deterministic, seed)[1].actions)
        captures.append(0)
    assert captures == [1] * (len(captures) - 3) + [0, 0, 0] and captures[0] == 1
    assert torch.equal(played[1], played[2]) and not torch.equal(played[0], played[1])


@pytest.mark.parametrize("starts", ["cpu", "cuda"])
def test_single_predictions_and_starts_on_either_device(starts):
    agent = PPO(tiny_model("llama"), short_envs(4, device="cuda"), episodes_per_update=4, device="cuda")
    obs, _ = agent.env.reset(seed=0)
    actions, state = agent.predict(obs, deterministic=True)
    begun = torch.ones(4, dtype=torch.bool, device=starts)
    again, _, _ = agent.policy.act(obs, None, begun, True, playing=begun)
    assert again.tolist() == actions.tolist()
    obs, *_ = agent.env.step(again)
    following, _ = agent.predict(obs, state, deterministic=True)
    fresh, _ = agent.predict(obs, deterministic=True)
    assert following.tolist() == fresh.tolist()
