"""One object of an environment class: its methods as tools, and what it says and pays."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..base import Verdict
from ..function import as_verdict, wait_for
from .tool import Tool
from .toolbox import Toolbox

OWN = ("reset", "get_reward")  # methods that are not tools


class Instance:
    """One object of an environment class, with its tools.

    Args:
        env: the object.
        result_length: characters of all results of a turn.

    Raises:
        ValueError: for an object without `reset`.
    """

    def __init__(self, env: Any, result_length: int) -> None:
        self.env, self.name = env, type(env).__name__
        methods = [name for name, _ in inspect.getmembers(type(env), inspect.isfunction) if name[0] != "_"]
        if "reset" not in methods:
            raise ValueError(f"{self.name} has no method reset(**columns), which TRL's environment classes have")
        self.pays = "get_reward" in methods
        tools = [Tool(getattr(env, name), isolated=False) for name in methods if name not in OWN]
        self.box = Toolbox(tools, result_length)

    def reset(self, columns: Mapping[str, Any], seed: int) -> str:
        """Begin an episode; return what is appended to the prompt.

        Args:
            columns: of the problem.
            seed: for a parameter of this name, if no column is called so.

        Raises:
            ValueError: if `reset` returns something other than a text or None.
        """
        observation = wait_for(self.env.reset(**_taken(self.env.reset, columns, seed)))
        if not (observation is None or isinstance(observation, str)):
            raise ValueError(f"{self.name}.reset must return a text or None, got {observation!r:.60}")
        return observation or ""

    def reward(self) -> Verdict:
        """Return what `get_reward` says, and that it does not apply if there is none."""
        paid = wait_for(self.env.get_reward()) if self.pays else None
        return as_verdict(f"{self.name}.get_reward", paid)


def _taken(method: Callable[..., Any], columns: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the columns that a method has parameters for; an empty answer only if it is asked for by name."""
    parameters = inspect.signature(method).parameters.values()
    named = {each.name: {"seed": seed, **columns}[each.name] for each in parameters if each.name in {"seed", *columns}}
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return {name: value for name, value in columns.items() if name != "answer" or value} | named
    return named
