"""Weights, gradients and optimizer state dealt out to processes: loaded in parts, updated as in a single process."""

import contextlib
import copy
import gc
from dataclasses import replace

import pytest
import torch
from gaps import gapped
from tiny_models import text_envs, tiny_policy
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, LlamaConfig

from agents import AGENTS, Agent, processes
from agents.fsdp import full, gathered, local, whole
from agents.processes import alone
from agents.rollout import join
from agents.training.supervised import WarmStart

SETTINGS = {"episodes_per_update": 16, "micro_batch_tokens": 22, "learning_rate": 1e-2, "gamma": 0.9}
CASES = {  # agent, its settings, the policy's
    "GRPO": ("grpo", {}, {}),
    "REINFORCE": ("reinforce", {}, {}),
    "tied embeddings, recomputed": ("rloo", {}, {"name": "gpt2", "activation_checkpointing": True}),
    "PPO with a separate critic": ("ppo", {"num_minibatches": 2, "kl_coef": 0.1}, {"critic": "separate"}),
    "PPO with a head": ("ppo", {"num_epochs": 2}, {"critic": "head"}),
    "exact KL in the loss": ("grpo", {"kl_coef": 0.3, "kl_in": "loss", "kl_estimator": "exact", "ent_coef": 0.1}, {}),
    "exact KL in the reward": ("rloo", {"kl_coef": 0.3, "kl_estimator": "exact", "weight_decay": 0.1}, {}),
    "score norms": ("reinforce-baseline", {"baseline": "optimal-token"}, {}),
    "a critic that warms up": ("vapo", {"value_warmup": 1, "length_alpha": 1.0}, {"critic": "separate"}),
    "a head that warms up": ("vapo", {"value_warmup": 1, "length_alpha": 1.0}, {"critic": "head"}),
    "an adapter": ("grpo", {"kl_coef": 0.1, "kl_in": "loss"}, {"lora_rank": 2}),
    "a teacher": ("distillation", {}, {}),
    "an adapter with a critic": ("ppo", {"kl_coef": 0.1}, {"lora_rank": 2, "critic": "separate"}),
}


def sampled():
    """Return the same 16 episodes in every process, half of which have replies, from a policy that no agent has."""
    with alone():
        policy = tiny_policy("llama", text_envs(num_envs=4, group_size=4), seed=2)
        parts = [gapped(policy, 8), gapped(policy, 8, gaps=False, seed=1)]
    return join([replace(part, groups=part.groups + 2 * number) for number, part in enumerate(parts)], True)


def an_agent(case, shard, **more):
    name, settings, of_policy = CASES[case]
    envs = text_envs(num_envs=4, group_size=4)
    torch.manual_seed(0)  # of the critic's head and the adapter
    policy = tiny_policy(envs=envs, **{"name": "llama", **of_policy})
    for parameter in policy.parameters():
        if parameter.requires_grad and not parameter.any():  # B of an adapter, with which its A has a gradient
            torch.nn.init.normal_(parameter, std=0.1)
    if name == "distillation":
        more["teacher"] = tiny_policy("llama", envs, seed=1)
    return AGENTS[name](policy, envs, device="cpu", shard=shard, **SETTINGS, **settings, **more)


def weights_of(agent):
    trained = [p for p in agent.policy.parameters() if p.requires_grad]
    return torch.cat([full(p).detach().flatten().clone() for p in trained])


def updated(case, shard):
    """Return the weights after three updates on the same episodes, and the metrics of each."""
    agent, rollout = an_agent(case, shard), sampled()
    agent.anchor.freeze_reference(agent.policy)
    metrics = []
    for _ in range(3):
        with gathered(agent.policy), torch.no_grad():  # as if this policy had sampled them
            rollout.log_probs = agent.policy.evaluate(rollout)["log_probs"]
        metrics.append(agent.update(rollout))
    return weights_of(agent), metrics


def difference(case):
    """Return how far sharded weights are from a single process's, how far those moved, and the metrics of both."""
    together, metrics = updated(case, shard=True)
    with alone():
        start = weights_of(an_agent(case, shard=False))
        single, expected = updated(case, shard=False)
    pairs = [(mine[key], theirs[key]) for mine, theirs in zip(metrics, expected, strict=True) for key in theirs]
    return float((together - single).abs().max()), float((single - start).abs().max()), pairs


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_two_processes_with_shards_make_the_updates_of_one(two, case):
    for distance, moved, metrics in two(difference, case):
        assert distance < 1e-10
        assert moved > 1e-3
        for found, expected in metrics:
            assert found == pytest.approx(expected, rel=1e-7, abs=1e-10)


# Passes.


