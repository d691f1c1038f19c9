"""Extension of mkdocstrings in mkdocs.yml: shows the settings that a class adds, with their types and defaults.

The site reads the code without running it, and there a setting is an assignment. An algorithm shows those of its class
in `agents/algorithms/options.py`, too; `help` shows those of all its parents.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import griffe

from rlenv._settings import WithSettings
from rlenv.agents.training.agent import Agent

PLACES = ("rlenv.agents.algorithms.", "rlenv.agents.training.", "rlenv.forms.")


class Settings(griffe.Extension):
    """Adds the settings of a class to its docstring."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add a section with those that the class and its settings declare, if any."""
        found = getattr(import_module(cls.module.path), cls.name) if cls.path.startswith(PLACES) else object
        if cls.docstring is None or not issubclass(found, WithSettings):
            return
        whole = issubclass(found, Agent) or cls.path.startswith("rlenv.forms.")
        own = [found, *(base for base in found.__bases__ if whole and not issubclass(base, Agent))]
        rows = []
        for one in (one for base in own for one in getattr(base, "_own_settings", {}).values()):
            allowed = f" Allowed: {one.allowed}." if one.allowed else ""
            rows.append(f"    {one.name} ({one.type}): {one.about}{allowed} Default: {one.usual}.")
        if rows:
            cls.docstring.value += "\n\nKeyword Args: Settings:\n" + "\n".join(rows)
