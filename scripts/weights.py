"""What is said before a large model is loaded."""

from __future__ import annotations

from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from agents.language.gguf import model_folder
from agents.policies import NAMES

from .progress import say

LARGE = 200 * 2**20  # bytes of weights


def announce(model: str) -> None:
    """Print one line before a model is loaded that takes a while: a large folder, or a model id."""
    if model in NAMES:
        return
    folder = Path(model_folder(model))
    if not folder.is_dir():
        say(f"loading {model}; the first time its files are downloaded")
        return
    files = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    size = sum(file.stat().st_size for file in files)
    if size > LARGE:
        count = count_parameters(folder)
        say(f"loading {model}: {f'{count / 1e6:,.0f} M parameters, ' if count else ''}{size / 2**30:.1f} GiB of files")


def count_parameters(folder: Path) -> int:
    """Return the number of weights in the safetensors files of a folder, without reading them; 0 if damaged."""
    count = 0
    try:
        for path in folder.glob("*.safetensors"):
            with safe_open(path, framework="pt") as file:
                count += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 (no mapping)
    except (OSError, SafetensorError):  # the model's loader says what is wrong
        return 0
    return count
