"""Each process of a sharded run reads its part of the weights only, and gets what a whole load would give it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from safetensors.torch import load_file, save_file
from tiny_models import text_envs, tiny_model
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, LlamaConfig

from agents import AGENTS, Agent, LanguageModelPolicy
from agents.distributed import parallel, parts
from agents.distributed.parallel import alone
from agents.distributed.shards import local, own_rows
from agents.policies.base import weights_digest
from agents.policies.language.models import unread
from agents.policies.language.models.loading import saved_tensors

V = 10  # of the text environments


def agent_of(model: Any, shard: bool = True, agent: str = "rloo", **policy_kwargs: Any) -> Agent:
    envs = text_envs(num_envs=2, group_size=2)
    settings: dict[str, Any] = {"episodes_per_update": 8, "seed": 3, "device": "cpu", "learning_rate": 1e-2}
    return AGENTS[agent](model, envs, shard=shard, policy_kwargs=policy_kwargs, **settings)


# Folders.


def tied(folder: Path) -> None:
    config = tiny_model("llama").config
    config.tie_word_embeddings = True
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def several_files(folder: Path) -> None:
    tiny_model("mistral").save_pretrained(folder, max_shard_size="4KB")
    assert len(json.loads((folder / unread.INDEX).read_text())["weight_map"]) > len(list(folder.glob("*.safetensors")))


def in_bfloat16(folder: Path) -> None:
    tiny_model("llama").to(torch.bfloat16).save_pretrained(folder)


def without_prefix(folder: Path) -> None:
    """Write names as the first GPT-2 has them."""
    tiny_model("gpt2").save_pretrained(folder)
    tensors = load_file(folder / unread.FILE)
    named = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}
    assert named.keys() != tensors.keys()
    save_file(named, folder / unread.FILE, metadata={"format": "pt"})


def with_frequencies(folder: Path) -> None:
    """Write what earlier versions of transformers did beside the weights."""
    tiny_model("llama").save_pretrained(folder)
    tensors = load_file(folder / unread.FILE)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    save_file(tensors, folder / unread.FILE, metadata={"format": "pt"})


def with_settings_of_generation(folder: Path) -> None:
    model = tiny_model("llama")
    model.generation_config.eos_token_id = [3, 5]
    model.save_pretrained(folder)


def an_adapter(folder: Path) -> None:
    with alone():
        policy: Any = agent_of("tiny", shard=False, lora_rank=2).policy
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    policy.export(folder, merge=False)


FOLDERS: dict[str, tuple[Callable[[Path], None], dict[str, Any]]] = {
    "tied": (tied, {}),
    "several files": (several_files, {}),
    "bfloat16 in the files": (in_bfloat16, {}),
    "bfloat16 asked for": (with_settings_of_generation, {"dtype": "bfloat16"}),
    "names without prefix": (without_prefix, {}),
    "rotary frequencies in the files": (with_frequencies, {}),
    "a separate critic": (several_files, {"critic": "separate"}),
    "a new adapter": (tied, {"lora_rank": 2}),
    "a new adapter on GPT-2, in bfloat16": (without_prefix, {"lora_rank": 2, "dtype": "bfloat16"}),
    "a new adapter with a separate critic": (tied, {"lora_rank": 2, "critic": "separate"}),
    "a trained adapter": (an_adapter, {}),
}
PRESETS: dict[str, dict[str, Any]] = {
    "a preset": {},
    "a preset in bfloat16": {"dtype": "bfloat16"},
    "a preset with a critic": {"critic": "separate"},
    "a preset with an adapter": {"lora_rank": 2, "critic": "head"},
}


CASES = {**{name: (None, options) for name, options in PRESETS.items()}, **FOLDERS}


def written(folder: Path, write: Callable[[Path], None] | None) -> str:
    if write is None:
        return "tiny"
    write(folder)
    return str(folder)


def policy_of(model: str, options: dict[str, Any]) -> LanguageModelPolicy:
    envs = text_envs(num_envs=2, group_size=2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, model, **options)


@pytest.mark.parametrize(("write", "options"), CASES.values(), ids=CASES)
def test_rows_are_those_of_the_whole_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None] | None, options: dict[str, Any]
) -> None:
    model = written(tmp_path, write)
    whole = dict(policy_of(model, options).named_parameters())
    monkeypatch.setattr(parallel, "size", lambda: 3)
    for rank in range(3):
        monkeypatch.setattr(parallel, "rank", lambda rank=rank: rank)
        with unread.weights_unread():
            made = dict(policy_of(model, options).named_parameters())
        assert made.keys() == whole.keys()
        for name, weight in made.items():
            rows = slice(*own_rows(len(weight)))
            found = weight.origin(rows.start, rows.stop) if isinstance(weight, unread.Unread) else weight[rows]
            assert torch.equal(found.to(weight.dtype), whole[name][rows]), name
            assert weight.requires_grad == whole[name].requires_grad
            assert weight.is_meta or "lora_" in name or name.startswith("critic.head")


def alike(model: str, options: dict[str, Any]) -> None:
    """Check that a policy is the same whether it was read in parts or by a single process."""
    agent = "ppo" if "critic" in options else "rloo"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing is read whole
        ours: Any = agent_of(model, agent=agent, **options).policy.whole()
    with alone():
        single: Any = agent_of(model, shard=False, agent=agent, **options).policy
    assert weights_digest(ours) == weights_digest(single)
    buffers = dict(single.named_buffers())
    assert {name: buffer.dtype for name, buffer in ours.named_buffers()} == {n: b.dtype for n, b in buffers.items()}
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in ours.named_buffers())
    assert ours.model.generation_config.to_dict() == single.model.generation_config.to_dict()
    assert ours.model.config.to_dict() == single.model.config.to_dict()
    assert (ours.head_is_plain, ours.tried) == (single.head_is_plain, True)
    trained = {name: weight.requires_grad for name, weight in ours.named_parameters()}
    assert trained == {name: weight.requires_grad for name, weight in single.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize(("write", "options"), CASES.values(), ids=CASES)
def test_parts_make_up_the_policy_of_one_process(
    two: Ranks, tmp_path: Path, write: Callable[[Path], None] | None, options: dict[str, Any]
) -> None:
    two(alike, written(tmp_path, write), options)


def in_parts(folder: Path) -> None:
    """Write a model as a sharded checkpoint has it, of one process."""
    model = tiny_model("mistral")
    model.save_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.distributed is disabled
        parts.write_parts(saved_tensors(model), folder / unread.FILE)
    (folder / unread.FILE).unlink()


@pytest.mark.parametrize(
    "options",
    [{"critic": "separate"}, pytest.param({"critic": "separate", "lora_rank": 2}, marks=pytest.mark.slow)],
    ids=str,
)
def test_a_critic_and_the_model_are_read_from_the_same_parts(
    two: Ranks, tmp_path: Path, options: dict[str, Any]
) -> None:
    in_parts(tmp_path)
    two(alike, str(tmp_path), options)


# Memory.


class Peak(TorchDispatchMode):
    """Notes the most bytes of tensors that operations read or made and that existed at one time, those of files too."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in tree_leaves((args, kwargs, made)):
            if isinstance(each, torch.Tensor) and each.device.type != "meta":
                self.note(local(each))
        self.alive = {key: found for key, found in self.alive.items() if not found[0].expired()}
        self.most = max(self.most, sum(size for _, size in self.alive.values()))
        return made

    def note(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())


