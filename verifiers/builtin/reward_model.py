"""reward_model: a sequence classifier from Hugging Face rates completions."""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from rlenv._checks import check_count, check_flag, check_number, first_line, quiet, require

from ..base import Execution, Problem, Verdict, Verifier
from ..function import as_verdict
from ..plugins.registry import register_verifier

ADAPTER = "adapter_config.json"  # of peft
ALLOWED = "a run of rlenv reward-model, a folder, an id or an object of a model with a classification head"
CHAT = "rlenv_chat"  # in config.json: whether the chat template rendered conversations in training


@register_verifier("reward_model")
class RewardModel(Verifier):
    """The output of a trained reward model, computed in batches on the device.

    The model reads prompt and completion as one text, a conversation as the chat template renders it. With one output
    the reward is that number; with several it is the probability of the label `label`, 0 to 1. Text that looks like a
    special token stays text. An input that is too long for the model loses its beginning, but for a token that begins
    every text; the model cannot tell unknown characters apart.

    Prompts and alphabet: from the listed problems, or from a verifier that makes some: `arith=0,reward_model:FOLDER`.
    Not caught: a learned reward is an estimate, and a policy trained on it long enough finds texts that it overrates;
    watch the success rate of a verifier beside it, as in this list, and anchor the policy with --kl-coef.

    Args:
        model: a folder or id, a run folder of `rlenv reward-model`, or a model object; it stays in evaluation mode. A
            folder may hold a LoRA adapter in peft's format, which is merged into its base model.
        tokenizer: a folder, id or object; None for the model's own.
        chat: whether the tokenizer's chat template renders conversations; otherwise they are lines such as "user: ...".
            None for the model's own form in training, else for yes if there is a template.
        label: which of several outputs is the reward; None for the last one.
        success_reward: a reward of at least this is a success; None for 0.5 of a probability, else 0.
        batch_size: texts per forward pass.
        device: "auto" uses a GPU if there is one.

    Raises:
        ValueError: if there is no such model or tokenizer, or no such label.
    """

    execution = Execution(slow=True, prefers_batches=True)

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        label: int | None = None,
        success_reward: float | None = None,
        batch_size: int = 256,
        device: str = "auto",
        chat: bool | None = None,
    ) -> None:
        self.batch_size = check_count("reward_model: batch_size", batch_size, 1, 10**6)
        model = _model_folder(model)
        self.model = _load_model(model)
        self.tokenizer = _load_tokenizer(model if tokenizer is None else tokenizer)
        if len(self.tokenizer) > self.model.config.vocab_size:
            sizes = f"{len(self.tokenizer)} tokens, the model {self.model.config.vocab_size}"
            raise ValueError(f"reward_model: tokenizer and model do not belong together: the tokenizer has {sizes}")
        self.device = _device(device)
        self.model.to(self.device).eval().requires_grad_(False)
        self._pad = self._padding()
        self._context = _context_of(self.model)
        self.chat = self._reads_chat(chat)
        self._encoder: Any = import_module("rlenv.encoder").Encoder(self.tokenizer) if self.chat else None
        labels = self.model.config.num_labels
        self.label = labels - 1 if label is None else check_count("reward_model: label", label, 0, labels - 1)
        self.is_probability = labels > 1
        self.reward_range = (0.0, 1.0) if self.is_probability else (-math.inf, math.inf)
        least = float(self.is_probability) / 2 if success_reward is None else success_reward
        self.success_reward = check_number("reward_model: success_reward", least)

    def verify_batch(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Judge many completions, sorted by length to reduce padding."""
        texts = self._tokens(problems, completions)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        verdicts: dict[int, Verdict] = {}
        for start in range(0, len(order), self.batch_size):
            rows = order[start : start + self.batch_size]
            rewards = self._rewards([texts[row] for row in rows])
            verdicts |= zip(rows, (as_verdict("the reward model", reward) for reward in rewards), strict=True)
        return [verdicts[index] for index in range(len(texts))]

    def _tokens(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each prompt and completion that the model reads, as far as its context reaches."""
        answers = list(map(_unicode, completions))
        if self.chat and any(not isinstance(problem.prompt, str) for problem in problems):
            ids = self._encoder.answered([problem.prompt for problem in problems], answers)
        else:
            texts = [_unicode(problem.text) + text for problem, text in zip(problems, answers, strict=True)]
            ids = (
                self.tokenizer(texts, split_special_tokens=True, add_special_tokens=True)["input_ids"] if texts else []
            )
        return [self._cut(row or [self._pad]) for row in ids]

    def _cut(self, row: list[int]) -> list[int]:
        """Return the tokens that fit into the model's context: the last ones, after the one that begins every text."""
        first = row[:1] if row[0] in (self.tokenizer.cls_token_id, self.tokenizer.bos_token_id) else []
        return row if len(row) <= self._context else first + row[len(row) - self._context + len(first) :]

    def _reads_chat(self, chat: bool | None) -> bool:
        """Return whether the chat template renders conversations."""
        has_template = bool(getattr(self.tokenizer, "chat_template", None))
        if chat is None:
            return has_template and bool(getattr(self.model.config, CHAT, True))
        if check_flag("reward_model: chat", chat) and not has_template:
            raise ValueError("reward_model: chat=True needs a tokenizer with a chat template; pass tokenizer=")
        return chat

    def _rewards(self, kept: list[list[int]]) -> list[float]:
        import torch

        width = max(map(len, kept))
        tokens = torch.tensor([row + [self._pad] * (width - len(row)) for row in kept], device=self.device)
        mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in kept], device=self.device)
        with torch.no_grad():
            logits = self.model(input_ids=tokens, attention_mask=mask).logits.float()  # [B, labels]
        return (logits.softmax(-1)[:, self.label] if self.is_probability else logits[:, 0]).tolist()

    def _padding(self) -> int:
        """Return the token that fills rows; the model has to know it to find where a text ends."""
        known = (self.model.config.pad_token_id, self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
        pad = next(token for token in known if token is not None)
        self.model.config.pad_token_id = pad
        return pad


def _unicode(text: str) -> str:
    """Return a text without halves of surrogate pairs, which tokenizers reject."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _model_folder(model: Any) -> Any:
    """Return the model inside a run folder of `rlenv reward-model`; anything else unchanged."""
    if not isinstance(model, (str, Path)):
        return model
    if Path(model, "checkpoint", "agent.json").is_file():
        raise ValueError(f"reward_model: {str(model)!r} is a run of rlenv train or rlenv sft; allowed: {ALLOWED}")
    inside = Path(model, "model")
    return inside if (inside / "config.json").is_file() else model


def _load_model(model: Any) -> Any:
    if not isinstance(model, (str, Path)):
        if not hasattr(getattr(model, "config", None), "num_labels") or not callable(model):
            raise ValueError(f"reward_model: model must be {ALLOWED}, got {model!r}")
        return model
    from transformers import AutoModelForSequenceClassification

    is_adapter = Path(model, ADAPTER).is_file()
    peft = require("peft", "lora", f"reward_model: the adapter in {str(model)!r}") if is_adapter else None
    options: dict[str, Any] = {"output_loading_info": True, "trust_remote_code": False}
    try:
        if peft is not None:
            return _load_adapter(Path(model), options, peft)
        loaded, report = AutoModelForSequenceClassification.from_pretrained(str(model), **options)
    except Exception as error:  # whatever is wrong with the folder
        reason = f"{first_line(error).removesuffix('.')}; allowed: {ALLOWED}"
        raise ValueError(f"reward_model: {str(model)!r} cannot be loaded: {reason}") from error
    if report["missing_keys"]:
        lacks = ", ".join(sorted(report["missing_keys"])[:3])
        raise ValueError(f"reward_model: {str(model)!r} was not trained as a reward model: it lacks {lacks}")
    return loaded


def _context_of(model: Any) -> int:
    """Return how many tokens a model reads; positions of RoBERTa and its kin begin behind that of padding."""
    tables = (part for name, part in model.named_modules() if name.endswith("position_embeddings"))
    skipped = next((part.padding_idx + 1 for part in tables if getattr(part, "padding_idx", None) is not None), 0)
    return (getattr(model.config, "max_position_embeddings", None) or sys.maxsize) - skipped


def _load_adapter(folder: Path, options: dict[str, Any], peft: Any) -> Any:
    """Return the model whose adapter is in a folder, with the adapter merged into its weights."""
    from transformers import AutoModelForSequenceClassification
    from transformers.utils import logging

    settings = json.loads((folder / ADAPTER).read_text(encoding="utf-8"))
    base = _base(folder, settings)
    with quiet(logging):  # it would report the base's head as missing, which the adapter brings
        model, report = AutoModelForSequenceClassification.from_pretrained(base, **options, **_trained_as(folder))
    heads = tuple(settings.get("modules_to_save") or ())
    if lacking := sorted(name for name in report["missing_keys"] if not name.startswith(heads)):
        raise ValueError(f"neither it nor its base model {base!r} has {', '.join(lacking[:3])}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an old name
        return peft.PeftModel.from_pretrained(model, str(folder)).merge_and_unload()


def _base(folder: Path, settings: Mapping[str, Any]) -> str:
    """Return where the base model of an adapter is: inside its folder, or where its settings say."""
    base = folder / "base" if (folder / "base").is_dir() else settings.get("base_model_name_or_path")
    if not base:
        raise ValueError(f"{ADAPTER} names no base model (base_model_name_or_path)")
    if Path(base).is_absolute() and not Path(base).exists():
        raise ValueError(f"its base model {str(base)!r} is gone; put it back, or a link to it")
    return str(base)


def _trained_as(folder: Path) -> dict[str, Any]:
    """Return how the base model of an adapter was loaded in training; one that says nothing has one output."""
    import torch
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        return {"num_labels": 1, "dtype": torch.float32}
    return {"config": AutoConfig.from_pretrained(str(folder), trust_remote_code=False), "dtype": torch.float32}


def _load_tokenizer(tokenizer: Any) -> Any:
    if not isinstance(tokenizer, (str, Path)):
        if not callable(tokenizer) or not hasattr(tokenizer, "pad_token_id"):
            raise ValueError("reward_model: a model object needs its tokenizer: pass tokenizer=")
        return tokenizer
    from transformers import AutoTokenizer

    if Path(tokenizer).is_dir() and not any(Path(tokenizer).glob("tokenizer*.json")):  # an empty one would be made up
        raise ValueError(f"reward_model: {str(tokenizer)!r} has no tokenizer: pass tokenizer=")
    try:
        return AutoTokenizer.from_pretrained(str(tokenizer), trust_remote_code=False)
    except (OSError, ValueError) as error:
        message = f"reward_model: the tokenizer of {str(tokenizer)!r} cannot be loaded: {first_line(error)}"
        raise ValueError(message) from error


def _device(device: str) -> Any:
    import torch

    try:
        return torch.device(("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device)
    except RuntimeError as error:
        raise ValueError(f"reward_model: device {device!r} cannot be used: {first_line(error)}") from error
