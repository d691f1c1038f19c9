"""Write the tables of the pages docs/env-*.md from the environments themselves: python docs/make_environments.py."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from gymnasium.envs.registration import load_env_creator

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.envs.task import TextGenTask
from rlenv.envs.textgen import TextGenEnv
from rlenv.envs.vector import TextGenVectorEnv

FOLDER = Path(__file__).resolve().parent
TEXT = {"verifier": "arith"}  # of the example whose spaces the page shows
CONTROL = {  # the pages, and what the numbers of an observation are
    "CartPole-v1": (
        "env-cartpole.md",
        ("cart position, m", "cart velocity, m/s", "pole angle, rad", "pole velocity, rad/s"),
    ),
    "Acrobot-v1": (
        "env-acrobot.md",
        ("cos θ1", "sin θ1", "cos θ2", "sin θ2", "velocity of θ1, rad/s", "velocity of θ2, rad/s"),
    ),
    "MountainCar-v0": ("env-mountaincar.md", ("position", "velocity per step")),
    "Pendulum-v1": ("env-pendulum.md", ("cos θ", "sin θ", "angular velocity, rad/s")),
}


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(str(cell).replace('|', 'or') for cell in row)} |" for row in rows)])


def written(value: Any) -> str:
    """Return a value as code on one line."""
    return f"`{' '.join(str(value).split())}`"


def text_spaces() -> str:
    """Return the spaces and the metadata of TextGen-v0 with the verifier `arith`, single and batched."""
    single = gym.make("TextGen-v0", **TEXT)
    batched = gym.make_vec("TextGen-v0", num_envs=4, **TEXT)
    task = single.unwrapped.task  # type: ignore[attr-defined]
    parts = single.observation_space.spaces  # type: ignore[attr-defined]
    rows = [
        ("action", written(single.action_space), f"a token id, V = {task.vocab_size}"),
        (
            "observation `tokens`",
            written(parts["tokens"]),
            f"prompt and answer, padded on the right, L = {task.max_length}",
        ),
        ("observation `length`", written(parts["length"]), "how many of the tokens are real"),
        ("batched action", written(batched.action_space), "a tensor or an array [B]"),
        ("batched `tokens`", written(batched.observation_space["tokens"]), "a torch tensor [B, L]"),  # type: ignore[index]
        ("longest episode", f"{task.max_new_tokens} steps", "`max_new_tokens`, end token included"),
        (
            "render modes",
            _modes(single),
            f"batched: {_modes(batched)}; {single.metadata['render_fps']} frames per second",
        ),
    ]
    single.close()
    batched.close()
    return table(("", 'with `verifier="arith"`', "meaning"), rows)


def _modes(env: Any) -> str:
    return ", ".join(f"`{mode}`" for mode in env.metadata["render_modes"])


def text_arguments() -> str:
    """Return every argument of TextGen-v0, single or batched, with its default and its documentation."""
    owners = {"single, batched": TextGenTask, "single": TextGenEnv, "batched": TextGenVectorEnv}
    rows = []
    for kind, owner in owners.items():
        documented = dict(arguments_of(owner))
        for name, parameter in inspect.signature(owner).parameters.items():
            if parameter.kind is not parameter.VAR_KEYWORD:
                required = parameter.default is parameter.empty
                default = "required" if required else written(_shown(parameter.default))
                rows.append((f"`{name}`", default, kind, documented[name]))
    return table(("argument", "default", "of", "meaning"), rows)


def _shown(value: Any) -> Any:
    return getattr(value, "value", repr(value))  # an enum by its value


def arguments_of(owner: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and the texts in the Args section of a docstring."""
    section = re.split(r"\n\n?Args:\n", inspect.getdoc(owner) or "")[1].split("\n\n")[0]
    for entry in re.split(r"\n(?=    \w+: )", "\n" + section)[1:]:
        name, _, meaning = entry.strip().partition(": ")
        yield name, " ".join(meaning.split())


def control_facts(env_id: str) -> str:
    """Return what Gymnasium's registry and the environment say about an id."""
    env, spec = gym.make(env_id), gym.spec(env_id)
    creator = load_env_creator(str(spec.entry_point))
    arguments = {
        name: parameter.default
        for name, parameter in inspect.signature(creator).parameters.items()
        if name not in ("self", "render_mode")
    }
    versions = sorted(name for name in gym.registry if name.split("-v")[0] == env_id.split("-v")[0])
    rows = [
        ("actions", written(env.action_space)),
        *((f"observation {i}: {name}", bounds) for i, name, bounds in _bounds(env_id, env.observation_space)),
        ("longest episode", f"{spec.max_episode_steps} steps, then `truncated`"),
        ("counts as solved", "-" if spec.reward_threshold is None else f"{spec.reward_threshold:g} on average"),
        ("arguments", ", ".join(written(f"{name}={default!r}") for name, default in arguments.items()) or "none"),
        ("render modes", f"{_modes(env)}, {env.metadata['render_fps']} frames per second"),
        ("batched by Gymnasium", "yes" if spec.vector_entry_point else "no"),
        ("versions in the registry", ", ".join(map(_version, versions))),
    ]
    env.close()
    return table(("", written(env_id)), rows)


def _bounds(env_id: str, space: Any) -> Iterator[tuple[int, str, str]]:
    assert isinstance(space, spaces.Box)
    for i, name in enumerate(CONTROL[env_id][1]):
        yield i, name, f"{space.low[i]:.4g} to {space.high[i]:.4g}"
    assert len(CONTROL[env_id][1]) == space.shape[0]


def _version(env_id: str) -> str:
    spec = gym.spec(env_id)
    solved = "" if spec.reward_threshold is None else f", solved at {spec.reward_threshold:g}"
    return f"`{env_id}` ({spec.max_episode_steps} steps{solved})"


def pages() -> dict[Path, str]:
    """Return the pages with their tables as they are now."""
    tables = {"env-textgen.md": {"spaces": text_spaces, "arguments": text_arguments}}
    for env_id, (page, _) in CONTROL.items():
        tables[page] = {"facts": lambda env_id=env_id: control_facts(env_id)}
    made = {}
    for page, makers in tables.items():
        text = (FOLDER / page).read_text(encoding="utf-8")
        for name, make in makers.items():
            before, start, rest = text.partition(f"<!-- {name} -->\n")
            _, end, after = rest.partition(f"<!-- end of {name} -->")
            assert start and end, f"{page} has no place for the table of {name}"
            text = f"{before}{start}{make()}\n{end}{after}"
        made[FOLDER / page] = text
    return made


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8", newline="\n")
