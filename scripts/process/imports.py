"""Imports of large libraries, in a process that begins."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the garbage collector, and have it leave alone what was imported, unless torch is there already.

    Torch and transformers make a million objects that stay; reading them again and again takes a sixth of the start.
    """
    if "torch" in sys.modules:
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
