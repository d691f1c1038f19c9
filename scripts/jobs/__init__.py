"""The jobs of the commands: train, imitate, evaluate, compare, play."""

from ..process.imports import without_collector

with without_collector():
    from . import session  # noqa: F401 (with torch and transformers, which all jobs need)
