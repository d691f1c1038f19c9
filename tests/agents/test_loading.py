"""A policy that is dealt out is the one that a single process makes, and only the main process has all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from tiny_models import text_envs, tiny_model
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, LlamaConfig

from agents import AGENTS, Agent, processes
from agents.fsdp import local, whole
from agents.policies.base import weights_digest
from agents.processes import alone

V = 10  # of the text environments


def agent_of(model: Any, shard: bool = True, agent: str = "rloo", **policy_kwargs: Any) -> Agent:
    envs = text_envs(num_envs=2, group_size=2)
    settings: dict[str, Any] = {"episodes_per_update": 8, "seed": 3, "device": "cpu", "learning_rate": 1e-2}
    return AGENTS[agent](model, envs, shard=shard, policy_kwargs=policy_kwargs, kl_coef=0.1, **settings)


# Folders.


def tied(folder: Path) -> None:
    config = tiny_model("llama").config
    config.tie_word_embeddings = True
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)


def several_files(folder: Path) -> None:
    tiny_model("mistral").save_pretrained(folder, max_shard_size="4KB")
    assert len(list(folder.glob("*.safetensors"))) > 1


def in_bfloat16(folder: Path) -> None:
    tiny_model("llama").to(torch.bfloat16).save_pretrained(folder)


def an_adapter(folder: Path) -> None:
    with alone():
        policy: Any = agent_of("tiny", shard=False, lora_rank=2).policy
    for name, weight in policy.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    policy.export(folder, merge=False)


CASES: dict[str, tuple[Callable[[Path], None] | None, dict[str, Any]]] = {
    "a preset": (None, {}),
    "a preset in bfloat16, with a critic": (None, {"critic": "separate", "dtype": "bfloat16"}),
    "a preset with an adapter": (None, {"lora_rank": 2, "critic": "head"}),
    "tied": (tied, {}),
    "several files": (several_files, {}),
    "bfloat16 in the files": (in_bfloat16, {}),
    "a new adapter with a separate critic": (tied, {"lora_rank": 2, "critic": "separate"}),
    "a trained adapter": (an_adapter, {}),
}


def facts_of(policy: Any) -> tuple[Any, ...]:
    """Return what tells policies apart."""
    weights = {name: weight.requires_grad for name, weight in policy.named_parameters()}
    buffers = {name: (buffer.dtype, buffer.tolist()) for name, buffer in policy.named_buffers()}
    configs = policy.model.config.to_dict(), policy.model.generation_config.to_dict()
    return weights_digest(policy), weights, buffers, configs, policy.head_is_plain


def alike(model: str, options: dict[str, Any]) -> None:
    """Check that a policy and its reference are the same whether they were dealt out or made by a single process."""
    agent = "ppo" if "critic" in options else "rloo"
    ours = agent_of(model, agent=agent, **options)
    ours.anchor.freeze_reference(ours.policy)
    buffers = {name: buffer.tolist() for name, buffer in ours.policy.named_buffers()}
    dealt = whole([ours.policy, ours.anchor.reference])
    with alone():
        single = agent_of(model, shard=False, agent=agent, **options)
    single.anchor.freeze_reference(single.policy)
    assert buffers == {name: buffer.tolist() for name, buffer in single.policy.named_buffers()}
    if processes.is_main():
        assert [facts_of(each) for each in dealt] == [
            facts_of(each) for each in (single.policy, single.anchor.reference)
        ]
    else:
        assert dealt == [None, None]


@pytest.mark.slow
@pytest.mark.parametrize(("write", "options"), CASES.values(), ids=CASES)
def test_the_policy_is_the_one_of_a_single_process(
    two: Ranks, tmp_path: Path, write: Callable[[Path], None] | None, options: dict[str, Any]
) -> None:
    if write is not None:
        write(tmp_path)
    two(alike, "tiny" if write is None else str(tmp_path), options)


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


def peak_of(path: str, lora_rank: int | None) -> tuple[int, int, int, int]:
    """Return the most bytes at one time, those of this process's part, of the whole, and of the largest unit."""
    with Peak() as peak:
        agent = agent_of(path, lora_rank=lora_rank)
        agent.anchor.freeze_reference(agent.policy)
    weights = [*agent.policy.parameters(), *agent.anchor.reference.parameters()]  # type: ignore[union-attr]
    layer = agent.policy.model.model.layers[0]  # type: ignore[union-attr]
    part, total = sum(local(p).nbytes for p in weights), sum(p.nbytes for p in weights)
    return peak.most, part, total, sum(p.nbytes for p in layer.parameters())


@pytest.mark.parametrize("lora_rank", [None, pytest.param(2, marks=pytest.mark.slow)])
def test_only_the_main_process_has_the_whole_model_while_it_is_loaded(
    two: Ranks, tmp_path: Path, lora_rank: int | None
) -> None:
    untied(tmp_path)
    (main, _, total, _), (other, part, _, unit) = two(peak_of, str(tmp_path), lora_rank)
    assert main > total / 2
    assert other < part + 4 * unit < total
