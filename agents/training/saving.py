"""What of an agent is saved, and how it goes on from there; `checkpoint.py` writes and reads the folder.

An agent is made of parts that say for themselves what they carry from update to update (`stateful.py`): each class
adds its own to `parts` and `own_parts`, and they are walked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
import torch

from .. import processes
from ..checkpoints.checkpoint import COUNTERS, Checkpoint, Counters, while_unchanged, write_checkpoint
from ..checkpoints.spaces import described, space_of
from ..checks import check_optional_count
from ..files import reading
from ..fsdp import has_part, whole
from ..policies.base import MODEL, weights_digest
from ..rollouts.envs import MissingEnv, deals_groups, seed_of
from ..rollouts.registered import named_by_checkpoint
from ..settings import attribute, check_names, functions_of, is_kept
from ..stateful import Stateful, load_states, states_of
from .surface import Surface

ClassT = TypeVar("ClassT", bound="Resumable")


class Resumable(Surface):
    """An agent that can be saved, and go on from what was saved as if there had been no break.

    Attributes:
        updating: whether an update has begun and not ended, also after an error or Ctrl-C in it; nothing is saved then.
    """

    updating: bool = attribute(init=False)

    def own_parts(self) -> dict[str, Stateful]:
        """Return what changes while a rollout is collected, by its name in a checkpoint; each process has its own."""
        return {"envs": self.collector}

    def _moment(self) -> tuple[Counters, dict[str, Any]]:
        """Return the counters and the states of `own_parts` as they are now."""
        counters = {name: getattr(self, name) for name in COUNTERS}
        return cast(Counters, counters), {**self._random_state(), **states_of(self.own_parts())}

    def save(self, path: str | Path, previous: Path | None = None) -> None:
        """Write a checkpoint folder; see `checkpoint.py`. A suffix `.zip` is dropped.

        Training continues from it as it would have without the break. While a rollout is collected, the checkpoint is
        of the moment before that rollout.

        Args:
            path: the folder.
            previous: where to move the checkpoint that is replaced; None: it is deleted.

        Raises:
            ValueError: if the path holds anything but a checkpoint, or another process is writing it.
            DivergedError: if the policy's weights are not finite or the KL reference has changed.
            RuntimeError: if an update did not end. Nothing is written after an error.
        """
        path = Path(path)
        if self.updating:
            raise RuntimeError(
                f"update {self.num_updates + 1} did not end: its weights and its optimizer do not fit together; "
                f"{str(path)!r} is left as it is: load the last checkpoint, or continue with learn()"
            )
        processes.together(self.anchor.check_reference)
        if processes.size() > 1 and not has_part(self.policy):
            processes.check_equal(weights_digest(self.policy))
        counters, own = self.before_rollout or self._moment()
        self.collector.warn_of_loss()
        facts, (moment, *others) = {**self._facts(), **counters}, processes.gather(own)
        training = {**self.training_state(), "moment": moment} | ({"other_moments": others} if others else {})
        policy, reference, state = whole((self.policy, self.anchor.reference, training))
        processes.on_main(lambda: write_checkpoint(path, facts, policy, reference, state, previous))

    def _facts(self) -> dict[str, Any]:
        """Return how the agent is made again, for agent.json."""
        own_name = vars(type(self)).get("name")  # None for a class of your own, which loads its checkpoints itself
        facts = {"agent": own_name, "policy_kind": self.policy.kind, "settings": self.settings, **self.origin}
        spaces = {"observation": self.env.single_observation_space, "action": self.env.single_action_space}
        described_spaces = {name: described(space) for name, space in spaces.items()}
        return facts | {"spaces": described_spaces, "functions": functions_of(self)}

    @classmethod
    def load(
        cls,
        path: str | Path | Checkpoint,
        env: Any = None,
        device: str | torch.device = "auto",
        trust: bool = False,
        continue_env: bool | None = None,
        **settings: Any,
    ) -> Self:
        """Read a checkpoint folder; nothing in it is executed.

        `learn(..., reset_num_timesteps=False)` then continues as the saved agent would have.

        Args:
            path: what was given to `save`, or a checkpoint that `read_checkpoint` has found whole.
            env: an environment; None makes the one the agent was trained in, if that was given by its id.
            continue_env: whether the environment continues from its saved place (in its stream of problems, of its
                random generator) instead of starting anew; None: if none of `env`, `env_kwargs`, `num_envs`,
                `group_size` and `seed` is given.
            device: as for the constructor.
            trust: whether names in the checkpoint may import any module, not only make what is registered.
            settings: constructor arguments that replace the saved ones, except those of the policy; `seed` also starts
                the generator that samples actions anew.

        Raises:
            ValueError: if this is not a whole checkpoint of this class, or needs an env, a learning rate or trust.
        """
        return while_unchanged(path, lambda saved: cls._made_of(saved, env, device, trust, continue_env, settings))

    @classmethod
    def _made_of(
        cls,
        saved: Checkpoint,
        env: Any,
        device: str | torch.device,
        trust: bool,
        continue_env: bool | None,
        settings: dict[str, Any],
    ) -> Self:
        known = class_of(saved, cls)
        if env is None and continue_env and saved.facts["env"] is None:
            raise ValueError(f"{str(saved.path)!r} does not name its environment: pass env=...")
        state = saved.training(copied=processes.size() == 1)
        with reading(saved.path):
            check_names(known, saved.facts["settings"], signature(known).parameters)
        if foreign := sorted(name for name in saved.facts["settings"] if not is_kept(known, name)):
            named = ", ".join(foreign)
            raise ValueError(f"{str(saved.path)!r} is damaged: {named} is not a setting that a checkpoint keeps")
        make: Callable[..., Self] = known  # its own arguments are those of an algorithm
        agent = make(saved.policy, device=device, **arguments(saved, env, trust, settings))
        agent._restore(saved, state, env is None, continue_env, settings)
        return agent

    def _restore(
        self,
        saved: Checkpoint,
        state: Mapping[str, Any],
        saved_env: bool,
        continue_env: bool | None,
        given: Mapping[str, Any],
    ) -> None:
        """Go on from a checkpoint, in a new agent with its policy and settings.

        Args:
            saved: the checkpoint.
            state: of the training.
            saved_env: whether the environment is the one that the checkpoint names, if any.
            continue_env: as for `load`.
            given: constructor arguments that replaced the saved ones.
        """
        same = saved_env and not isinstance(self.env, MissingEnv)
        if same:  # without the trust of this call, and with the name of a tokenizer that is gone
            asked = given.get("env_kwargs", saved.facts["env_kwargs"])
            known_as = {**self.origin["env_kwargs"], **asked}
            self.origin["env_kwargs"] = {key: known_as[key] for key in known_as if key != "trust" or key in asked}
        facts: Mapping[str, Any] = saved.facts
        for name in COUNTERS:
            setattr(self, name, facts[name])
        wanted = self.kl_coef or "kl_coef" not in given or self.needs_teacher
        if self.anchor.reference is None and wanted:
            self.anchor.reference = saved.load_reference(self.policy, self.env)
        if continue_env is None:
            continue_env = same and given.keys().isdisjoint({"env_kwargs", "num_envs", "group_size", "seed"})
        with reading(saved.path):
            self.load_training_state(state)
            self._continue(state, continue_env, "seed" in given)
        for policy in filter(None, (self.policy, self.anchor.reference)):
            policy.adopt_tokenizer(self.env.metadata)

    def _continue(self, state: Mapping[str, Any], continue_env: bool, own_seed: bool) -> None:
        """Restore what `_moment` returned; the generators without a seed of the user's only.

        The moment of another number of processes has the same place in the stream of problems, if they share one; what
        they sampled is not continued.
        """
        moments = [state["moment"], *state.get("other_moments", ())]
        own_process = len(moments) == processes.size()
        moment = moments[processes.rank() if own_process else 0]
        fresh = int(np.random.SeedSequence([self.seed, self.num_updates]).generate_state(1)[0] >> 1)
        if not own_seed:
            self._load_random_state(moment, None if own_process else fresh)
        parts = self.own_parts()
        if continue_env and (own_process or deals_groups(self.env)):
            self.collector.seed(fresh)  # for an environment that did not say where it stood
        else:
            parts = {name: part for name, part in parts.items() if part is not self.collector}
            if continue_env:
                self.collector.seed(seed_of(self.env, fresh))
        load_states(parts, moment)


def class_of(saved: Checkpoint, cls: type[ClassT]) -> type[ClassT]:
    """Return the class of the agent in a checkpoint.

    Args:
        saved: the checkpoint.
        cls: the class that is to load it.

    Raises:
        ValueError: if it is not `cls` or below, or a class of the user's own, which no name leads to.
    """
    name = saved.facts["agent"]
    roots: tuple[type[Resumable], ...] = (cls, Resumable)
    known = _class_named(name, *roots) or cls
    if vars(known).get("_is_root"):
        named = f", {name!r}" if name else ""
        raise ValueError(f"{str(saved.path)!r} holds an agent of a class of your own{named}: call that class's load()")
    if not issubclass(known, cls):
        raise ValueError(f"{str(saved.path)!r} holds a {known.__name__}, not a {cls.__name__}")
    return known


def arguments(saved: Checkpoint, env: Any, trust: bool, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments besides the policy: the saved ones, replaced by those given.

    Args:
        saved: the checkpoint.
        env: an environment; None for the saved one, or, if that has no name, one that has its spaces and cannot be
            played. Another one has its own slots and groups.
        trust: whether names in the checkpoint may import modules; see `registered.named_by_checkpoint`.
        settings: keyword arguments that replace saved ones.

    Raises:
        ValueError: if an environment, trust or a learning rate has to be given.
    """
    kept = {"learning_rate": None, **saved.facts["settings"]}
    for name in [name for name in saved.facts["functions"] if name not in settings]:
        raise ValueError(f"{str(saved.path)!r} was trained with a function as {name}: pass {name}=...")
    if env is None and saved.facts["env"] is None:
        env = _missing_env(saved)
    if env is None:
        arguments = {**kept, "env": saved.facts["env"], "env_kwargs": saved.facts["env_kwargs"], **settings}
        arguments["env_kwargs"] = named_by_checkpoint(arguments["env"], arguments["env_kwargs"], trust)
        if _has_the_only(saved, arguments["env_kwargs"].get("tokenizer")):
            arguments["env_kwargs"]["tokenizer"] = str(saved.policy.folder / MODEL)
    else:
        arguments = {**kept, "env": env, "num_envs": None, "group_size": None, **settings}
    if arguments["learning_rate"] is None:
        raise ValueError(f"{str(saved.path)!r} was trained with a function as learning_rate: pass learning_rate=...")
    return arguments


