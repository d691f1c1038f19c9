"""The folder of a saved policy: policy.json, the critic, if any, and model/: the model, or its adapter.

`AutoModelForCausalLM.from_pretrained` can read model/, with an adapter if peft is installed and the base has a name.
A frozen copy on another policy's base writes only its own weights.
"""

from __future__ import annotations

import copy
import json
from inspect import signature
from pathlib import Path
from typing import Any

from transformers import GenerationConfig

from rlenv._checks import check_choice, check_flag, check_number
from rlenv._json import read_table

from ..devices import HALVES
from ..errors import checking
from ..policies.base import MODEL
from .loading import ATTENTION, DTYPES, has_adapter

CRITICS = ("head", "separate")
_CONFIG = "policy.json"
BORROWS, DIGEST = "borrows_base", "base_sha256"  # in policy.json
_SWITCHES = ("merge_rows", "share_prefixes", "pack_weights", "cuda_graphs", "activation_checkpointing")


def write(policy: Any, folder: Path) -> None:
    """Write a policy; see the module."""
    config = {
        "temperature": policy.temperature,
        "critic": None if policy.critic is None else CRITICS[policy.critic.trunk is not None],
        "dtype": str(policy.model.dtype).removeprefix("torch."),
        "attention": policy.model.config.get_text_config()._attn_implementation,
        **{name: getattr(policy, name) for name in _SWITCHES},
    }
    if policy.borrows_base:
        config[BORROWS] = True
    elif policy.adapter is not None:
        config[DIGEST] = policy.adapter.base_digest
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _CONFIG).write_text(json.dumps(config) + "\n", encoding="utf-8")
    if policy.adapter is not None:
        _write_tokenizer(policy, folder / MODEL)
        policy.adapter.save(folder / MODEL, with_base=not policy.borrows_base)
    elif not policy.borrows_base:
        export(policy, folder / MODEL)
    if policy.critic is not None:
        policy.critic.save(folder)


def export(policy: Any, folder: Path, merge: bool = True) -> None:
    """Write the model alone; see `LanguageModelPolicy.export`."""
    if policy.adapter is None and not merge:
        raise ValueError("this policy has no adapter to write alone: omit --adapter (merge=False)")
    _write_tokenizer(policy, folder)
    if policy.adapter is None:
        policy.model.save_pretrained(folder)
    elif merge:
        from .adapters import merged  # of policies that have one

        exact = copy.deepcopy(policy.model).float() if policy.model.dtype in HALVES else policy.model
        merged(exact).save_pretrained(folder)
    else:
        policy.adapter.save(folder, with_base=True)


def _write_tokenizer(policy: Any, folder: Path) -> None:
    """Write the tokenizer, and the file by which greedy generation with transformers is the policy's, token by token.

    It names the end tokens and suppresses the ids of a padded vocabulary that the tokenizer does not have, which the
    policy never chooses. It has no settings that would change greedy generation, such as penalties.
    """
    if (tokenizer := policy.tokenizer) is None:
        return
    ends, pad = list(policy.stop_token_ids or [tokenizer.eos_token_id]), tokenizer.pad_token_id
    policy.model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=ends if len(ends) > 1 else ends[0],
        pad_token_id=ends[0] if pad is None else pad,
        suppress_tokens=list(range(policy.vocab_size, policy.model.config.get_text_config().vocab_size)) or None,
    )
    policy.model.generation_config.save_pretrained(folder)  # peft writes none beside an adapter
    tokenizer.save_pretrained(folder)


def read(cls: Any, folder: Path, observation_space: Any, action_space: Any) -> Any:
    """Return the policy, a `cls`, that `write` wrote.

    Raises:
        ValueError: for a reference without a base, an adapter whose base has changed, or a policy.json with other
            settings than a policy has.
    """
    config = read_table(folder / _CONFIG)
    if config.get(BORROWS):
        raise ValueError(f"{str(folder)!r} is a reference on the base of the policy beside it; load that checkpoint")
    digest = config.pop(DIGEST, None)
    _check(cls, folder / _CONFIG, config)
    policy = cls(observation_space, action_space, folder / MODEL, **config)
    if digest is not None and (policy.adapter is None or policy.adapter.base_digest != digest):
        name = policy.adapter and policy.adapter.base_name
        raise ValueError(
            f"the base model {name!r} is not the one that the adapter in {str(folder)!r} was trained on: its weights "
            "have changed; put the old ones back"
        )
    if policy.critic is not None:
        policy.critic.load(folder)
    return policy


def saved_setting(folder: Path, name: str) -> Any:
    """Return a value of a saved policy, such as "dtype", the precision of its weights; None if the folder has none."""
    return read_table(folder / _CONFIG).get(name) if (folder / _CONFIG).is_file() else None


def with_adapter_of(policy: Any, model: str | Path) -> Any:
    """Return a frozen copy on the policy's base, with the adapter of a model, of any rank, if it has one."""
    twin = policy.on_the_same_base(with_adapter=False)
    if has_adapter(model):
        from .adapters import adapt

        twin.adapter = adapt(twin.model, policy.adapter.base_name, Path(model), None, None, None)
    return twin.requires_grad_(False)


def _check(cls: Any, file: Path, config: dict[str, Any]) -> None:
    """Check the settings that a policy.json holds: the constructor refuses the same ones, but cannot name the file."""
    with checking(file):
        if unknown := config.keys() - signature(cls).parameters.keys():
            raise ValueError(f"{min(unknown)!r} is not a setting of a policy")
        check_number("temperature", config["temperature"], low=0, above=True)
        check_choice("dtype", config["dtype"], DTYPES)
        check_choice("attention", config["attention"], ATTENTION)
        if config["critic"] is not None:
            check_choice("critic", config["critic"], CRITICS)
        for name in _SWITCHES:
            check_flag(name, config[name])
