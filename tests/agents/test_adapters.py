"""LoRA: a frozen base, an adapter that every agent trains, a reference on the same base, and what is written of it.

Also weights of 16 bits with float32 copies, which every agent trains. Acting with an adapter is in tests/laws.
"""

import json
import math
import re
import shutil
from functools import partial

import peft
import pytest
import torch
from agent_kinds import PASSES, fitting, with_teacher
from architectures import ARCHITECTURES
from continued import everything, run
from diagonal import slow
from identity_checks import EXACT, ROUNDING, assert_close, check_law, collect
from refused import refusal
from tiny_models import ALPHABET, move_adapter, text_envs, tiny_model, tiny_policy, write_model
from transformers import AutoModelForCausalLM

from rlenv.agents import A2C, AGENTS, RLOO, Agent, LanguageModelPolicy
from rlenv.agents.language import adapters
from rlenv.agents.language.loading import ADAPTER_BASE, ADAPTER_CONFIG
from rlenv.agents.policies.base import actor_parameters, weights_digest
from rlenv.tokenizer import character_tokenizer

VOCAB = len(ALPHABET) + 2
models = pytest.mark.parametrize("name", ["gpt2", "llama"])
wrapped_by_peft = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # asked by peft
SMALL = {"episodes_per_update": 8, "num_envs": 4, "group_size": 2, "learning_rate": 1e-2, "device": "cpu"}


def few_envs():
    return text_envs(4, group_size=2, max_new_tokens=8)


def adapted(name="llama", envs=None, dtype="float64", trained=True, **kwargs):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = tiny_policy(name, envs or text_envs(1), dtype=dtype, lora_rank=4, **kwargs)
    return move_adapter(policy) if trained else policy


def policy_on(model, **kwargs):
    envs = few_envs()
    return LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model, **kwargs)


def weights_at(model):
    return {weight.data_ptr() for weight in model.parameters()}


def tensor_files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*.safetensors")}


# The reference.


@pytest.mark.parametrize(("name", "dtype"), [("gpt2", "float32"), ("llama", "bfloat16")])
def test_the_reference_of_a_fresh_adapter_is_the_base_bit_for_bit(name, dtype):
    envs = few_envs()
    policy = adapted(name, envs, dtype, trained=False)
    base = tiny_policy(name, envs, dtype=dtype)
    reference = policy.frozen_copy()
    move_adapter(policy)
    rollout = collect(policy, envs, 8)
    assert torch.equal(reference.evaluate(rollout)["log_probs"], base.evaluate(rollout)["log_probs"])
    assert weights_at(reference) <= weights_at(policy), "no second copy of the base"
    assert weights_digest(reference) == weights_digest(base)


def test_the_reference_of_a_trained_adapter_is_a_copy_of_it_on_the_same_base():
    envs = few_envs()
    policy = adapted("llama", envs)
    rollout = collect(policy, envs, 8)
    reference, before = policy.frozen_copy(), policy.evaluate(rollout)["log_probs"].detach()
    move_adapter(policy, seed=1)
    assert torch.equal(reference.evaluate(rollout)["log_probs"], before)
    assert not torch.equal(policy.evaluate(rollout)["log_probs"], before)
    own = {name for name, weight in reference.named_parameters() if weight.data_ptr() not in weights_at(policy)}
    assert own == {name for name, _ in policy.named_parameters() if "lora_" in name}
    check_law(reference, envs, EXACT, 12)
    assert not any(weight.requires_grad for weight in reference.parameters())
    assert all(weight.requires_grad == ("lora_" in name) for name, weight in policy.named_parameters())


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("base"))


FAST = ("ppo", "distillation")  # passes and a critic; a teacher


