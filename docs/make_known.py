"""Writes what others show of the packages: scripts/console/known.json (`--help`, completion) and the settings pages."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

from _rlenv_benchmarks import BENCHMARKS
from _rlenv_labs import LABS
from _rlenv_scripts.console.completions import FILE
from _rlenv_scripts.main import COMMANDS, main
from _rlenv_scripts.setup.defaults import NOT_SETTINGS, keywords
from click import Context

from agents import AGENTS, Agent
from agents.declaration import ANY, Setting
from agents.foreign_names import FOREIGN
from agents.policies import NAMES
from agents.settings import declared_by, default_of
from rlenv.envs.task import TextGenTask

PAGES = [Path(__file__).with_name(name) for name in ("settings.md", "settings-agents.md")]
KINDS = {"control": "control", "language-model": "text"}  # of policies, and how --help calls them


def content() -> str:
    """Return the text of known.json."""
    options = {option.name for name in COMMANDS for option in main.get_command(Context(main), name).params}
    defaults = {name: str(default) for name, default in keywords(TextGenTask).items() if default is not None}
    found = {
        "agents": list(AGENTS),
        "policies": list(NAMES),
        "labs": LABS,
        "benchmarks": {name: about for name, (_, about) in BENCHMARKS.items()},
        "agent_args": sorted(declared().keys() - options),
        "foreign": FOREIGN,
        "settings": {name: option(name) for name, one in declared().items() if any(x.commands for x in one.values())},
        "defaults": {name: default for name, default in defaults.items() if name not in declared_by(Agent)},
    }
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def declared() -> dict[str, dict[str, Setting]]:
    """Return the declarations of each setting, by agent; first those that only some have."""
    names = [name for cls in AGENTS.values() for name in declared_by(cls) if name not in declared_by(Agent)]
    names += [name for name in declared_by(Agent) if name not in NOT_SETTINGS]
    of_agents = {agent: declared_by(cls) for agent, cls in AGENTS.items()}
    return {name: {agent: own[name] for agent, own in of_agents.items() if name in own} for name in names}


def option(name: str) -> dict[str, Any]:
    """Return what the option of a setting needs."""
    of_agents = declared()[name]
    first = next(iter(of_agents.values()))
    facts = {"type": first.kind, "default": shown_default(name), "help": about(of_agents)}
    return facts | {"heading": first.heading, "commands": first.commands}


def about(of_agents: dict[str, Setting]) -> str:
    """Return the help of an option, with what is allowed, and the agents that have the setting if others do not."""
    said = " ".join(dict.fromkeys(one.help for one in of_agents.values()))
    choices = {agent: "" if one.choices is None else one.allowed for agent, one in of_agents.items()}
    if len(of_agents) == len(AGENTS):
        return said + next((f" One of {allowed}." for allowed in choices.values() if allowed), "")
    named = "; ".join(f"{agent}: {allowed}" if allowed else agent for agent, allowed in choices.items())
    return f"{said} For {named}."


def shown_default(name: str) -> str:
    """Return the default of a setting for `--help`: the constructors', and for None the one of each kind of policy."""
    of_agents = declared()[name]
    first, values = next(iter(of_agents.values())), {agent: one.default for agent, one in of_agents.items()}
    if first.shown:  # of most agents
        return Counter(one.shown for one in of_agents.values()).most_common(1)[0][0]
    if first.by_kind:
        return ", ".join(_usual(name, kind) for kind in KINDS)
    if len(set(values.values())) == 1:
        return str(first.default)
    agents = {value: [agent for agent in values if values[agent] == value] for value in values.values()}
    usual = max(agents, key=lambda value: len(agents[value])) if len(values) == len(AGENTS) else None
    said = {value: "most agents" if value == usual else ", ".join(those) for value, those in agents.items()}
    return ", ".join(f"{value} for {those}" for value, those in said.items())


def _usual(name: str, kind: str) -> str:
    """Return the default of most agents with this kind of policy."""
    takers = [cls for cls in AGENTS.values() if name in declared_by(cls)]
    [(value, count), *_] = Counter(default_of(name, cls, kind) for cls in takers).most_common()
    return f"{value:g} for {KINDS[kind]}" + ("" if count == len(takers) else " (most agents)")


def default_in_python(one: Setting) -> str:
    """Return the default of a setting for the tables: values as code, kinds of policies as --help calls them."""
    if one.shown:
        return one.shown
    if one.by_kind:
        values = [f"{one.by_kind[kind]} for {said}" for kind, said in KINDS.items() if kind in one.by_kind]
        if ANY in one.by_kind and len(values) < len(KINDS):
            values.append(f"{'else ' if values else ''}{one.by_kind[ANY]}")
        return ", ".join(values)
    return f'`"{one.default}"`' if isinstance(one.default, str) else f"`{one.default}`"


def types(one: Setting) -> str:
    """Return the type of a setting for the tables, without the bars of a union, which end a cell."""
    return " or ".join(f"`{part}`" for part in one.type.split(" | "))


def allowed(one: Setting) -> str:
    """Return what values may be, for the tables: a range as an interval."""
    if one.choices is not None or not one.allowed:
        return one.allowed
    low, high, above, _ = one.bounds
    return f"{'>' if above else '≥'} {low}" if high == math.inf else one.range


def pages() -> dict[Path, str]:
    """Return the pages with the tables of the settings that every agent has, and of those that some have."""
    made = {page: page.read_text(encoding="utf-8") for page in PAGES}
    for name, table in {"every": every(), "some": some()}.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        made = {
            page: marks.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
            for page, text in made.items()
        }
    return made


def every() -> str:
    """Return the table of the settings that every agent has."""
    rows = ["| setting | type | default | allowed | |", "|---|---|---|---|---|"]
    for name, one in declared_by(Agent).items():
        same = len({of_agent.default for of_agent in declared()[name].values()}) == 1 if name in declared() else True
        default = shown_default(name) if one.by_kind or one.shown or not same else default_in_python(one)
        rows.append(f"| `{name}` | {types(one)} | {default} | {allowed(one)} | {one.about} |")
    return "\n".join(rows)


def some() -> str:
    """Return the table of the settings that some agents have; a row for those with the same default and meaning."""
    rows = ["| setting | agents | type | default | allowed | |", "|---|---|---|---|---|---|"]
    for name, of_agents in declared().items():
        alike: dict[str, list[str]] = {}
        for agent, one in of_agents.items():
            said = f"{types(one)} | {default_in_python(one)} | {allowed(one)} | {one.about}"
            alike.setdefault(said, []).append(f"`{agent}`")
        if name not in declared_by(Agent):
            rows += [f"| `{name}` | {', '.join(agents)} | {said} |" for said, agents in alike.items()]
    return "\n".join(rows)


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
