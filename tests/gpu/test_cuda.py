"""What has to hold on a CUDA device, a real or a pretend one; see `conftest.py`."""

import pytest
import torch
from agent_kinds import fitting, with_teacher
from diagonal import slow
from dialogues import talking
from tiny_models import text_envs, tiny_model

from rlenv.agents import AGENTS, PPO, Collector, LanguageModelPolicy, ReinforceBaseline
from rlenv.agents.devices import to_device, to_host
from rlenv.agents.language import attention as masks
from rlenv.agents.policies.base import actor_parameters

SUMS = {"env_kwargs": {"verifier": "arith"}, "episodes_per_update": 16}
IN_PARTS = {"num_epochs": 2, "num_minibatches": 3, "policy_kwargs": {"critic": "separate"}}


def short_envs(slots=8, device="cuda", **kwargs):
    return text_envs(slots, **{"max_new_tokens": 6, "group_size": 4, "device": device, **kwargs})


def policy_on(envs, kind="llama", dtype="float64", **settings):
    spaces = envs.single_observation_space, envs.single_action_space
    return LanguageModelPolicy(*spaces, tiny_model(kind), dtype=dtype, **settings).cuda()


def rollouts(policy, envs, count=1, episodes=8, deterministic=False, device="cuda"):
    """Return rollouts in a row, each compared with what training says of it."""
    collector, generator = Collector(envs, torch.device(device)), torch.Generator(device).manual_seed(0)
    collector.seed(0)
    for _ in range(count):
        rollout = collector.collect(policy, episodes, generator, deterministic)
        log_probs = policy.evaluate(rollout)["log_probs"].detach()
        precision = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.5}[policy.model.dtype]
        assert (log_probs - rollout.log_probs)[rollout.mask].abs().max() < precision
        yield rollout


@pytest.fixture
def captures(monkeypatch):
    """What was captured so far, as a list of ones."""
    found, capture = [], torch.cuda.graph
    monkeypatch.setattr(torch.cuda, "graph", lambda *args, **kwargs: found.append(1) or capture(*args, **kwargs))
    return found


def learns(agent, parameters, where, **amount):
    """Train; all figures are finite, and all of these parameters are on the device and change."""
    before = [parameter.detach().clone() for parameter in parameters()]
    agent.learn(**amount)
    assert all(torch.isfinite(torch.tensor(list(agent.last_metrics.values()))))
    for old, new in zip(before, parameters(), strict=True):
        assert new.device.type == where and not torch.equal(old, new)


@pytest.mark.parametrize(
    ("kind", "deterministic"),
    [("replies", True), ("llama", False), slow("replies", False), slow("llama", True), slow("gpt2", False)],
)
def test_a_captured_step_chooses_as_an_eager_one(kind, deterministic):
    """Also where some slots have a reply, others go on, and the pass that reads both is not the one captured."""
    found, replies = [], kind == "replies"
    drawn_alike = deterministic or not replies  # elsewhere an eager one draws others, and each is only like training
    for cuda_graphs in (True, False) if drawn_alike else (True,):
        envs = talking(4, group_size=4, max_turns=3, device="cuda") if replies else short_envs()
        policy = policy_on(envs, "llama" if replies else kind, cuda_graphs=cuda_graphs)
        found += rollouts(policy, envs, 2, 8, deterministic)  # the second replays what the first captured
        assert (found[-1].positions is not None) == replies
    for captured, eager in zip(found[:2], found[2:], strict=drawn_alike):
        assert torch.equal(captured.actions, eager.actions)


@pytest.mark.parametrize(
    ("dtype", "rank"), [("float64", None), slow("float32", 4), slow("bfloat16", 4)], ids=["whole", "lora", "half"]
)
def test_acting_equals_training_as_captured_steps_follow_the_weights(dtype, rank, captures):
    envs = short_envs(max_new_tokens=12)
    policy = policy_on(envs, dtype=dtype, lora_rank=rank)
    log_probs = []
    for rollout in rollouts(policy, envs, 3, 20):
        log_probs.append(rollout.log_probs.sum())
        captures.append(0)
        with torch.no_grad():
            for weight in actor_parameters(policy):
                noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(captures))).cuda()
                weight.add_(0.2 * noise.to(weight.dtype))
    assert captures[:2] == [1, 0] and captures[-2:] == [0, 0]
    assert len({float(each) for each in log_probs}) == 3


def test_acting_never_waits_for_the_device():
    envs = short_envs(max_new_tokens=8)
    policy = policy_on(envs)
    list(rollouts(policy, envs))
    generator, state = torch.Generator("cuda").manual_seed(0), policy.initial_state(8)
    obs, _ = envs.reset()
    actions, _, state = policy.act(obs, state, torch.ones(8, dtype=torch.bool), False, generator)
    obs, *_ = envs.step(actions)
    none = torch.zeros(8, dtype=torch.bool)
    torch.cuda.set_sync_debug_mode("error")
    try:
        policy.act(obs, state, none, False, generator, appended=0)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("where", ["mps", slow("cuda")])
