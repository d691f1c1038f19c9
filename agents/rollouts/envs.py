"""Vector environments made from a user's environment (an id, an Env, a VectorEnv), and their limits."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import SyncVectorEnv, VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from rlenv._checks import first_line

from .. import processes
from .env_protocol import EnvTraits

# What an agent's loop asks for and other users of the environment would not expect.
LOOP_SETTINGS = {"late_verdicts": True, "late_replies": True, "flag_errors": True}
_HOW_TO_BATCH = {"vectorization_mode", "vector_kwargs"}  # arguments of gymnasium.make_vec


def find_spec(env_id: str) -> EnvSpec:
    """Return an id's entry in Gymnasium's registry.

    Args:
        env_id: an id of Gymnasium; with a module or a file before it ("package:Name-v0", "file.py:Name-v0"), which is
            imported. It registers the id, or has a class of that name ("file.py:Class").

    Raises:
        ValueError: for an unknown id, with the closest match; a module that cannot be imported.
    """
    module, _, name = env_id.rpartition(":")
    found = None
    try:
        if module:
            found = getattr(_imported(module), name, None)
            if isinstance(found, type) and issubclass(found, gym.Env):
                return EnvSpec(name, found)
        return gym.spec(name)
    except (Exception, SystemExit) as error:  # a module may raise anything while it is imported
        if found is not None:
            is_a = "not derived from gymnasium.Env" if isinstance(found, type) else f"a {type(found).__name__}"
            allowed = "allowed: a class derived from gymnasium.Env, or an id that its module registers"
            raise ValueError(f"{env_id!r} is {is_a}; {allowed}") from error
        hint = f"; name its package, as in 'rlenv:{env_id}', or import that first (`import rlenv`)"
        if env_id.endswith(".py"):
            hint = f"; name the class in the file, as in '{env_id}:{Path(env_id).stem.title()}'"
        elsewhere = isinstance(error, (gym.error.NameNotFound, gym.error.NamespaceNotFound)) and not module
        said = first_line(error).rstrip(".") + hint * elsewhere
        raise ValueError(f"unknown environment {env_id!r}: {said}") from error


def full_id(env_id: str) -> str:
    """Return an id with the package of the registered environment, if that is not Gymnasium's: `rlenv:TextGen-v0`.

    Gymnasium imports that package wherever the environment is made again.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    spec = find_spec(env_id)
    entry = spec.entry_point or spec.vector_entry_point
    package = entry.partition(":")[0].partition(".")[0] if isinstance(entry, str) else "gymnasium"
    return env_id if ":" in env_id or package == "gymnasium" else f"{package}:{env_id}"


def _imported(module: str) -> ModuleType:
    """Return the module of this name or in this file, which finds its neighbours after everything that is installed."""
    if not module.endswith(".py"):
        return importlib.import_module(module)
    if module not in sys.modules:
        spec = spec_from_file_location(module, module)
        assert spec is not None and spec.loader is not None
        loaded = module_from_spec(spec)
        sys.path.append(str(Path(module).absolute().parent))
        sys.modules[module] = loaded  # before it runs: dataclasses look there
        try:
            spec.loader.exec_module(loaded)
        except BaseException:
            del sys.modules[module]
            raise
    return sys.modules[module]


def traits_of(env_id: str) -> EnvTraits:
    """Return the traits of the vector environment that is registered with an id, without making it.

    Raises:
        ValueError: for an unknown id, with the closest match.
    """
    entry = find_spec(env_id).vector_entry_point
    return EnvTraits.of(load_env_creator(entry) if isinstance(entry, str) else entry)


