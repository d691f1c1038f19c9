"""What `--help` and shell completion say about packages that take seconds to import.

known.json is made by `python docs/make_known.py`; a test compares it with the packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

FILE = Path(__file__).with_name("known.json")
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


@cache
def known() -> dict[str, Any]:
    """Return what the file holds.

    Returns:
        "agents" and "policies": their names; "labs" and "benchmarks": {name: what it is about}; "agent_args":
        settings of agents without an option; "foreign": {name elsewhere: name here, where it is passed, a note};
        "settings": {name: what its option needs}; "defaults": {argument of the text environment: its default}.
    """
    return json.loads(FILE.read_text(encoding="utf-8"))


def offer(names: Callable[[], Iterable[str]], otherwise: str = "plain") -> Completer:
    """Return a function for `shell_complete` of an option, which offers names, also in a list with commas.

    Args:
        names: called when completion is asked for.
        otherwise: what the shell completes if no name fits: "file", "dir", or "plain" for nothing.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        before, comma, last = incomplete.rpartition(",")
        found = [CompletionItem(before + comma + name) for name in names() if name.startswith(last)]
        return found or ([] if otherwise == "plain" else [CompletionItem(incomplete, type=otherwise)])

    return complete


def verifiers() -> list[str]:
    """Return the names of verifiers, also those of installed plugins."""
    from verifiers.plugins.registry import list_verifiers

    return list_verifiers()


def environment_ids() -> list[str]:
    """Return the ids that Gymnasium knows, with TextGen-v0."""
    import gymnasium

    import rlenv  # noqa: F401  (registers TextGen-v0)

    return sorted(gymnasium.registry)


agents, policies, labs, benchmarks = (
    partial(lambda kind: known()[kind], kind) for kind in ("agents", "policies", "labs", "benchmarks")
)