def no_part(case, episodes):
    """Return the distance of an update on few episodes of which a single one has a reward: one process has no part."""

    def step(shard):
        agent, rollout = an_agent(case, shard), sampled().select(slice(episodes))
        with gathered(agent.policy), torch.no_grad():
            rollout.log_probs = agent.policy.evaluate(rollout)["log_probs"]
        agent.update(replace(rollout, rewards=rollout.rewards.where(torch.arange(episodes)[:, None] == 0, 0)))
        return weights_of(agent)

    together = step(True)
    with alone():
        return float((together - step(False)).abs().max())


@pytest.mark.slow
@pytest.mark.parametrize(("case", "episodes"), [("REINFORCE", 16), ("PPO with a head", 1)])
def test_a_process_may_have_no_part(two, case, episodes):
    assert max(two(no_part, case, episodes)) < 1e-10


# Acting.


def text_agent(name="rloo", policy="tiny", **settings):
    chosen = {"episodes_per_update": 8, "seed": 3, "device": "cpu", "learning_rate": 1e-2, "shard": True, **settings}
    return AGENTS[name](policy, text_envs(num_envs=2, group_size=2), **chosen)


def learned(updates):
    """Return how often weights were gathered in so many updates, the gap to acting, and whether the weights moved."""
    agent, gathered_in = text_agent(), []
    unshard, before = agent.policy.unshard, weights_of(agent)
    agent.policy.unshard = lambda: gathered_in.append(agent.num_updates) or unshard()
    gaps = [metrics["train/logp_gap_max"] for _, metrics in agent.updates(total_episodes=8 * updates)]
    return len(set(gathered_in)), max(gaps), bool((weights_of(agent) != before).any())


@pytest.mark.slow
def test_weights_are_gathered_once_per_rollout_and_are_those_that_were_trained(two):
    for rollouts, gap, moved in two(learned, 3):
        assert rollouts == 3
        assert gap < 1e-4
        assert moved


# Memory.


def tensor_bytes():
    """Return the size of all tensors of this process."""
    gc.collect()
    found = [each for each in gc.get_objects() if isinstance(each, torch.Tensor) and each.device.type != "meta"]
    storages = [local(each).untyped_storage() for each in found]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def held(shard, lora_rank):
    """Return the weights and moments that this process has after two updates, those of the policy, and all bytes."""
    before = tensor_bytes()
    with contextlib.nullcontext() if shard else alone():
        agent = text_agent(shard=shard, policy_kwargs={"lora_rank": lora_rank})
        agent.learn(total_episodes=16)
    mine = sum(local(p).numel() for p in agent.policy.parameters())
    states = agent.optimizer.state.values()
    moments = sum(local(state[name]).numel() for state in states for name in ("exp_avg", "exp_avg_sq"))
    return mine, moments, sum(p.numel() for p in agent.policy.parameters()), tensor_bytes() - before


@pytest.mark.slow
@pytest.mark.parametrize("lora_rank", [None, 2])
def test_a_process_holds_its_share_of_weights_and_moments(two, lora_rank):
    ((first, moments, whole, used), (second, others, _, others_use)) = two(held, True, lora_rank)
    ((_, full, _, plain), _) = two(held, False, lora_rank)
    assert first + second == whole
    assert moments + others == full
    assert max(first, second) < 0.51 * whole
    assert max(moments, others) < 0.51 * full
    assert max(used, others_use) < 0.6 * plain


# Checkpoints.


def states(agent):
    """Return the whole weights and, in the main process, the optimizer's whole state."""
    optimizer = whole(agent.policy_optimizer.state_dict())
    return weights_of(agent), copy.deepcopy(optimizer) if processes.is_main() else None


def saved(path, options):
    """Train, save, train on; return the state at the first moment and the weights at the second."""
    agent = text_agent(**options)
    run = agent.updates(total_episodes=32)
    for _ in range(2):
        next(run)
    run.close()
    agent.save(path)
    middle = states(agent)
    agent.learn(total_episodes=16, reset_num_timesteps=False)
    return middle, weights_of(agent)


def load(path, shard):
    return Agent.load(path, text_envs(num_envs=2, group_size=2), "cpu", continue_env=True, shard=shard)


def continued(path, shard):
    agent = load(path, shard)
    middle = states(agent)
    agent.learn(total_episodes=16, reset_num_timesteps=False)
    return middle, weights_of(agent)


def equal(a, b):
    """Whether two nested states are the same."""
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)


SAVED = {
    "a model and its reference": {"kl_coef": 0.1},
    "PPO in bfloat16": {"name": "ppo", "policy_kwargs": {"dtype": "bfloat16", "critic": "separate"}},
    "an adapter and its reference": {"kl_coef": 0.1, "policy_kwargs": {"lora_rank": 2}},
    "an adapter of PPO": {"name": "ppo", "policy_kwargs": {"lora_rank": 2, "critic": "separate"}},
}


