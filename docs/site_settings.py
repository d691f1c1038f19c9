"""Extension of mkdocstrings in mkdocs.yml: shows the settings that a class declares, with their types and defaults.

The site reads the code without running it, and there a setting is an assignment. A class shows those that it declares
itself; `help` shows those of its parents, too.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import griffe


class Settings(griffe.Extension):
    """Adds the settings of a class to its docstring."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Add a section with those that the class declares itself, if any."""
        assigned = (one.value for one in cls.members.values() if isinstance(one, griffe.Attribute))
        if cls.docstring is None or not any(str(value).startswith("setting(") for value in assigned):
            return
        rows = []
        for one in getattr(import_module(cls.module.path), cls.name)._own_settings.values():
            allowed = f" Allowed: {one.allowed}." if one.allowed else ""
            rows.append(f"    {one.name} ({one.type}): {one.about}{allowed} Default: {one.usual}.")
        cls.docstring.value += "\n\nKeyword Args: Settings:\n" + "\n".join(rows)