def _has_the_only(saved: Checkpoint, tokenizer: Any) -> bool:
    """Tell whether the folder of this tokenizer is gone, but the policy has a copy of it."""
    copy = saved.policy.folder / MODEL / "tokenizer_config.json"
    gone = isinstance(tokenizer, str) and Path(tokenizer).is_absolute() and not Path(tokenizer).is_dir()
    return gone and copy.is_file()


def _missing_env(saved: Checkpoint) -> MissingEnv:
    """Return what stands for an environment that has no name.

    Raises:
        ValueError: if the spaces could not be described.
    """
    spaces = saved.facts["spaces"]
    if None in (spaces.get("observation"), spaces.get("action")):
        raise ValueError(f"{str(saved.path)!r} does not name its environment: pass env=...")
    size = check_optional_count("group_size", saved.facts["settings"].get("group_size"))
    return MissingEnv(space_of(spaces["observation"]), space_of(spaces["action"]), size)


def _class_named(name: str | None, *roots: type[ClassT]) -> type[ClassT] | None:
    """Return the class that defines this `name`, among classes and their subclasses, the newest first."""
    for root in roots:
        if name is not None and vars(root).get("name") == name:
            return root
        found = _class_named(name, *reversed(root.__subclasses__()))
        if found is not None:
            return found
    return None
