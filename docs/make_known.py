"""Writes scripts/console/known.json: what `--help` and shell completion show without importing the packages."""

import json

from _rlenv_benchmarks import BENCHMARKS
from _rlenv_labs import LABS
from _rlenv_scripts.console.completions import FILE
from _rlenv_scripts.main import COMMANDS, main
from _rlenv_scripts.setup.defaults import agent_settings, shown_default
from _rlenv_scripts.setup.options import Setting
from click import Context

from agents import AGENTS
from agents.core import sb3_names, trl_names
from agents.policies import NAMES


def content() -> str:
    """Return the text of the file."""
    options = [option for name in COMMANDS for option in main.get_command(Context(main), name).params]
    settings = {str(one.name) for one in options if isinstance(one, Setting) and one.show_default is None}
    agents_own = {name for cls in AGENTS.values() for name in agent_settings(cls)}
    found = {
        "agents": list(AGENTS),
        "policies": list(NAMES),
        "labs": LABS,
        "benchmarks": {name: about for name, (_, about) in BENCHMARKS.items()},
        "agent_args": sorted(agents_own - {str(one.name) for one in options}),
        "foreign": sorted({*trl_names.ALL, *sb3_names.SAID}),
        "defaults": {name: shown_default(name) for name in sorted(settings)},
    }
    return json.dumps(found, indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
