"""LoRA: a frozen base model, an adapter that is trained, a reference on the same base, and what is written of it."""

import json

import peft
import pytest
import torch
from diagonal import slow
from identity_checks import (
    EXACT,
    ROUNDING,
    assert_close,
    check_acting_equals_training,
    check_plain_reference,
    collect,
)
from tiny_models import ALPHABET, text_envs, tiny_model, tiny_policy
from transformers import AutoModelForCausalLM

from agents import A2C, RLOO, Agent, LanguageModelPolicy
from agents.language import adapters
from agents.policies.base import actor_parameters, weights_digest
from rlenv.tokenizer import character_tokenizer

VOCAB = len(ALPHABET) + 2
models = pytest.mark.parametrize("name", ["gpt2", "llama"])
wrapped_by_peft = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # asked by peft
SMALL = {"episodes_per_update": 8, "num_envs": 4, "group_size": 2, "learning_rate": 1e-2, "device": "cpu"}


def few_envs():
    return text_envs(4, group_size=2, max_new_tokens=8)


def train_a_bit(policy, seed=0):
    """Give an adapter, which starts with B = 0, an effect."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if "lora_B" in name:
                weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) * 0.2)
    return policy


def adapted(name="llama", envs=None, dtype="float64", rank=4, trained=True, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = tiny_policy(name, envs or text_envs(1), dtype=dtype, lora_rank=rank, **kwargs)
    return train_a_bit(policy) if trained else policy


def spaces_of(envs):
    return envs.single_observation_space, envs.single_action_space


def base_folder(path, name="llama", seed=0):
    """Write a model with a tokenizer."""
    tiny_model(name, VOCAB, seed).save_pretrained(path)
    character_tokenizer(ALPHABET).save_pretrained(path)
    return path


def agent_on(model, envs, cls=RLOO, **kwargs):
    policy_kwargs = kwargs.pop("policy_kwargs", {"lora_rank": 4})
    return cls(model, envs, policy_kwargs=policy_kwargs, **{**SMALL, **kwargs})


def own_bytes(model):
    """Return the addresses of all weights."""
    return {weight.data_ptr() for weight in model.parameters()}


# Acting is training.


@pytest.mark.parametrize(
    ("name", "dtype", "tolerance"),
    [("llama", "float64", EXACT), ("gpt2", "float32", ROUNDING), slow("mistral", "float64", EXACT)],
)
def test_a_policy_with_an_adapter_acts_as_it_trains(name, dtype, tolerance):
    envs = few_envs()
    policy = adapted(name, envs, dtype)
    check_plain_reference(policy, envs, tolerance)


def add_in_data(weight, generator):
    weight.data.add_(torch.randn(weight.shape, generator=generator, dtype=torch.float64) * 0.2)


def test_a_kept_state_follows_such_a_change_once_all_slots_start_anew():
    envs = few_envs()
    policy = adapted("llama", envs)
    obs, _ = envs.reset(seed=0)
    starts = torch.ones(4, dtype=torch.bool)
    first, state = policy.distribution(obs, None, starts)
    _, _, acting = policy.act(obs, None, starts)
    for name, weight in policy.named_parameters():
        if "lora_" in name:
            add_in_data(weight, torch.Generator().manual_seed(2))
    wanted = policy.model(obs["tokens"][:, : int(obs["length"].max())]).logits
    wanted = wanted[torch.arange(4), obs["length"] - 1, :VOCAB].log_softmax(-1)
    seen, _ = policy.distribution(obs, state, starts)
    assert (seen - first).abs().max() > 0.01
    assert_close(seen, wanted, EXACT, "what play shows")
    actions, log_probs, _ = policy.act(obs, acting, starts)
    assert_close(log_probs, wanted.gather(1, actions[:, None])[:, 0], EXACT, "what acts")


# The reference.


@pytest.mark.parametrize(("name", "dtype"), [("gpt2", "float32"), ("llama", "bfloat16")])
def test_the_reference_of_a_fresh_adapter_is_the_base_bit_for_bit(name, dtype):
    envs = few_envs()
    policy = adapted(name, envs, dtype, trained=False)
    base = tiny_policy(name, envs, dtype=dtype)
    reference = policy.frozen_copy()
    train_a_bit(policy)
    rollout = collect(policy, envs, 8)
    assert torch.equal(reference.evaluate(rollout)["log_probs"], base.evaluate(rollout)["log_probs"])
    assert own_bytes(reference) <= own_bytes(policy), "no second copy of the base"
    assert weights_digest(reference) == weights_digest(base)


def test_the_reference_of_a_trained_adapter_is_a_copy_of_it_on_the_same_base():
    envs = few_envs()
    policy = adapted("llama", envs)
    rollout = collect(policy, envs, 8)
    reference, before = policy.frozen_copy(), policy.evaluate(rollout)["log_probs"].detach()
    train_a_bit(policy, seed=1)
    assert torch.equal(reference.evaluate(rollout)["log_probs"], before)
    assert not torch.equal(policy.evaluate(rollout)["log_probs"], before)
    assert {name for name, weight in reference.named_parameters() if weight.data_ptr() not in own_bytes(policy)} == {
        name for name, _ in policy.named_parameters() if "lora_" in name
    }
    check_acting_equals_training(reference, envs, EXACT, episodes=12)
    assert not any(weight.requires_grad for weight in reference.parameters())
    assert all(weight.requires_grad == ("lora_" in name) for name, weight in policy.named_parameters())


# What is trained.


def test_a_separate_critic_has_an_adapter_of_its_own_on_the_same_base():
    """Which weights are trained beside it is said of every agent in test_adapters_and_precision.py."""
    envs = few_envs()
    policy = adapted("llama", envs, trained=False, critic="separate")
    agent = A2C(policy, envs, **SMALL)
    base = policy.adapter.base_digest
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    agent.learn(total_episodes=16)
    changed = {name for name, weight in policy.state_dict().items() if not torch.equal(weight, before[name])}
    assert changed and all("lora_" in name or name.startswith("critic.head") for name in changed)
    assert any(name.startswith("critic.trunk") for name in changed)
    assert policy.adapter.base_digest == base == weights_digest(adapters.without_adapter(policy.model))
    base_of_trunk = {p.data_ptr() for name, p in policy.critic.trunk.named_parameters() if "lora_" not in name}
    assert base_of_trunk <= own_bytes(policy.model)


@pytest.mark.parametrize(
    ("targets", "wanted"), [("q_proj, v_proj", {"q_proj", "v_proj"}), (None, None), ("all-linear", None)]
)
def test_targets_say_which_layers_have_an_adapter(targets, wanted):
    every = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    layers = [name.split(".")[-1] for name, _ in adapters.adapted_layers(adapted(lora_targets=targets).model)]
    assert set(layers) == (wanted or every) and len(layers) == 2 * len(wanted or every)


# Checkpoints.


def test_a_checkpoint_names_the_base_and_keeps_the_adapter(tmp_path):
    envs = few_envs()
    agent = agent_on(base_folder(tmp_path / "base"), envs, kl_coef=0.1)
    agent.learn(total_episodes=8)
    agent.save(tmp_path / "agent")
    files = {path.relative_to(tmp_path / "agent").as_posix() for path in (tmp_path / "agent").rglob("*.safetensors")}
    assert files == {"policy/model/adapter_model.safetensors", "training.safetensors"}
    again = Agent.load(tmp_path / "agent", env=envs, device="cpu")
    assert weights_digest(again.policy) == weights_digest(agent.policy)
    assert weights_digest(again.anchor.reference) == weights_digest(agent.anchor.reference)
    assert own_bytes(again.anchor.reference) <= own_bytes(again.policy)
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "agent" / "policy" / "model", dtype=torch.float32)
    ids = torch.arange(VOCAB)[None]
    assert_close(read(ids).logits, again.policy.model(ids).logits, ROUNDING, "transformers' reading and ours")


def test_a_base_without_a_name_is_written_once(tmp_path):
    envs = few_envs()
    policy = adapted("llama", envs, "float32", critic="separate")
    agent = A2C(policy, envs, kl_coef=0.1, **SMALL)
    agent.learn(total_episodes=8)
    agent.save(tmp_path / "agent")
    files = {path.relative_to(tmp_path / "agent").as_posix() for path in (tmp_path / "agent").rglob("*.safetensors")}
    assert files == {
        "policy/critic.safetensors",
        "policy/model/adapter_model.safetensors",
        "policy/model/base/model.safetensors",
        "reference/model/adapter_model.safetensors",
        "training.safetensors",
    }
    critic = tmp_path / "agent" / "policy" / "critic.safetensors"
    assert critic.stat().st_size < (tmp_path / "agent/policy/model/base/model.safetensors").stat().st_size
    again = A2C.load(tmp_path / "agent", env=envs, device="cpu")
    for ours, theirs in ((again.policy, policy), (again.anchor.reference, agent.anchor.reference)):
        assert weights_digest(ours) == weights_digest(theirs)
    again.save(tmp_path / "agent")  # replaces the folder that the base was read from
    assert weights_digest(A2C.load(tmp_path / "agent", env=envs, device="cpu").policy) == weights_digest(policy)


def test_a_base_that_has_changed_or_gone_is_named(tmp_path):
    envs = few_envs()
    base = base_folder(tmp_path / "base")
    agent_on(base, envs).save(tmp_path / "agent")
    base_folder(base, seed=1)
    with pytest.raises(ValueError, match=r"the base model '.*base' is not the one that the adapter .* was trained on"):
        Agent.load(tmp_path / "agent", env=envs, device="cpu")
    base.rename(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"the base model '.*base' of the adapter in '.*' is gone; put it back"):
        Agent.load(tmp_path / "agent", env=envs, device="cpu")


def test_training_goes_on_from_the_adapter_in_a_folder(tmp_path):
    envs = few_envs()
    first = agent_on(base_folder(tmp_path / "base"), envs)
    first.learn(total_episodes=8)
    first.save(tmp_path / "agent")
    folder = tmp_path / "agent" / "policy" / "model"
    agent = agent_on(folder, envs, policy_kwargs={}, kl_coef=0.1)
    assert weights_digest(agent.policy) == weights_digest(first.policy)
    assert agent.policy.adapter.base_name == str((tmp_path / "base").resolve())
    agent.learn(total_episodes=8)
    rollout = collect(agent.policy, envs, 8)
    log_probs = first.policy.evaluate(rollout)["log_probs"]
    assert torch.equal(agent.anchor.reference.evaluate(rollout)["log_probs"], log_probs), "the adapter is on in it"
    with pytest.raises(ValueError, match="has an adapter already, which training continues; omit lora_rank"):
        agent_on(folder, envs)


# Export, and peft's own files.


@torch.no_grad()
def greedy(model, ids):
    return model.generate(ids, max_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=1)


@models
def test_a_merged_export_is_the_adapter(name, tmp_path):
    policy = adapted(name, dtype="float32")
    policy.tokenizer = character_tokenizer(ALPHABET)
    policy.export(tmp_path / "plain")
    assert not (tmp_path / "plain" / adapters.CONFIG).exists() and (tmp_path / "plain/tokenizer_config.json").exists()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype=torch.float32)
    assert not adapters.adapted_layers(plain)
    ids = torch.randint(VOCAB, (6, 10), generator=torch.Generator().manual_seed(0))
    assert_close(plain(ids).logits, policy.model(ids).logits, 1e-5, "the merged model and the adapter")
    assert torch.equal(greedy(plain, ids), greedy(policy.model, ids))


def test_a_merged_export_of_half_precision_is_float32_and_loses_nothing(tmp_path):
    """Rounded to 16 bits, W + s B A would be W wherever the adapter has moved little."""
    policy = adapted("llama", dtype="bfloat16")
    policy.export(tmp_path / "plain")
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype="auto")
    layer = policy.model.model.layers[0].self_attn.q_proj
    a, b = (part["default"].weight.float() for part in (layer.lora_A, layer.lora_B))
    wanted = layer.base_layer.weight.float() + 2.0 * b @ a
    assert torch.equal(plain.model.layers[0].self_attn.q_proj.weight, wanted)
    assert policy.model.dtype is torch.bfloat16, "the policy itself stays as it is"


@wrapped_by_peft
@models
def test_peft_reads_the_adapter_alone(name, tmp_path):
    policy = adapted(name, dtype="float32")
    policy.export(tmp_path / "adapter", merge=False)
    base = tiny_model(name, VOCAB)
    theirs = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    ids = torch.arange(VOCAB)[None]
    assert_close(theirs(ids).logits, policy.model(ids).logits, ROUNDING, "peft and ours")
    assert not list((tmp_path / "adapter").glob("model*"))
    assert (tmp_path / "adapter" / adapters.BASE).is_dir(), "a base without a name can be found nowhere else"


@wrapped_by_peft
@models
def test_an_adapter_that_peft_wrote_is_read(name, tmp_path):
    base = base_folder(tmp_path / "base", name)
    names = ["c_attn"] if name == "gpt2" else ["q_proj", "o_proj"]
    config = peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=names, init_lora_weights=False, fan_in_fan_out=name == "gpt2"
    )
    theirs = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), config).eval()
    theirs.save_pretrained(tmp_path / "adapter")
    envs = text_envs(1)
    policy = LanguageModelPolicy(*spaces_of(envs), tmp_path / "adapter")
    ids = torch.arange(VOCAB)[None]
    assert_close(policy.model(ids).logits, theirs(ids).logits, ROUNDING, "peft and ours")
    assert not policy.adapter.is_fresh


@wrapped_by_peft
def test_a_model_that_peft_has_adapted_is_trained_as_it_is():
    config = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    with torch.random.fork_rng(devices=[]):  # peft draws from the global generator
        torch.manual_seed(0)
        model = peft.get_peft_model(tiny_model("llama", VOCAB), config).get_base_model()
    envs = few_envs()
    policy = LanguageModelPolicy(*spaces_of(envs), model)
    assert len(actor_parameters(policy)) == 4 and not policy.adapter.is_fresh
    check_acting_equals_training(policy, envs, ROUNDING)
    with pytest.raises(ValueError, match="the model has an adapter already, which training continues; omit lora_rank"):
        LanguageModelPolicy(*spaces_of(envs), model, lora_rank=2)


@pytest.mark.parametrize("change", ["kind", "missing", "shape", "name"])
def test_an_adapter_that_does_not_fit_is_refused(change, tmp_path):
    base = base_folder(tmp_path / "base")
    envs = few_envs()
    policy = LanguageModelPolicy(*spaces_of(envs), base, lora_rank=2)
    policy.export(tmp_path / "adapter", merge=False)
    file = tmp_path / "adapter" / adapters.CONFIG
    config = json.loads(file.read_text())
    message = {
        "kind": "is not supported: use_dora; supported: plain LoRA",
        "missing": "cannot be read",
        "shape": "does not fit its model: base_model.model.model.layers.0.mlp.down_proj.lora_A.weight",
        "name": "names no base model",
    }[change]
    if change == "missing":
        (tmp_path / "adapter" / adapters.WEIGHTS).unlink()
    file.write_text(json.dumps(config | {"kind": {"use_dora": True}, "shape": {"r": 3}}.get(change, {})))
    if change == "name":
        file.write_text("{}")
    with pytest.raises(ValueError, match=message) as error:
        LanguageModelPolicy(*spaces_of(envs), tmp_path / "adapter")
    assert "\n" not in str(error.value)
