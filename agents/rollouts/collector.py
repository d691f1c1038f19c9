"""Act, step, store, restart finished slots: one loop for text and control, whether a policy acts in torch or in numpy.

A rollout is a set of N episodes fixed before the first step, all of them finished; see `record.py`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import torch
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import VectorEnv

from rlenv._loop import always
from rlenv._status import STATUSES

from ..policies import Policy
from ..rollout import Rollout
from .env_protocol import EnvSlots
from .env_state import env_state, load_env_state
from .envs import longest_episode
from .record import Record

ENDLESS = 100_000  # steps of each slot without an end, after which an environment without a limit is refused
OnStep = Callable[[int, dict[str, Any]], bool]


class Collector:
    """Collects rollouts from a vector environment, numpy or torch, in any of Gymnasium's autoreset modes.

    Args:
        envs: the environment.
        device: where the policy is.

    Attributes:
        spell: makes tokens [F], the extra "feedback", of the reasons that verdicts give; None to drop these.
        goes_on: asked while verdicts, replies or an engine are waited for; returning False ends the collection.
        failure: why the verifier failed the last time; empty if it never did.
        statuses: the number of episodes of the last rollout with each of `STATUSES`, counted on the host.
        budget: steps of all slots that may pass without an end, beyond `ENDLESS` of each slot.
        steps: that the slots took in the last rollout.
        seconds: of the last rollout, in the policy ("acting") and in the rest ("environment", with its verifier);
            together ("rollout") on a device, which works while the host goes on.
    """

    def __init__(self, envs: VectorEnv, device: torch.device) -> None:
        self.envs, self.device = envs, device
        self.slots = EnvSlots(envs)
        self._seed: int | None = None
        self._state: dict[str, Any] = {"seed": None, "env": None}  # the last one that was returned or restored
        self._warns = True
        self.spell: Callable[[str], torch.Tensor] | None = None
        self.goes_on: Callable[[], bool] = always
        self.failure = ""
        self.statuses = [0] * len(STATUSES)
        self.budget = self.steps = 0
        self.seconds = dict.fromkeys(("acting", "environment") if device.type == "cpu" else ("rollout",), 0.0)

    def seed(self, seed: int) -> None:
        """Seed the environment at the start of the next rollout."""
        self._seed = seed

    def state_dict(self) -> dict[str, Any]:
        """Return where the environment stands between two rollouts; `env` is None if it does not say.

        If its processes have ended, that is where it stood the last time it was asked.
        """
        place = None
        if self._seed is None:
            try:
                place = env_state(self.envs)
            except ClosedEnvironmentError:
                place = self._state["env"]
        self._state = {"seed": self._seed, "env": place}
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from `state_dict`; an environment without a saved state keeps its seed.

        Raises:
            ValueError: if it is the place of another environment.
        """
        if state["env"] is not None:
            try:
                load_env_state(self.envs, state["env"])
            except ValueError as error:
                raise ValueError(f"{error} (in Python, continue_env=False starts the environment anew)") from error
        if state["env"] is not None or state["seed"] is not None:
            self._seed = state["seed"]
        self._state = state
        self.warn_of_loss()

    def warn_of_loss(self) -> None:
        """Warn once if something that the environment may carry from episode to episode is not in its last state."""
        place = self._state["env"]
        lost = [f"nothing of {self.envs!r}"] if place is None else place["lost"]
        if self._warns and self._state["seed"] is None and lost:
            self._warns = False
            warnings.warn(
                f"{' and '.join(lost)} can be kept in a checkpoint (docs/resuming.md): training "
                "continues from one in a fresh environment",
                stacklevel=3,
            )

    @torch.no_grad()
    def collect(
        self,
        policy: Policy,
        num_episodes: int,
        generator: torch.Generator | None = None,
        deterministic: bool = False,
        on_step: OnStep | None = None,
        progress: Mapping[str, Any] | None = None,
        groups: Sequence[int] | None = None,
    ) -> Rollout | None:
        """Return `num_episodes` finished episodes; None if `on_step` or `goes_on` ended the collection.

        Args:
            policy: acts.
            num_episodes: N.
            generator: for sampling actions.
            deterministic: whether to take the likeliest action instead.
            on_step: called after every step of the environment with the number of slots that took it and local
                variables; returning False ends it.
            progress: of the training, for environments that take it; see `EnvTraits.reset_options`.
            groups: of each episode, to pose their prompts again; None for the next ones.

        Raises:
            ValueError: if an episode ended without the verdict that it should have, or no episode ends.
        """
        slots, began, acting, self.steps = self.slots, time.perf_counter(), 0.0, 0
        has_groups = self.envs.metadata.get("group_size") is not None  # else its info "group" means something else
        spans = slots.traits.groups_span_slots if has_groups else None
        record = Record(num_episodes, slots.num_envs, self.device, spans, policy.obs_from_actions)
        starts = np.arange(slots.num_envs) < (num_episodes if slots.slots_finish else slots.num_envs)
        seed, self._seed = self._seed, None
        obs, infos = slots.reset(starts, seed, progress=progress, groups=groups, goes_on=self.goes_on)
        record.start(starts, infos)
        actor = policy.make_actor(obs, self.envs.single_action_space, self.device, deterministic, generator)
        try:
            while record.unfinished:
                seen = record.see(obs, starts)
                asked = time.perf_counter()
                for_env, actions, log_probs = actor.act(seen, starts, slots.playing)
                acting += time.perf_counter() - asked
                record.note_actions(actions, log_probs)
                step = slots.step(for_env, actor.acting)
                record.add(step)
                actor.appended, actor.waiting = step.appended, slots.waiting
                self.steps += step.taken
                if on_step is not None:
                    local = {"dones": step.dones, "infos": step.infos, "rewards": step.rewards}
                    if not on_step(step.taken, local):
                        return None
                self._check_limit(record.without_end)
                over = record.to_restart() if slots.slots_finish else step.dones
                obs, starts, infos = slots.restart(over, step)
                if np.count_nonzero(starts):  # `any` takes four times as long
                    record.start(starts, infos)
            rollout = record.rollout(self.goes_on)
        except CancelledError:
            if self.goes_on():  # it is somebody else's
                raise
            return None
        outcomes = record.outcomes
        if self.spell is not None:
            feedback = torch.stack(list(map(self.spell, outcomes.reasons)))
            rollout = rollout.with_extras(feedback=feedback.to(self.device))
        self.failure = outcomes.failure or self.failure
        self.statuses = np.bincount(outcomes.status, minlength=len(STATUSES)).tolist()
        whole = time.perf_counter() - began
        spent = {"acting": acting, "environment": whole - acting, "rollout": whole}
        self.seconds = {part: spent[part] for part in self.seconds}
        return rollout

    def _check_limit(self, steps: int) -> None:
        if steps >= ENDLESS and steps * self.envs.num_envs >= self.budget and longest_episode(self.envs) is None:
            raise ValueError(
                f"no episode has ended in {steps} steps of each slot, and the environment names no limit: pass "
                "max_episode_steps (env_kwargs={'max_episode_steps': 1000}, --env-arg max_episode_steps=1000), or wrap "
                "it in gymnasium.wrappers.TimeLimit"
            )
