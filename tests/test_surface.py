"""What people rely on by name: tests/surface.txt lists it, and `python tests/test_surface.py` writes the list again."""

import ast
import difflib
import inspect
import re
from collections.abc import Iterator
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

import gymnasium as gym
from click import Command, Context, Group

import rlenv
from rlenv import agents, trl, verifiers
from rlenv._scripts.main import COMMANDS, main
from rlenv.agents import estimators, policies
from rlenv.agents.policies.actor import Actor
from rlenv.task import TextGenTask
from rlenv.textgen import TextGenEnv
from rlenv.vector_env import TextGenVectorEnv, make_vector_env
from rlenv.verifiers.plugins.registry import ENTRY_POINT_GROUP, find_verifier, verifier_origin

ROOT = Path(__file__).resolve().parents[1]
LISTED = ROOT / "tests" / "surface.txt"
PACKAGES = (agents, policies, verifiers, rlenv)
CONFIG = ConfigParser()
CONFIG.read(ROOT / "setup.cfg", encoding="utf-8")
WITH_METHODS = (agents.Agent, agents.Policy, Actor, verifiers.Verifier, verifiers.Dialogue, agents.Rollout)
TAKERS = (TextGenTask, TextGenEnv, TextGenVectorEnv, make_vector_env)  # of the arguments of TextGen-v0
METRIC = re.compile(r"(rollout|train|eval|sft|time)/[\w/*]*[a-z*]")
PLAYED = {"arith": {"levels": 2}, "guess": {}, "calculator-sums": {}}  # whose infos are looked at
ADVICE = """
The public surface has changed. If that is meant: `python tests/test_surface.py` writes tests/surface.txt again, and a
line of CHANGELOG.md says what users have to do."""


def surface() -> str:
    """Return the public names, one a line, in groups."""
    groups = {
        "names": [f"{package.__name__}.{name}" for package in PACKAGES for name in sorted(package.__all__)],
        "methods": [line for cls in WITH_METHODS for line in sorted(members(cls))],
        "estimators": [line for module in modules_of(estimators) for line in defined_in(module)],
        "the neighbour TRL": defined_in(trl),
        "entry points": [*CONFIG["options.entry_points"]["console_scripts"].split("\n")[1:], ENTRY_POINT_GROUP],
        "gym ids": sorted(name for name, made in gym.registry.items() if is_ours(str(made.entry_point))),
        "arguments of TextGen-v0": sorted({argument for taker in TAKERS for argument in takes(taker)}),
        "info keys": sorted(info_keys()),
        "metrics": sorted(metrics()),
        "agents": sorted(agents.AGENTS),
        "settings of agents": sorted(settings()),
        "verifiers": [
            f"{name} {' '.join(takes(find_verifier(name)))}".strip()
            for name in verifiers.list_verifiers()
            if verifier_origin(name) == "rlenv"
        ],
        "commands": [line for name in COMMANDS for line in options(name, main.get_command(Context(main), name))],
    }
    return "\n".join(f"[{group}]\n" + "".join(f"{line}\n" for line in lines) for group, lines in groups.items())


def is_ours(module: str) -> bool:
    return module.partition(".")[0] in {package.__name__ for package in PACKAGES}


def members(cls: type) -> Iterator[str]:
    """Yield what a class and its parents of this project define in public, methods with their arguments."""
    parents = [parent for parent in cls.__mro__ if is_ours(parent.__module__)]
    for name in {name for parent in parents for name in {*vars(parent), *inspect.get_annotations(parent)}}:
        found = inspect.getattr_static(cls, name, None)
        if not name.startswith("_"):
            yield f"{cls.__name__}.{name}{arguments(getattr(found, '__func__', found))}"


def modules_of(package: ModuleType) -> list[ModuleType]:
    return [import_module(f"{package.__name__}.{found.name}") for found in iter_modules(package.__path__)]


def defined_in(module: ModuleType) -> list[str]:
    """Return the public names that a module defines, functions and classes with their arguments."""
    own = {name: found for name, found in vars(module).items() if name[0] != "_" and not inspect.ismodule(found)}
    return sorted(
        f"{module.__name__}.{name}{arguments(found)}"
        for name, found in own.items()
        if getattr(found, "__module__", module.__name__) == module.__name__
    )


def arguments(found: object) -> str:
    return f"({', '.join(takes(found))})" if inspect.isfunction(found) or inspect.isclass(found) else ""


def takes(function: object) -> list[str]:
    """Return the arguments of a function or a constructor, with their defaults if these are short."""
    parameters = inspect.signature(function).parameters.values()
    return [shown(one) for one in parameters if one.name != "self"]


def shown(one: inspect.Parameter) -> str:
    name = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "") + one.name
    default = "" if one.default is one.empty else f"={one.default!r}"
    return name + (default if len(default) <= 30 and "<" not in default else "=...")


def settings() -> Iterator[str]:
    """Yield the arguments of agents, each default with the agents that have it."""
    owners: dict[str, list[str]] = {}
    for name, cls in sorted(agents.AGENTS.items()):
        for argument in takes(cls):
            owners.setdefault(argument, []).append(name)
    for argument, names in owners.items():
        yield argument + ("" if len(names) == len(agents.AGENTS) else f": {', '.join(names)}")


def info_keys() -> set[str]:
    """Return the keys of the infos of a reset and of steps, seen in short episodes of one environment and a batch."""
    seen = set()
    for verifier, kwargs in PLAYED.items():
        made = {"verifier": verifier, "verifier_kwargs": kwargs, "max_new_tokens": 2}
        for env in (gym.make("TextGen-v0", **made), gym.make_vec("TextGen-v0", num_envs=2, **made)):
            batched, over = hasattr(env, "num_envs"), False
            seen |= {f"reset {key}" for key in env.reset(seed=0)[1]}
            while not over:
                *_, terminated, truncated, info = env.step([0, 0] if batched else 0)
                seen |= {f"step {key}" for key in info}
                over = any(terminated | truncated) if batched else terminated or truncated
            env.close()
    return seen


def metrics() -> set[str]:
    """Return the names of metrics in the code that records them; `*` stands for a part that is put in."""
    files = [file for place in ("agents", "scripts/jobs", "scripts/run") for file in (ROOT / place).rglob("*.py")]
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in files]
    texts = (text_of(node) for tree in trees for node in ast.walk(tree))
    return {text for text in texts if METRIC.fullmatch(text)}


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "*" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def options(name: str, command: Command) -> Iterator[str]:
    if isinstance(command, Group):
        for inner, part in command.commands.items():
            yield from options(f"{name} {inner}", part)
        return
    yield name
    for one in sorted(command.params, key=lambda one: one.name):
        is_option = one.param_type_name == "option"
        yield f"{name} {' '.join([*one.opts, *one.secondary_opts]) if is_option else one.name.upper()}"


def test_the_public_surface_is_the_listed_one():
    listed = LISTED.read_text(encoding="utf-8")
    changes = difflib.unified_diff(listed.splitlines(), surface().splitlines(), "listed", "code", n=0, lineterm="")
    difference = "\n".join(changes)
    assert not difference, f"{difference}\n{ADVICE}"


if __name__ == "__main__":
    LISTED.write_text(surface(), encoding="utf-8")
