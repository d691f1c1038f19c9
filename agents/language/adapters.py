"""LoRA adapters through peft: a trained product of low rank beside each projection of a frozen base model.

    y = W x + s B A x,    A [r, in], B [out, r], s = α / r; B starts at 0     (Hu et al. 2021, arXiv:2106.09685)

An adapted model keeps its class and its module names; peft's layer takes the place of each projection W. Only A and B
are trained. Copies of the model share the base weights: the KL reference, a separate critic, and the model that acts.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rlenv._checks import check_choice, check_count, check_number, first_line, require

from ..errors import reading
from ..fsdp import full
from ..policies.base import weights_digest
from .loading import ADAPTER_BASE

ALL = "all-linear"
WEIGHTS = "adapter_model.safetensors"
NAME = "default"  # peft's name of a model's only adapter
_PREFIX = "base_model.model."  # of every name in peft's files
_PLAIN = (  # settings of peft that a plain LoRA may have; the others have to be off, or peft's defaults
    "r", "lora_alpha", "target_modules", "exclude_modules", "fan_in_fan_out", "use_rslora", "rank_pattern",
    "alpha_pattern", "layers_to_transform", "layers_pattern", "task_type", "peft_version", "base_model_name_or_path",
    "revision", "inference_mode", "init_lora_weights", "lora_dropout", "auto_mapping", "modules_to_save",
)  # fmt: skip
_KEEP_THE_BASE = ("true", "false", "none", "gaussian", "orthogonal", "eva")  # `init_lora_weights`; others change W


class Adapter:
    """The adapter of a model, with the name and the digest of its base for checkpoints.

    Args:
        model: with peft's layers in it; the base weights are frozen.
        head: names of the model's parts that are trained and saved whole beside the adapter.
    """

    def __init__(self, model: PreTrainedModel, head: tuple[str, ...] = ()) -> None:
        self.model, self.head = model, head

    @property
    def base_name(self) -> str | None:
        """The folder or id that the base was read from; None if it has no name."""
        name: str | None = self.model.peft_config[NAME].base_model_name_or_path
        return name

    @property
    def is_fresh(self) -> bool:
        """Whether the adapter changes nothing yet: every B is 0."""
        return not any(bool(layer.lora_B[NAME].weight.any()) for _, layer in adapted_layers(self.model))

    @cached_property
    def base_digest(self) -> str:
        """The SHA-256 of the base weights, which are frozen, with the names they have without an adapter."""
        return weights_digest(without_adapter(self.model))

    def save(self, folder: Path, with_base: bool) -> None:
        """Write the adapter in peft's format.

        Args:
            folder: to write into.
            with_base: whether to write the base, too, unless it has a name.
        """
        self.save_config(folder)
        tensors = {name: weight.detach().contiguous() for name, weight in self.named_weights().items()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        if with_base and self.base_name is None:
            without_adapter(self.model).save_pretrained(folder / ADAPTER_BASE)

    def save_config(self, folder: Path) -> None:
        """Write the adapter's settings in peft's format."""
        folder.mkdir(parents=True, exist_ok=True)
        config = copy.deepcopy(self.model.peft_config[NAME])
        if not isinstance(config.target_modules, str):  # a set
            config.target_modules = sorted(config.target_modules)
        config.task_type = "SEQ_CLS" if self.head else config.task_type
        config.modules_to_save = list(self.head) or None
        config.inference_mode = config.init_lora_weights = True  # W is saved as it is
        config.save_pretrained(str(folder))

    def load(self, folder: Path) -> None:
        """Read the weights that `save` or peft wrote.

        Raises:
            ValueError: if they are missing or damaged, or are not exactly the adapter's.
        """
        try:
            found = load_file(folder / WEIGHTS)
        except (OSError, SafetensorError) as error:
            raise ValueError(f"the adapter in {str(folder / WEIGHTS)!r} cannot be read: {error}") from error
        weights = self.named_weights()
        wrong = list(found.keys() ^ weights.keys())
        wrong += [name for name in found.keys() & weights.keys() if found[name].shape != weights[name].shape]
        if wrong:
            raise ValueError(f"the adapter in {str(folder / WEIGHTS)!r} does not fit its model: {min(wrong)}")
        with torch.no_grad():
            for name, weight in weights.items():
                weight.copy_(found[name])

    def named_weights(self) -> dict[str, nn.Parameter]:
        """Return the adapter's weights under their names in peft's files."""
        own = {name: each for name, each in self.model.named_parameters() if is_adapters(name, self.head)}
        return {_PREFIX + name.replace(f".{NAME}.weight", ".weight"): weight for name, weight in own.items()}


def adapt(
    model: PreTrainedModel,
    base_name: str | None,
    folder: Path | None,
    rank: int | None,
    alpha: float | None,
    targets: Sequence[str] | None,
    head: tuple[str, ...] = (),
) -> Adapter | None:
    """Put an adapter into a model, in place, and freeze everything else; None if none is asked for.

    Args:
        model: without an adapter.
        base_name: folder or id that it was read from; None if it has no name.
        folder: of a trained adapter; None for a new one, whose weights are drawn from torch's global generator.
        rank: r, from 1 to the width of the model; None for no new adapter.
        alpha: α, above 0; None for 2 r.
        targets: names of linear layers, or a text with commas; None or "all-linear" for all of attention and MLP.
        head: names of the model's parts outside its trunk that are trained, too, as those of a classifier.

    Raises:
        ValueError: for values out of range, unknown targets, or an adapter that is not plain LoRA.
    """
    given = {"lora_rank": rank, "lora_alpha": alpha, "lora_targets": targets}
    named = [name for name, value in given.items() if value is not None]
    changed = bool(adapted_layers(model))  # an object that peft has had before
    if (folder is not None or changed) and named:
        what = "the model" if folder is None else repr(str(folder))
        raise ValueError(f"{what} has an adapter already, which training continues; omit {', '.join(named)}")
    if folder is None and rank is None and not changed:
        if named:
            raise ValueError(f"{named[0]} is of an adapter: pass lora_rank, too")
        return None
    if not changed:
        settings = _new_settings(model, rank, alpha, targets) if folder is None else _saved_settings(folder, head)
        try:
            library().inject_adapter_in_model(settings, model, NAME)
        except (TypeError, ValueError) as error:
            raise ValueError(f"peft cannot adapt {type(model).__name__}: {first_line(error)}") from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(is_adapters(name, head))
    for name, layer in adapted_layers(model):
        plain = isinstance(layer.base_layer, (nn.Linear, Conv1D)) and not layer.lora_variant
        if not plain or list(layer.lora_A) != [NAME]:
            supported = "one plain LoRA of linear layers; name such layers (lora_targets, --lora-targets)"
            raise ValueError(f"the adapter of {name} is not supported; supported: {supported}")
        for part in (layer.lora_A, layer.lora_B):  # float32 of peft on a 16-bit base; the optimizer keeps its own
            part.to(layer.base_layer.weight.dtype)
    model.peft_config[NAME].base_model_name_or_path = base_name
    adapter = Adapter(model.eval(), head)
    if folder is not None:
        adapter.load(folder)
    return adapter


def _new_settings(model: PreTrainedModel, rank: Any, alpha: float | None, targets: Sequence[str] | None) -> Any:
    """Return the settings of a new adapter."""
    width = model.config.get_text_config().hidden_size
    rank = check_count("lora_rank", rank)
    if rank > width:
        raise ValueError(f"lora_rank={rank} is above the width of the model; use 1 to {width}")
    return library().LoraConfig(
        r=rank,
        lora_alpha=2 * rank if alpha is None else check_number("lora_alpha", alpha, low=0.0, above=True),
        target_modules=target_names(model, targets),
        fan_in_fan_out=all(isinstance(layer, Conv1D) for layer in _linear_layers(model).values()),
        task_type="CAUSAL_LM",
    )


def _saved_settings(folder: Path, head: tuple[str, ...]) -> Any:
    """Return the settings of the adapter in a folder."""
    peft = library()
    with reading(folder):
        config, plain = peft.PeftConfig.from_pretrained(str(folder)), vars(peft.LoraConfig())
    others = {name: value for name, value in vars(config).items() if value and name not in _PLAIN}
    refused = [name for name, value in others.items() if value != plain.get(name)]
    begun = getattr(config, "init_lora_weights", None)  # of LoRA's configs alone
    if str(begun).lower() not in _KEEP_THE_BASE:
        refused.append(f"init_lora_weights={begun!r}, which changes the base; let peft convert it")
    if refused or config.modules_to_save not in (None, list(head)):
        what = ", ".join(refused) or "modules_to_save"
        raise ValueError(f"the adapter in {str(folder)!r} is not supported: {what}; supported: plain LoRA")
    config.init_lora_weights, config.lora_dropout, config.modules_to_save = True, 0.0, None
    return config


def target_names(model: PreTrainedModel, targets: Sequence[str] | None) -> list[str]:
    """Return the names of the linear layers that `targets` asks for; see `adapt`.

    Raises:
        ValueError: naming the missing modules, and the modules that the model has.
    """
    known = sorted(_linear_layers(model))
    names = targets.split(",") if isinstance(targets, str) else targets
    asked = [ALL] if names is None else [name.strip() for name in names]
    for name in asked:
        check_choice("LoRA target", name, [ALL, *known])
    return known if ALL in asked else sorted(set(asked))


def _linear_layers(model: PreTrainedModel) -> dict[str, nn.Module]:
    """Return the linear layers of the trunk by the last part of their names, one of each."""
    named = model.base_model.named_modules()
    return {name.rpartition(".")[2]: part for name, part in named if isinstance(part, (nn.Linear, Conv1D))}


def is_adapters(name: str, head: tuple[str, ...] = ()) -> bool:
    """Whether a weight of this name in a module belongs to an adapter, or to a head that is trained with it."""
    return ".lora_" in name or name.partition(".")[0] in head


def adapted_layers(model: nn.Module) -> list[tuple[str, Any]]:
    """Return peft's layers in a model, by name."""
    return [(name, module) for name, module in model.named_modules() if "lora_A" in module._modules]