def make_envs(
    env: Any, num_envs: int, env_kwargs: Mapping[str, Any] | None, skip_finished: bool = False, **offers: Any
) -> VectorEnv:
    """Return the vector environment that `env` stands for.

    Args:
        env: an id ("CartPole-v1", "package:Name-v0", "file.py:Class"; see `find_spec`), a single environment, a vector
            environment or a `VecEnv` of stable-baselines3.
        num_envs: B, the number of slots, if `env` is an id; several processes share them.
        env_kwargs: for the environment's constructor, if `env` is an id; `vectorization_mode` and `vector_kwargs` are
            for `gymnasium.make_vec`.
        skip_finished: whether slots should stay finished between two episodes instead of playing surplus ones, for
            training, where every step is counted. An id makes a `NoAutoresetVectorEnv` (CartPole a
            `NoAutoresetCartPole`), unless its registered vector environment has such slots, or `vectorization_mode`
            asks for another kind.
        offers: settings that an agent would like to choose (device, group_size, `LOOP_SETTINGS`); used if they are
            among the environment's traits (`agent_settings`) and not in `env_kwargs`.

    Raises:
        ValueError: for an unknown id (with the closest match), bad arguments, arguments of an environment that is made,
            or anything but an environment.
    """
    if env_kwargs and not isinstance(env, str):
        raise ValueError(
            f"env_kwargs={dict(env_kwargs)} is for the id of an environment, got {env!r}: pass them where it is made"
        )
    if isinstance(env, VectorEnv):
        return env
    if isinstance(env, VecEnv):
        from .sb3_envs import FromVecEnv  # for these alone

        return FromVecEnv(env)
    if isinstance(env, gym.Env):
        return _side_by_side(env, skip_finished)
    if not isinstance(env, str):
        allowed = "an id, a gymnasium.Env, a gymnasium VectorEnv or a VecEnv of stable-baselines3"
        raise ValueError(f"an environment is {allowed}, got {env!r}")
    if processes.size() > 1:
        num_envs = max(processes.share(num_envs), 1)
        offers["share"] = (processes.rank(), processes.size())
    spec, traits = find_spec(env), traits_of(env)
    wanted = {name: value for name, value in offers.items() if name in traits.agent_settings}
    kwargs = {**wanted, **(env_kwargs or {})}
    batched = spec.entry_point is None or traits.finished_slots_may_step or kwargs.keys() & _HOW_TO_BATCH
    try:
        if batched or (spec.vector_entry_point is not None and not skip_finished):
            return gym.make_vec(spec, num_envs=num_envs, **kwargs)
        return _side_by_side(spec, skip_finished, num_envs, kwargs)
    except (gym.error.Error, TypeError) as error:
        raise ValueError(f"environment {env!r}: {first_line(error)}") from error


def _side_by_side(env: gym.Env | EnvSpec, skip_finished: bool, num_envs: int = 1, kwargs: Any = None) -> VectorEnv:
    """Return slots with a single environment, or with those that an entry of the registry makes with `kwargs`."""
    from .env_checks import check_env, make_checked  # environments of text are batched
    from .no_autoreset import NoAutoresetCartPole, NoAutoresetVectorEnv

    slots = NoAutoresetVectorEnv if skip_finished else SyncVectorEnv
    if isinstance(env, gym.Env):
        return slots([partial(check_env, env)])
    if skip_finished and NoAutoresetCartPole.fits(env, kwargs):
        slots = NoAutoresetCartPole
    return slots([partial(make_checked, env, **kwargs)] * num_envs)


def takes_tokenizer(env: Any) -> bool:
    """Return whether this is the id of an environment that agents may choose the tokenizer of: it is one of text."""
    return isinstance(env, str) and "tokenizer" in traits_of(env).agent_settings


def env_maker(
    env: Any, env_kwargs: Mapping[str, Any] | None, policy: Any, **offers: Any
) -> tuple[partial[VectorEnv], dict[str, Any]]:
    """Return the maker of an agent's environment, given `num_envs`, and its name in a checkpoint: its id, if any.

    Args:
        env: as for `make_envs`.
        env_kwargs: the user's; the tokenizer that the policy brings is added.
        policy: as for `policies.make_policy`.
        offers: further arguments of `make_envs`.
    """
    named = env_kwargs
    if takes_tokenizer(env):
        from ..language.vocabulary import with_tokenizer  # of text alone

        named = with_tokenizer(env_kwargs, policy)
    origin: dict[str, Any] = {"env": None, "env_kwargs": None}
    if isinstance(env, str):
        origin = {"env": full_id(env), "env_kwargs": dict(named or {})}
    return partial(make_envs, env, env_kwargs=named, **offers), origin


@contextmanager
def closed_on_error(made: VectorEnv, env: Any) -> Iterator[None]:
    """Close what `make_envs` made of an id after an error in this context; the user's own object stays open."""
    try:
        yield
    except BaseException:
        if isinstance(env, str):
            made.close()
        raise


class MissingEnv(VectorEnv):
    """Stands for the environment of an agent that was loaded without one: it has spaces, and cannot be played.

    Args:
        observation_space: of one environment.
        action_space: of one environment.
        group_size: of the agent; None without groups.
    """

    num_envs = 1

    def __init__(self, observation_space: gym.Space, action_space: gym.Space, group_size: int | None) -> None:
        self.single_observation_space, self.single_action_space = observation_space, action_space
        traits = {"groups_span_slots": True, "reset_options": ("groups",)}
        self.metadata = {"group_size": group_size, "traits": traits}

    def reset(self, **kwargs: Any) -> Any:
        """Raise an error with the way to give an environment.

        Raises:
            ValueError: always.
        """
        raise ValueError("the agent was loaded without an environment: call set_env(env), or pass env=... to load()")


def seed_of(env: VectorEnv, seed: int) -> int:
    """Return the seed of this process's environment: all share one stream if the environment deals it out."""
    return seed if shares_stream(env) else seed + sum(processes.gather(env.num_envs)[: processes.rank()])


def shares_stream(env: VectorEnv) -> bool:
    """Return whether the environment poses this process's share of one stream, and numbers its groups over all."""
    return env.metadata.get("share") == (processes.rank(), processes.size())