def untied(folder: Path) -> None:
    config = LlamaConfig(
        vocab_size=V, hidden_size=64, intermediate_size=256, num_hidden_layers=6, num_attention_heads=4,
        max_position_embeddings=64,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def peak_of(path: str, options: dict[str, Any], resumed: bool, in_parts: bool) -> tuple[int, int, int, int]:
    """Return the most bytes at one time, those read, those of this process's part, and those of the largest weight."""
    envs = text_envs(num_envs=2, group_size=2)
    with Peak() as peak, pytest.MonkeyPatch.context() as patch:
        call, read = unread.Stored.__call__, []
        patch.setattr(unread.Stored, "__call__", lambda *args: read.append(call(*args).nbytes) or call(*args))
        if resumed:
            agent = Agent.load(path, envs, "cpu", continue_env=True, shard=True)
        else:
            model = path if in_parts else policy_of(path, options)
            agent = agent_of(model, **(options if in_parts else {}))
    parameters = [*agent.policy.parameters()]
    if agent.anchor.reference is not None:
        parameters += agent.anchor.reference.parameters()
    return peak.most, sum(read), sum(local(p).nbytes for p in parameters), max(p.nbytes for p in parameters)


@pytest.mark.parametrize(
    "options",
    [{}, *(pytest.param(more, marks=pytest.mark.slow) for more in ({"dtype": "bfloat16"}, {"lora_rank": 2}))],
    ids=str,
)
def test_a_process_needs_memory_for_its_part_and_one_weight(
    two: Ranks, tmp_path: Path, options: dict[str, Any]
) -> None:
    untied(tmp_path)
    for most, read, part, largest in two(peak_of, str(tmp_path), options, False, True):
        of_part = 2 * part if "dtype" in options else part  # the files are in float32
        assert 0.9 * of_part < read < of_part + 2 * largest
        masters = 2 * part if "dtype" in options else 0  # of the optimizer, in float32
        assert most < part + masters + 5 * largest
    for most, _, part, largest in two(peak_of, str(tmp_path), options, False, False):
        assert most > 2 * part - largest, "a whole policy is seen"


def saved_with(model: str, path: str, options: dict[str, Any], **settings: Any) -> str:
    """Train with a reference and save; return the hash of the whole weights and the reference's."""
    agent = AGENTS["rloo"](
        model, text_envs(num_envs=2, group_size=2), shard=True, policy_kwargs=options, episodes_per_update=8,
        device="cpu", learning_rate=1e-2, kl_coef=0.1, **settings,
    )  # fmt: skip
    agent.learn(total_episodes=16)
    agent.save(path)
    return digests(agent)


def digests(agent: Agent) -> str:
    both = agent.policy, agent.anchor.reference
    return " ".join(weights_digest(policy.whole()) for policy in both if policy is not None)


def loaded(path: str) -> str:
    return digests(Agent.load(path, text_envs(num_envs=2, group_size=2), "cpu", continue_env=True, shard=True))


RESUMED = [
    ({}, {}),
    ({"lora_rank": 2}, {}),
    ({}, {"sharded_checkpoints": True}),
    ({"lora_rank": 2}, {"sharded_checkpoints": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "settings"), RESUMED, ids=str)
def test_a_checkpoint_and_its_reference_are_read_in_parts(
    two: Ranks, tmp_path: Path, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    untied(tmp_path / "model")
    path = str(tmp_path / "saved")
    expected = two(lambda: saved_with(str(tmp_path / "model"), path, options, **settings))
    assert two(loaded, path) == expected
    for most, _, part, largest in two(peak_of, path, {}, True, True):
        moments = 0 if options else part  # of the policy, without the reference: two for each weight
        mapped = 0 if settings else 2 * moments  # in the file of all processes
        assert most < part + moments + mapped + 8 * largest


# What cannot be read in parts.


def pickled(folder: Path) -> None:
    tiny_model("llama").save_pretrained(folder)
    torch.save(load_file(folder / unread.FILE), folder / "pytorch_model.bin")
    (folder / unread.FILE).unlink()


def twice(folder: Path) -> None:
    """Write a tied weight under both of its names."""
    tied(folder)
    tensors = load_file(folder / unread.FILE)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / unread.FILE, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("write", "why"), [(pickled, "they are not safetensors"), (twice, "lm_head.weight is not a weight of")]
)
def test_a_model_that_is_read_whole_is_named(tmp_path: Path, write: Callable[[Path], None], why: str) -> None:
    write(tmp_path)
    whole = policy_of(str(tmp_path), {})
    said = rf"every process reads all weights of model .* before it keeps its part: {why}"
    with unread.weights_unread(), pytest.warns(UserWarning, match=said):
        made = policy_of(str(tmp_path), {})
    assert not unread.is_unread(made)
    assert weights_digest(made) == weights_digest(whole)


def other_files(folders: list[str]) -> str:
    try:
        agent_of(folders[parallel.rank()])
    except ValueError as error:
        return str(error)
    return ""


def test_other_weights_on_another_machine_are_refused(two: Ranks, tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for seed, folder in enumerate(folders):
        tiny_model("llama", seed=seed).save_pretrained(folder)
    said = two(other_files, [str(folder) for folder in folders])
    assert all("process 1 finds other weights in" in each and "same files on every machine" in each for each in said)


def changed_base(path: str) -> str:
    try:
        Agent.load(path, text_envs(num_envs=2, group_size=2), "cpu", shard=True)
    except ValueError as error:
        return str(error)
    return ""


@pytest.mark.slow
def test_an_adapter_whose_base_has_changed_is_refused(two: Ranks, tmp_path: Path) -> None:
    base, path = tmp_path / "model", str(tmp_path / "saved")
    untied(base)
    two(lambda: saved_with(str(base), path, {"lora_rank": 2}) and None)
    assert two(changed_base, path) == ["", ""]
    tensors = load_file(base / unread.FILE)
    tensors["model.layers.3.mlp.up_proj.weight"][-1, -1] += 1
    save_file(tensors, base / unread.FILE, metadata={"format": "pt"})
    assert all("its weights have changed; put the old ones back" in said for said in two(changed_base, path))
