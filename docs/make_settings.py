"""Write the tables of docs/appendix/settings.md: python docs/make_settings.py."""

from __future__ import annotations

import math
import re
from pathlib import Path

from rlenv._scripts.config.defaults import by_agent, shown_default
from rlenv._setting import Setting
from rlenv._settings import declared_by
from rlenv.agents import AGENTS
from rlenv.agents.training.settings import AgentSettings

PAGE = Path(__file__).parent / "appendix/settings.md"


def default_in_python(one: Setting) -> str:
    """Return the default of a setting for the tables: values as code."""
    if one.shown or one.by_kind:
        return one.usual
    return f'`"{one.default}"`' if isinstance(one.default, str) else f"`{one.default}`"


def types(one: Setting) -> str:
    """Return the type of a setting for the tables, without the bars of a union, which end a cell."""
    return " or ".join(f"`{part}`" for part in one.type.split(" | "))


def allowed(one: Setting) -> str:
    """Return the allowed values, for the tables: a range as an interval."""
    if one.one_of or not one.allowed:
        return one.allowed
    low, high, above, below = one.bounds
    if high == math.inf:
        return f"{'>' if above else '≥'} {low}"
    return f"{'(' if above else '['}{low}, {high}{')' if below else ']'}"


def pages() -> dict[Path, str]:
    """Return the page with the tables of the settings that all agents or some have."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in (("every", every()), ("some", some())):
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text = marks.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    return {PAGE: text}


def every() -> str:
    """Return the table of the settings that every agent has."""
    rows = ["| setting | type | default | allowed | |", "|---|---|---|---|---|"]
    found = by_agent(AGENTS)
    for name, one in declared_by(AgentSettings).items():
        same = len({of_agent.default for of_agent in found.get(name, {"": one}).values()}) == 1
        default = default_in_python(one) if same and not one.by_kind else shown_default(found[name])
        rows.append(f"| `{name}` | {types(one)} | {default} | {allowed(one)} | {one.about} |")
    return "\n".join(rows)


def some() -> str:
    """Return the table of the settings that some agents have; a row for those with the same default and meaning."""
    rows = ["| setting | agents | type | default | allowed | |", "|---|---|---|---|---|---|"]
    for name, of_agents in by_agent(AGENTS).items():
        alike: dict[str, list[str]] = {}
        for agent, one in of_agents.items():
            said = f"{types(one)} | {default_in_python(one)} | {allowed(one)} | {one.about}"
            alike.setdefault(said, []).append(f"`{agent}`")
        if name not in declared_by(AgentSettings):
            rows += [f"| `{name}` | {', '.join(agents)} | {said} |" for said, agents in alike.items()]
    return "\n".join(rows)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
