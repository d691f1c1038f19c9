"""Checkpoints: a folder without pickles, written whole or not at all (see files.py); nothing in it is executed.

agent.json            the class, its settings, its environment where that has an id, the counters
policy/               the policy; a language model under policy/model, for AutoModelForCausalLM
reference/            the frozen reference, where the KL anchor holds one
training.pt           optimizer, random generator, what the algorithm remembers (loaded with weights_only)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .envs import named_by_checkpoint
from .failures import DivergedError
from .files import whole_folder, write_folder
from .policies import SavedPolicy

if TYPE_CHECKING:
    from .agent import Agent

FORMAT = 2  # 2: the critic of a language model is a module of its own
_AGENT, _POLICY, _REFERENCE, _TRAINING = "agent.json", "policy", "reference", "training.pt"
_COUNTERS = ("num_timesteps", "trained_timesteps", "num_episodes", "num_updates")


def save_checkpoint(agent: Agent, path: Path) -> Path:
    """Write a checkpoint, replacing an older one only when the new one is complete.

    Args:
        agent: to be saved.
        path: the folder; a suffix `.zip` is dropped.

    Returns:
        The folder.

    Raises:
        ValueError: if the path holds something else than a checkpoint, or another process is writing it.
        DivergedError: if the policy's weights are not finite; nothing is written then.
    """
    path = _folder(path)
    if path.exists() and not (path / _AGENT).is_file() and (path.is_file() or any(path.iterdir())):
        raise ValueError(f"{str(path)!r} exists and is no checkpoint; it is not replaced")
    for name, weight in agent.policy.named_parameters():
        if not weight.isfinite().all():
            kept = f"; {str(path)!r} is left as it is" if path.exists() else ""
            raise DivergedError(f"the weights of {name} are not finite any more, so they are not saved{kept}")
    write_folder(path, lambda folder: _write(agent, folder))
    return path


def load_checkpoint(
    path: Path, env: Any, device: str | torch.device, trust: bool, settings: dict[str, Any], cls: type[Agent]
) -> Agent:
    """Read a checkpoint of the agent class `cls`; see `Agent.load` for the arguments.

    Raises:
        ValueError: if this is no checkpoint, or of another class, or an environment, a learning rate or trust is
            needed.
    """
    from .algorithms import AGENTS

    path = whole_folder(_folder(path))
    if not (path / _AGENT).is_file():
        raise ValueError(f"{str(path)!r} is no checkpoint: it has no {_AGENT}")
    saved = read_facts(path)
    known = AGENTS.get(saved["agent"], cls)
    if not issubclass(known, cls):
        raise ValueError(f"{str(path)!r} holds a {known.__name__}, not a {cls.__name__}")
    if env is None and saved["env"] is None:
        raise ValueError(f"{str(path)!r} does not name its environment: pass env=...")
    env_kwargs = settings.pop("env_kwargs", saved["env_kwargs"] if env is None else None)
    checked = env_kwargs if env is not None else named_by_checkpoint(saved["env"], env_kwargs, trust)
    settings = {**saved["settings"], **({} if env is None else {"num_envs": None, "group_size": None}), **settings}
    if settings["learning_rate"] is None:
        raise ValueError(f"{str(path)!r} was trained with a function as learning_rate: pass learning_rate=...")
    policy = SavedPolicy(saved["policy_kind"], path / _POLICY)
    agent = known(policy, saved["env"] if env is None else env, env_kwargs=checked, device=device, **settings)
    if env is None:
        agent.origin["env_kwargs"] = dict(env_kwargs)
    for name in _COUNTERS:
        setattr(agent, name, saved.get(name, 0))  # checkpoints of earlier versions have no trained_timesteps
    if agent.anchor.coef and (path / _REFERENCE).is_dir():
        saved_reference = SavedPolicy(saved["policy_kind"], path / _REFERENCE)
        reference = saved_reference.load(agent.env.single_observation_space, agent.env.single_action_space)
        agent.anchor.reference = reference.to(agent.device).requires_grad_(False)
    training = torch.load(path / _TRAINING, map_location=agent.device, weights_only=True)
    agent.optimizer.load_state_dict(training["optimizer"])
    agent.load_state_dict(training["algorithm"])
    if training["device"] == agent.device.type:
        agent.generator.set_state(training["generator"].cpu())
    return agent


def read_facts(path: Path) -> dict[str, Any]:
    """Return what agent.json says.

    Raises:
        ValueError: if it cannot be read, or another version wrote it.
    """
    try:
        facts = json.loads((path / _AGENT).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path / _AGENT)!r} is damaged: {error}") from error
    if facts.get("format") != FORMAT:
        raise ValueError(f"{str(path)!r} has the checkpoint format {facts.get('format')!r}; allowed: {FORMAT}")
    return facts


def _write(agent: Agent, folder: Path) -> None:
    from .algorithms import AGENTS

    names = {cls: name for name, cls in AGENTS.items()}
    facts = {
        "format": FORMAT,
        "agent": names.get(type(agent)),  # None: a class of the user's own, which load() has to be called on
        "policy_kind": agent.policy.kind,
        "settings": agent.settings,
        **agent.origin,
        **{name: getattr(agent, name) for name in _COUNTERS},
    }
    try:
        text = json.dumps(facts, indent=2)
    except TypeError:  # made with objects: then load() has to be given the environment
        text = json.dumps({**facts, "env": None, "env_kwargs": None}, indent=2)
    (folder / _AGENT).write_text(text + "\n", encoding="utf-8")
    (folder / _POLICY).mkdir()
    agent.policy.save(folder / _POLICY)
    if agent.anchor.reference is not None:
        (folder / _REFERENCE).mkdir()
        agent.anchor.reference.save(folder / _REFERENCE)
    training = {
        "optimizer": agent.optimizer.state_dict(),
        "generator": agent.generator.get_state(),
        "device": agent.device.type,
        "algorithm": agent.state_dict(),
    }
    torch.save(training, folder / _TRAINING)


def _folder(path: Path) -> Path:
    return path.with_suffix("") if path.suffix == ".zip" else path