def test_an_agent_learns_and_is_evaluated_there_and_moves_to_the_cpu(where, tmp_path):
    agent = ReinforceBaseline("tiny", "TextGen-v0", ent_coef=0.01, device=where, **SUMS)
    learns(agent, agent.policy.parameters, where, total_episodes=16)
    figures, _ = agent.evaluate("TextGen-v0", 8, seed=0)
    agent.save(tmp_path / "agent")
    loaded = ReinforceBaseline.load(tmp_path / "agent", device="cpu")
    assert figures["episodes"] == 8
    assert loaded.evaluate("TextGen-v0", 8, seed=0)[0]["mean_reward"] == pytest.approx(figures["mean_reward"])
    for ours, theirs in zip(agent.policy.parameters(), loaded.policy.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("where", ["cuda", slow("mps")])
@pytest.mark.parametrize("name", [name if name == "grpo" else slow(name) for name in AGENTS])
def test_every_agent_trains_on_the_device_with_finite_figures(name, where):
    settings = fitting(name, {"ent_coef": 0.01, "kl_coef": 0.01, "episodes_per_update": 8, "device": where})
    settings |= IN_PARTS if name == "ppo" else {}
    agent = with_teacher(AGENTS[name](tiny_model("llama"), short_envs(device=where), **settings))
    learns(agent, agent.policy.parameters, where, total_episodes=16)


@pytest.mark.parametrize("where", ["cuda", slow("mps")])
def test_control_trains_on_the_device(where):
    settings = {"episodes_per_update": 2, "num_envs": 2, "num_epochs": 2, "ent_coef": 0.01}
    agent = PPO("MlpPolicy", "CartPole-v1", device=where, **settings)
    learns(agent, agent.policy.parameters, where, total_episodes=2)


@pytest.mark.parametrize("where", ["mps"])
def test_numbers_go_there_in_single_precision_and_come_back_as_they_are(where):
    there = to_device(torch.tensor([0.1, 0.2], dtype=torch.float64), torch.device(where))
    assert there.dtype is torch.float32 and there.device.type == where
    large = to_device(torch.tensor([2**62 + 1, -1]), torch.device(where))
    here = to_host(large, torch.ones(1), there)
    assert [tensor.tolist() for tensor in here] == [[2**62 + 1, -1], [1.0], torch.tensor([0.1, 0.2]).tolist()]


def test_a_policy_moves_to_the_cpu_and_back():
    """And the environment on the device asks and pays as the one on the CPU."""
    played = []
    policy = policy_on(short_envs(2, "cpu", group_size=2))
    for device in ("cuda", "cpu", "cuda"):
        envs = short_envs(2, device, group_size=2)
        [rollout] = rollouts(policy.to(device), envs, 1, 4, deterministic=True, device=device)
        tokens = rollout.observations["tokens"]
        assert rollout.rewards.device.type == tokens.device.type == device
        played.append(torch.cat([tokens, rollout.actions, rollout.rewards], 1).cpu())
    assert torch.equal(played[0], played[1]) and torch.equal(played[0], played[2])


@pytest.mark.parametrize("deterministic", [True, slow(False)])
def test_a_second_evaluation_captures_nothing(deterministic, captures):
    """And predictions go on from a state as from all that was said."""
    agent = PPO(tiny_model("llama"), short_envs(4), episodes_per_update=4, device="cuda")
    played = []
    for seed in (0, 1, 1):
        played.append(agent.evaluate(agent.env, 8, deterministic, seed)[1].actions)
        captures.append(0)
    assert captures == [1] * (len(captures) - 3) + [0, 0, 0] and captures[0] == 1
    assert torch.equal(played[1], played[2]) and not torch.equal(played[0], played[1])
    obs, _ = agent.env.reset(seed=0)
    actions, state = agent.predict(obs, deterministic=True)
    obs, *_ = agent.env.step(actions)
    following, fresh = (agent.predict(obs, each, deterministic=True)[0] for each in (state, None))
    assert following.tolist() == fresh.tolist()


@pytest.mark.parametrize(("kind", "graphs"), [("llama", True), slow("gpt2", False)])
def test_masks_are_added_and_made_once_per_step_and_no_attention_is_computed_by_cudnn(kind, graphs, monkeypatch):
    """And others that compute attention keep cuDNN."""
    seen, attention, made, added = [], torch.nn.functional.scaled_dot_product_attention, [], masks.added_mask

    def watched(q, k, v, attn_mask=None, **rest):
        seen.append((torch.backends.cuda.cudnn_sdp_enabled(), None if attn_mask is None else attn_mask.dtype))
        return attention(q, k, v, attn_mask=attn_mask, **rest)

    envs = short_envs()
    policy = policy_on(envs, kind, activation_checkpointing=True, cuda_graphs=graphs)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", watched)
    monkeypatch.setattr(masks, "added_mask", lambda *args: made.append(added(*args)) or made[-1])
    [rollout] = rollouts(policy, envs)
    acted = len(seen)
    log_probs = policy.evaluate(rollout)["log_probs"]
    passed = len(seen)
    log_probs.sum().backward()
    assert 0 < acted < passed < len(seen), "prompts and steps, a training pass, and its layers again"
    assert not any(cudnn for cudnn, _ in seen) and torch.backends.cuda.cudnn_sdp_enabled()
    given = {dtype for _, dtype in seen}
    assert made and torch.bool not in given and torch.float64 in given
    assert all(mask.stride(-2) % masks.ALIGNMENT == 0 for mask in made)
