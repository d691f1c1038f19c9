"""Imports files that belong to no package: those of docs/, examples/ and tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def loaded(path: str) -> ModuleType:
    """Import a file by its path in the repository, anew."""
    spec = importlib.util.spec_from_file_location("loaded_" + path.removesuffix(".py").replace("/", "_"), ROOT / path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module