@pytest.mark.parametrize("name", [name if name in FAST else slow(name) for name in AGENTS])
def test_every_agent_trains_an_adapter_and_leaves_the_base_alone(name, base, tmp_path):
    """With a break between two updates that changes nothing."""
    envs = text_envs(8, group_size=4, max_new_tokens=3)
    settings = {"episodes_per_update": 8, "num_envs": 8, "seed": 5, "learning_rate": 1e-2, "kl_coef": 0.05}
    settings |= {"num_epochs": 2, "num_minibatches": 1} if name in PASSES else {}
    adapter = {"lora_rank": 2, "lora_targets": ["q_proj", "down_proj"]}
    agent = AGENTS[name](base, envs, policy_kwargs=adapter, device="cpu", **fitting(name, settings))
    agent = with_teacher(agent)
    before = {key: weight.detach().clone() for key, weight in agent.policy.named_parameters()}
    [first] = run(agent, 1)
    agent.save(tmp_path)
    again = Agent.load(tmp_path, env=text_envs(8, group_size=4, max_new_tokens=3), continue_env=True, device="cpu")
    [second] = run(agent, 1)
    assert run(again, 1) == [second] and everything(again) == everything(agent)
    for metrics in (first, second):
        assert all(math.isfinite(figure) for figure in metrics.values()), metrics
        assert metrics["train/grad_norm"] > 1e-3 and metrics["train/skipped_updates"] == 0
    if agent.needs_teacher:
        assert first["train/kl_teacher"] > 0.01, "the teacher is another policy, on a base of its own"
    moved = {key for key, weight in agent.policy.named_parameters() if not torch.equal(weight, before[key])}
    assert moved == {key for key in before if ".lora_" in key or key.startswith("critic.head")}
    assert second["train/logp_gap_max"] < ROUNDING


# Checkpoints.


def test_a_checkpoint_names_the_base_and_keeps_the_adapter(tmp_path):
    envs = few_envs()
    agent = RLOO(write_model(tmp_path / "base", layers=2), envs, policy_kwargs={"lora_rank": 4}, kl_coef=0.1, **SMALL)
    agent.learn(total_episodes=8)
    agent.save(tmp_path / "agent")
    assert tensor_files(tmp_path / "agent") == {"policy/model/adapter_model.safetensors", "training.safetensors"}
    again = Agent.load(tmp_path / "agent", env=envs, device="cpu")
    assert weights_digest(again.policy) == weights_digest(agent.policy)
    assert weights_digest(again.anchor.reference) == weights_digest(agent.anchor.reference)
    assert weights_at(again.anchor.reference) <= weights_at(again.policy)
    read = AutoModelForCausalLM.from_pretrained(tmp_path / "agent" / "policy" / "model", dtype=torch.float32)
    ids = torch.arange(VOCAB)[None]
    assert_close(read(ids).logits, again.policy.model(ids).logits, ROUNDING, "transformers' reading and ours")
    write_model(tmp_path / "base", seed=1, layers=2)
    with pytest.raises(ValueError, match=r"the base model '.*base' is not the one that the adapter .* was trained on"):
        Agent.load(tmp_path / "agent", env=envs, device="cpu")


def test_a_base_without_a_name_is_written_once_also_below_a_critic_with_an_adapter_of_its_own(tmp_path):
    envs = few_envs()
    policy = adapted("llama", envs, "float32", critic="separate")
    before = {name: weight.clone() for name, weight in policy.state_dict().items()}
    agent = A2C(policy, envs, kl_coef=0.1, **SMALL)
    agent.learn(total_episodes=8)
    changed = {name for name, weight in policy.state_dict().items() if not torch.equal(weight, before[name])}
    assert all("lora_" in name or name.startswith("critic.head") for name in changed)
    assert any(name.startswith("critic.trunk") for name in changed)
    agent.save(tmp_path / "agent")
    assert tensor_files(tmp_path / "agent") == {
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


# Export, and peft's own files.


@wrapped_by_peft
@models
def test_an_export_is_the_adapter_merged_or_alone(name, tmp_path):
    policy = adapted(name, dtype="float32")
    policy.tokenizer = character_tokenizer(ALPHABET)
    policy.export(tmp_path / "plain")
    assert not (tmp_path / "plain" / ADAPTER_CONFIG).exists() and (tmp_path / "plain/tokenizer_config.json").exists()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype=torch.float32)
    assert not adapters.adapted_layers(plain)
    ids = torch.randint(VOCAB, (6, 10), generator=torch.Generator().manual_seed(0))
    assert_close(plain(ids).logits, policy.model(ids).logits, 1e-5, "the merged model and the adapter")
    policy.export(str(tmp_path / "adapter"), merge=False)
    theirs = peft.PeftModel.from_pretrained(tiny_model(name, VOCAB), tmp_path / "adapter").eval()
    assert_close(theirs(ids).logits, policy.model(ids).logits, ROUNDING, "peft and ours")
    assert not list((tmp_path / "adapter").glob("model*"))
    assert (tmp_path / "adapter" / ADAPTER_BASE).is_dir(), "a base without a name can be found nowhere else"


