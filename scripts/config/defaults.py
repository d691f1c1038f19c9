"""The settings of agents as the command line shows them, read from their classes, which import no torch."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Mapping

from rlenv._peer_names import name_here
from rlenv._setting import Setting
from rlenv._settings import declared_by
from rlenv.agents.algorithms.options import SETTINGS
from rlenv.agents.training.settings import AgentSettings

NOT_SETTINGS = ("env_kwargs", "policy_kwargs", "engine_kwargs", "tensorboard_log", "verbose")
MISSPELLED = 0.8  # so alike, as difflib has it, are an option and what was typed
EPISODES, TIMESTEPS, GROUP = 60_000, 1_000_000, 4  # of each run of rlenv compare


def by_agent(classes: Mapping[str, type[AgentSettings]] = SETTINGS) -> dict[str, dict[str, Setting]]:
    """Return the declarations of each setting, by agent.

    Args:
        classes: of the agents; by default the classes that declare options, which do not import torch.
    """
    of_agents = {agent: declared_by(cls) for agent, cls in classes.items()}
    names = dict.fromkeys(name for own in of_agents.values() for name in own if name not in NOT_SETTINGS)
    return {name: {agent: own[name] for agent, own in of_agents.items() if name in own} for name in names}


def advice(option: str, known: Collection[str]) -> str:
    """Return how a setting without an option, or of another library, is given here; empty for any other name.

    Args:
        option: as it was typed.
        known: the names of the command's options.
    """
    name = option.lstrip("-").replace("-", "_")
    if renamed := name_here(name, known):
        return renamed
    if "settings" not in known or difflib.get_close_matches(name, known, cutoff=MISSPELLED):
        return ""
    from rlenv.agents import AGENTS  # slow

    return f"pass --agent-arg {name}=..." if name in by_agent(AGENTS) else ""


def about(of_agents: dict[str, Setting]) -> str:
    """Return the help of an option, with the allowed values, and the agents that have the setting if others do not."""
    help = " ".join(dict.fromkeys(one.help for one in of_agents.values()))
    if len(of_agents) == len(SETTINGS):
        return help + next((f" One of {', '.join(one.one_of)}." for one in of_agents.values() if one.one_of), "")
    named = (f"{agent}: {', '.join(one.one_of)}" if one.one_of else agent for agent, one in of_agents.items())
    return f"{help} For {'; '.join(named)}."


def shown_default(of_agents: Mapping[str, Setting]) -> str:
    """Return the default of a setting in words: the most frequent one among the agents."""
    [(usual, count), *_] = Counter(one.usual for one in of_agents.values()).most_common()
    described = any(one.shown for one in of_agents.values())
    return usual if described or count == len(of_agents) else f"{usual}, most agents"
