"""Keeps arrays in files between runs; nothing in them is executed, and a file that is not whole counts as absent."""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.constants import HF_HOME

import verifiers

FORMAT = b"rlenv-1\n"
TYPES = ("<u8", "<u4", "<i8", "|u1")
MOST_FILES = 24  # of one file of problems
SUFFIX, FRESH, ROWS = ".found", ".new", "rows.index"
_HEAD = struct.Struct("<8s16sQQ")  # format, hash of the rest, bytes of the facts, bytes of the arrays


def folder_of(path: Path, *asked: Any) -> Path:
    """Return the folder for a file of problems, whose name depends on its path and on what else was asked for."""
    name = _hash(json.dumps([str(path.absolute()), *asked]).encode()).hex()
    return Path(HF_HOME, "rlenv", "problems", f"{path.stem[:40]}-{name[:16]}")


def save(path: Path, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Write a file, at once or not at all; a folder that cannot be written to is left alone.

    Args:
        path: of the file.
        facts: in plain values.
        arrays: by name, of the types in `TYPES`.
    """
    shapes = [[name, array.dtype.str, len(array)] for name, array in arrays.items()]
    text = json.dumps({"facts": facts, "arrays": shapes}).encode()
    data = b"".join(np.ascontiguousarray(array).tobytes() for array in arrays.values())
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, fresh = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=FRESH)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123 (it is open already)
                file.write(_HEAD.pack(FORMAT, _hash(text, data), len(text), len(data)) + text)
                file.write(data)
            os.replace(fresh, path)  # noqa: PTH105
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh)  # noqa: PTH108
            raise
        _prune(path.parent)


def load(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Return the facts and arrays in a file; None if it is absent or damaged."""
    try:
        whole = path.read_bytes()
        form, digest, length, size = _HEAD.unpack_from(whole)
        text, data = whole[_HEAD.size : _HEAD.size + length], whole[_HEAD.size + length :]
        if (form, len(text), len(data)) != (FORMAT, length, size) or digest != _hash(text, data):
            return None
        stated, arrays, place = json.loads(text), {}, 0
        for name, kind, count in stated["arrays"]:
            if kind not in TYPES:
                return None
            arrays[name] = np.frombuffer(data, kind, count, place)
            place += arrays[name].nbytes
        return stated["facts"], arrays
    except (OSError, struct.error, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        return None


def clear(folder: Path) -> None:
    """Remove what was kept of an earlier state of a file of problems."""
    with suppress(OSError):
        for file in (folder / ROWS, *folder.glob(f"*{SUFFIX}"), *folder.glob(f".*{FRESH}")):
            file.unlink(missing_ok=True)


def name_of(*values: Any) -> str:
    """Return the name of a file for these plain values."""
    return _hash(json.dumps(values, sort_keys=True).encode()).hex() + SUFFIX


@lru_cache(maxsize=1)
def code_hash() -> str:
    """Return the hash of the code that reads problems and makes demonstrations: other code may find something else."""
    digest = hashlib.blake2b(sys.version.encode(), digest_size=16)
    for package in (Path(__file__).parents[2], Path(verifiers.__file__).parent):
        for file in filter(Path.is_file, sorted(package.rglob("*.py"))):  # editors leave broken links while they edit
            digest.update(f"{file.relative_to(package)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _prune(folder: Path) -> None:
    """Remove the oldest files beyond `MOST_FILES`."""
    files = sorted(folder.glob(f"*{SUFFIX}"), key=lambda file: file.stat().st_mtime_ns)
    for file in files[:-MOST_FILES]:
        file.unlink(missing_ok=True)


def _hash(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()