def step_limit(env: VectorEnv, max_steps: int | None) -> int:
    """Return the steps of the longest possible episode: the setting of an agent, else what the environment says.

    Raises:
        ValueError: if neither says.
    """
    known = max_steps or longest_episode(env)
    if known is None:
        raise ValueError("the environment does not say how long an episode may be: pass max_steps")
    return known


def longest_episode(env: VectorEnv) -> int | None:
    """Return the steps of the longest possible episode; None if the environment does not say."""
    limits: list[Any] = []
    for one in (env, *getattr(env.unwrapped, "envs", ())):
        limits.append(one.metadata.get("max_episode_steps"))
        if one.spec is not None:
            limits += [one.spec.kwargs.get("max_episode_steps"), one.spec.max_episode_steps]
    return next((int(limit) for limit in limits if limit), None)


def check_groups(env: VectorEnv, asked: int | None, episodes: int, compares: str | None) -> int | None:
    """Return how many episodes share a prompt; None if the environment has no groups.

    Args:
        env: declares its groups in `metadata["group_size"]`.
        asked: the group size that the user gave, if any.
        episodes: of an update.
        compares: the name of the agent if it compares the episodes of a group.

    Raises:
        ValueError: if the environment does not fit; `processes.check_episodes` checks the number of episodes.
    """
    size = env.metadata.get("group_size")
    specs = (one.spec for one in (env, *getattr(env.unwrapped, "envs", ())))
    name = next((repr(spec.id) for spec in specs if spec is not None), "id")
    if asked is not None and size != asked:
        has = "has no groups" if size is None else f"has group_size={size}; make it with group_size={asked}"
        raise ValueError(f"this environment does not support group_size={asked}: it {has}")
    if (size or 1) > 1 and not EnvTraits.of(env).groups_span_slots:
        raise ValueError(
            f"group_size={size} needs slots that share their groups, but here each slot has its own; "
            f"use gym.make_vec({name}, num_envs=..., group_size={size}), or the id as env"
        )
    if compares and (size or episodes) == 1:
        setting = "episodes_per_update" if size is None else "group_size"
        hint = ""
        if size is not None and asked is None:
            hint = f"; pass the id as env, or gym.make_vec({name}, ..., group_size=4)"
        raise ValueError(f"{compares} compares episodes of a group, so {setting} must be at least 2, got 1{hint}")
    return size


def check_spaces(
    where: str, own: VectorEnv, other: VectorEnv, form: Callable[[Any], Any] = lambda space: space
) -> None:
    """Check that the spaces of another environment are those of a policy, or have the same form.

    Raises:
        ValueError: if not; it begins with `where`.
    """
    for kind in ("observation", "action"):
        ours, theirs = (getattr(envs, f"single_{kind}_space") for envs in (own, other))
        if form(ours) != form(theirs):
            shown = " ".join(f"the {kind} space {theirs} is not that of the policy, {ours}".split())
            raise ValueError(f"{where}: {shown}")


def form_of(space: gym.Space) -> tuple[Any, ...]:
    """Return the parts of a space by which it fits a policy; contexts may be longer, and bounds others."""
    if isinstance(space, gym.spaces.Dict):
        of_text = space.keys() == {"tokens", "length"}
        return gym.spaces.Dict, sorted((name, () if of_text else form_of(part)) for name, part in space.items())
    return type(space), space.shape, np.asarray(getattr(space, "nvec", getattr(space, "n", 0))).tolist()


def check_replays(env: VectorEnv, who: str) -> None:
    """Check that an environment can pose the prompts of a rollout again.

    Raises:
        ValueError: if it cannot; `who` needs that.
    """
    if "groups" not in EnvTraits.of(env).reset_options:
        raise ValueError(
            f"{who} plays the prompts of a rollout again, which {env!r} cannot pose twice; use an environment of text "
            'by its id, or one with "groups" among the reset_options of its traits'
        )


def resolve_device(device: str | torch.device, env: Any) -> torch.device:
    """Return the torch device.

    "auto" is the device of an environment object that has one, CUDA for an id whose environment can run there on a
    machine with CUDA, else the CPU.

    Raises:
        ValueError: if this machine does not have the device.
    """
    if device == "auto":
        if not isinstance(env, str):
            return torch.device(getattr(getattr(env, "unwrapped", env), "device", "cpu"))
        on_gpu = "device" in traits_of(env).agent_settings and torch.cuda.is_available()
        return torch.device("cuda" if on_gpu else "cpu")
    try:
        resolved = torch.device(device)
        torch.empty(0, device=resolved)
        torch.Generator(resolved)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = first_line(error).split(". ")[0]  # advice on linking torch follows
        apple = ["mps"] if torch.backends.mps.is_available() else []
        usable = ", ".join(["auto", "cpu", *apple, *(f"cuda:{index}" for index in range(torch.cuda.device_count()))])
        raise ValueError(f"device {str(device)!r} cannot be used here: {reason}; allowed: {usable}") from error
    return resolved
