"""What shell completion offers, without a package that takes seconds to import."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import click
from click.shell_completion import CompletionItem

POLICIES = ("auto", "MlpPolicy", "CnnPolicy", "MultiInputPolicy", "tiny", "small", "base")  # of agents.policies
Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


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