def test_a_merged_export_of_half_precision_is_float32_and_loses_nothing(tmp_path):
    """Rounded to 16 bits, W + s B A would be W wherever the adapter has moved little."""
    policy = adapted("llama", dtype="bfloat16")
    policy.export(str(tmp_path / "plain"))
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / "plain", dtype="auto")
    layer = policy.model.model.layers[0].self_attn.q_proj
    a, b = (part["default"].weight.float() for part in (layer.lora_A, layer.lora_B))
    wanted = layer.base_layer.weight.float() + 2.0 * b @ a
    assert torch.equal(plain.model.layers[0].self_attn.q_proj.weight, wanted)
    assert policy.model.dtype is torch.bfloat16, "the policy itself stays as it is"


@wrapped_by_peft
@models
def test_an_adapter_that_peft_wrote_is_read_and_a_model_that_it_adapted_is_trained_as_it_is(name, tmp_path):
    base = write_model(tmp_path / "base", name, layers=2)
    names = ["c_attn"] if name == "gpt2" else ["q_proj", "o_proj"]
    config = peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=names, init_lora_weights=False, fan_in_fan_out=name == "gpt2"
    )
    with torch.random.fork_rng(devices=[]):  # peft draws from the global generator
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        theirs = peft.get_peft_model(model, config).eval()
    theirs.save_pretrained(tmp_path / "adapter")
    envs, ids = few_envs(), torch.arange(VOCAB)[None]
    policy = policy_on(tmp_path / "adapter")
    assert_close(policy.model(ids).logits, theirs(ids).logits, ROUNDING, "peft and ours")
    given = policy_on(theirs.get_base_model())
    assert not policy.adapter.is_fresh and not given.adapter.is_fresh
    assert len(actor_parameters(given)) == 2 * 2 * len(names)
    check_law(given, envs, ROUNDING)
    given.model.peft_config["default"].init_lora_weights = "pissa"  # as if peft had changed the base at the start
    given.export(tmp_path / "again", merge=False)
    assert_close(policy_on(tmp_path / "again").model(ids).logits, theirs(ids).logits, ROUNDING, "saved and read again")
    with pytest.raises(ValueError, match="the model has an adapter already, which training continues; omit lora_rank"):
        policy_on(given.model, lora_rank=2)


def change_config(**entries):
    def change(adapter):
        file = adapter / ADAPTER_CONFIG
        file.write_text(json.dumps(json.loads(file.read_text()) | entries))

    return change


def of_another_method(adapter):
    peft.LoHaConfig(base_model_name_or_path=str(adapter.parent / "base")).save_pretrained(adapter)


UNFIT = {  # what happens to the adapter's folder, what the line says
    "kind": (change_config(use_dora=True), "is not supported: use_dora; supported: plain LoRA"),
    "method": (of_another_method, "is not supported: peft_type, .*; supported: plain LoRA"),
    "start": (change_config(init_lora_weights="pissa"), "init_lora_weights='pissa', which changes the base; let peft"),
    "missing": (lambda adapter: (adapter / adapters.WEIGHTS).unlink(), "cannot be read"),
    "shape": (change_config(r=3), "does not fit its model: base_model.model.model.layers.0.mlp.down_proj.lora_A"),
    "name": (change_config(base_model_name_or_path=None), "names no base model"),
    "no base": (
        lambda adapter: shutil.rmtree(adapter.parent / "base"),
        "the base model '.*base' of .* is gone; put it",
    ),
}


@pytest.mark.filterwarnings("ignore:The following:RuntimeWarning")  # of peft, which takes them for experts
def test_layers_with_the_names_of_experts_are_not_adapted():
    (deepseek,) = (each for each in ARCHITECTURES if each.name == "DeepSeek-V3")
    with pytest.raises(ValueError, match=r"mlp\.experts is not supported; .*; name such layers .*--lora-targets"):
        policy_on(deepseek.model(), lora_rank=2)
    assert policy_on(deepseek.model(), lora_rank=2, lora_targets="o_proj").adapter is not None


def test_an_adapter_that_does_not_fit_is_refused_in_one_line(tmp_path):
    policy = policy_on(write_model(tmp_path / "base"), lora_rank=2)
    for name, (happens, message) in UNFIT.items():
        policy.export(tmp_path / name, merge=False)
        happens(tmp_path / name)
        assert re.search(message, refusal(partial(policy_on, tmp_path / name)))