@pytest.mark.slow
@pytest.mark.parametrize("options", SAVED.values(), ids=SAVED)
def test_a_checkpoint_continues_bit_for_bit_and_loads_on_any_number(two, four, tmp_path, options):
    path = str(tmp_path / "saved")
    ((weights, optimizer), end), *_ = two(saved, path, options)
    for (found, state), last in two(continued, path, True):
        assert torch.equal(found, weights) and torch.equal(last, end)
        assert state is None or equal(state, optimizer)
    single = states(load(path, shard=False))
    for found, state in (single, *(middle for middle, _ in four(continued, path, True))):
        assert torch.equal(found, weights)
        assert state is None or equal(state, optimizer)
    assert torch.equal(two(continued, path, False)[0][0][0], weights), "as replicas"


def warm(agent):
    return WarmStart(agent.policy, lambda size: sampled(), 4, 16, 1e-2, micro_batch_size=4)


def half_warm(path):
    """Save in the middle of a warm start; return what the whole one comes to."""
    agent = text_agent()
    loop = warm(agent)
    loop.run(lambda step, loss: step < 1)
    agent.extra_state = {"loop": loop.state_dict()}
    agent.save(path)
    return loop.run(), weights_of(agent)


def warm_again(path, shard):
    with contextlib.nullcontext() if shard else alone():
        agent = load(path, shard)
        loop = warm(agent)
        loop.load_state_dict(agent.extra_state["loop"])
        return loop.run(), weights_of(agent)


@pytest.mark.slow
def test_a_warm_start_is_continued(two, tmp_path):
    path = str(tmp_path / "saved")
    expected = two(half_warm, path)
    assert equal(two(warm_again, path, True), expected)
    losses, _ = warm_again(path, False)
    assert losses == pytest.approx(expected[0][0], rel=1e-5)


# What is refused.


REFUSED = {
    "another policy": (
        lambda: AGENTS["ppo"]("MlpPolicy", "CartPole-v1", episodes_per_update=8, num_envs=4, shard=True, device="cpu"),
        ("shard is for language models", "ControlPolicy"),
    ),
    "a policy of another agent": (lambda: text_agent(policy=text_agent().policy), ("dealt out already", "load")),
    "weights by name": (lambda: text_agent().get_parameters(), ("get_parameters", "save and load")),
}


def refusal(of):
    with pytest.raises(ValueError) as error:
        REFUSED[of][0]()
    return str(error.value)


@pytest.mark.parametrize("of", REFUSED)
def test_every_process_refuses(two, of):
    for said in two(refusal, of):
        assert all(word in said for word in REFUSED[of][1])


# Loading: only the main process has all of a policy.


V = 10  # of the text environments


def agent_of(model, shard=True, agent="rloo", **policy_kwargs):
    envs = text_envs(num_envs=2, group_size=2)
    settings = {"episodes_per_update": 8, "seed": 3, "device": "cpu", "learning_rate": 1e-2}
    return AGENTS[agent](model, envs, shard=shard, policy_kwargs=policy_kwargs, kl_coef=0.1, **settings)


class Peak(TorchDispatchMode):
    """Notes the most bytes of tensors that operations read or made and that existed at one time, those of files too."""

    def __init__(self):
        super().__init__()
        self.alive = {}
        self.most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for each in tree_leaves((args, kwargs, made)):
            if isinstance(each, torch.Tensor) and each.device.type != "meta":
                self.note(local(each))
        self.alive = {key: found for key, found in self.alive.items() if not found[0].expired()}
        self.most = max(self.most, sum(size for _, size in self.alive.values()))
        return made

    def note(self, tensor):
        storage = tensor.untyped_storage()
        self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())


def untied(folder):
    config = LlamaConfig(
        vocab_size=V, hidden_size=64, intermediate_size=256, num_hidden_layers=6, num_attention_heads=4,
        max_position_embeddings=64,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def peak_of(path, lora_rank):
    """Return the most bytes at one time, those of this process's part, of the whole, and of the largest unit."""
    with Peak() as peak:
        agent = agent_of(path, lora_rank=lora_rank)
        agent.anchor.freeze_reference(agent.policy)
    weights = [*agent.policy.parameters(), *agent.anchor.reference.parameters()]
    layer = agent.policy.model.model.layers[0]
    part, total = sum(local(p).nbytes for p in weights), sum(p.nbytes for p in weights)
    return peak.most, part, total, sum(p.nbytes for p in layer.parameters())


@pytest.mark.parametrize("lora_rank", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_only_the_main_process_has_the_whole_model_while_it_is_loaded(two, tmp_path, lora_rank):
    untied(tmp_path)
    (main, _, total, _), (other, part, _, unit) = two(peak_of, str(tmp_path), lora_rank)
    assert main > total / 2
    assert other < part + 4 * unit < total