def share_frozen(module: nn.Module, memo: dict[int, Any] | None = None) -> Any:
    """Return a copy of a module that shares the weights that are not trained; `memo` is as in `copy.deepcopy`."""
    frozen = {id(weight): weight for weight in module.parameters() if not weight.requires_grad}
    return copy.deepcopy(module, {**frozen, **(memo or {})})


def drop_adapter(model: PreTrainedModel) -> None:
    """Put the projections of the base back in place of peft's layers."""
    for name, layer in adapted_layers(model):
        model.set_submodule(name, layer.base_layer)
    vars(model).pop("peft_config", None)


def without_adapter(model: PreTrainedModel) -> PreTrainedModel:
    """Return the base of an adapted model: the same weights in memory, without peft's layers."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    base = copy.deepcopy(model, shared)
    drop_adapter(base)
    return base


def merged(model: PreTrainedModel) -> PreTrainedModel:
    """Return an adapted model as a plain one, W + s B A in place of W; it shares all other weights."""
    plain = without_adapter(model)
    for name, layer in adapted_layers(model):
        weight = merged_weight(layer).to(layer.base_layer.weight.dtype)
        plain.get_submodule(name).weight = nn.Parameter(weight, requires_grad=False)
    return plain


@torch.no_grad()
def merged_weight(layer: Any) -> torch.Tensor:
    """Return W + s B A in at least float32."""
    parts = layer.base_layer.weight, layer.lora_A[NAME].weight, layer.lora_B[NAME].weight
    weight, a, b = map(full, parts)
    dtype = torch.promote_types(weight.dtype, torch.float32)
    product = (b.to(dtype) @ a.to(dtype)) * layer.scaling[NAME]
    return weight.to(dtype) + (product.T if layer.fan_in_fan_out else product)


def library() -> Any:
    """Return peft.

    Raises:
        ValueError: if it is not installed; asked before a model is read, which may take minutes.
    """
    return require("peft", "lora", "a LoRA adapter")
