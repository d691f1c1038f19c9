"""Write the table of what each algorithm says in its own code, on appendix/papers.md: python docs/make_hooks.py."""

from __future__ import annotations

import re
from pathlib import Path

from rlenv.agents import AGENTS, Agent
from rlenv.agents.training.algorithm import Algorithm

PAGE = Path(__file__).resolve().parents[1] / "docs" / "appendix" / "papers.md"
TABLE = re.compile(r"(<!-- hooks -->\n).*?(<!-- /hooks -->)", re.DOTALL)
HOOKS = (
    *(name for name in vars(Algorithm) if callable(getattr(Algorithm, name)) and name[0] != "_"),
    "collect_rollout",
)
OURS = "rlenv.agents.algorithms."


def overridden(cls: type[Agent]) -> list[str]:
    """Return the methods that an algorithm or its parents among the algorithms define, of those that it may."""
    bodies = [vars(base) for base in cls.__mro__ if base.__module__.startswith(OURS)]
    return [name for name in HOOKS if any(name in body for body in bodies)]


def table() -> str:
    """Return the rows of all agents."""
    rows = ["| agent | says |", "|---|---|"]
    rows += [f"| `{cls.__name__}` | {', '.join(f'`{name}`' for name in overridden(cls))} |" for cls in AGENTS.values()]
    return "\n".join(rows) + "\n"


def pages() -> dict[Path, str]:
    """Return the page with the table as it is."""
    return {PAGE: TABLE.sub(lambda found: f"{found[1]}\n{table()}\n{found[2]}", PAGE.read_text(encoding="utf-8"))}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
