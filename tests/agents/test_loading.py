"""While a policy is dealt out, only the main process has all of it; test_sharding.py has what it does then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import Ranks
from tiny_models import text_envs
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModelForCausalLM, LlamaConfig

from agents import AGENTS, Agent
from agents.fsdp import local

V = 10  # of the text environments


def agent_of(model: Any, shard: bool = True, agent: str = "rloo", **policy_kwargs: Any) -> Agent:
    envs = text_envs(num_envs=2, group_size=2)
    settings: dict[str, Any] = {"episodes_per_update": 8, "seed": 3, "device": "cpu", "learning_rate": 1e-2}
    return AGENTS[agent](model, envs, shard=shard, policy_kwargs=policy_kwargs, kl_coef=0.1, **settings)


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
