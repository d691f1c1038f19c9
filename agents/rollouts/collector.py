"""Act, step, store, restart finished slots: one loop for text and control, whether a policy acts in torch or in numpy.

A rollout is a set of N episodes fixed before the first step, all of them finished; see `record.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, VectorEnv

from ..devices import to_host
from ..policies import Policy
from ..rollout import STATUSES, Rollout, map_many, map_obs
from .env_state import env_state, load_env_state
from .envs import longest_episode
from .record import Record
from .traits import EnvTraits

RESTART_SHARE = 1 / 8  # of all slots; reading prompts takes a separate pass, so several are read at a time
ENDLESS = 100_000  # steps of each slot without an end, after which an environment without a limit is refused
OnStep = Callable[[int, dict[str, Any]], bool]


class Collector:
    """Collects rollouts from a vector environment, numpy or torch, in any of Gymnasium's autoreset modes.

    Args:
        envs: the environment.
        device: where the policy is.

    Attributes:
        failure: why the verifier failed the last time; empty if it never did.
        statuses: the number of episodes of the last rollout with each of `STATUSES`, counted on the host.
        budget: steps of all slots that may pass without an end, beyond `ENDLESS` of each slot.
    """

    def __init__(self, envs: VectorEnv, device: torch.device) -> None:
        self.envs, self.device = envs, device
        self.mode: AutoresetMode = envs.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP)
        self.traits = EnvTraits.of(envs)
        self.slots_wait = self.mode is AutoresetMode.DISABLED and self.traits.finished_slots_may_step
        self._none = np.zeros(envs.num_envs, dtype=bool)
        self._seed: int | None = None
        self._place: dict[str, Any] | None = None  # of the environment, the last one that was asked for
        self._state: dict[str, Any] = {"seed": None, "env": None}  # the last one that was returned or restored
        self._warns = True
        self.failure = ""
        self.statuses = [0] * len(STATUSES)
        self.budget = 0

    def seed(self, seed: int) -> None:
        """Seed the environment at the start of the next rollout."""
        self._seed = seed

    def state_dict(self) -> dict[str, Any]:
        """Return where the environment stands between two rollouts; `env` is None if it does not say.

        If its processes have ended, that is where it stood the last time it was asked.
        """
        if self._seed is None:
            with suppress(ClosedEnvironmentError):
                self._place = env_state(self.envs)
        self._state = {"seed": self._seed, "env": None if self._seed is not None else self._place}
        return self._state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; an environment that did not say where it stood keeps its seed.

        Raises:
            ValueError: if it is the place of another environment.
        """
        seed, self._place = state["seed"], state["env"]
        if self._place is not None:
            try:
                load_env_state(self.envs, self._place)
            except ValueError as error:
                raise ValueError(f"{error} (in Python, continue_env=False starts the environment anew)") from error
        if self._place is not None or seed is not None:
            self._seed = seed
        self._state = state
        self.warn_of_loss()

    def warn_of_loss(self) -> None:
        """Warn once if something that the environment carries from episode to episode is not in its last state."""
        state = self._state
        if self._warns and state["seed"] is None and (state["env"] is None or state["env"].get("lost")):
            self._warns = False
            what = "nothing" if state["env"] is None else "only the random generators"
            warnings.warn(
                f"{what} of {self.envs!r} can be kept in a checkpoint (docs/reliability.md, Resuming): training "
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
    ) -> Rollout | None:
        """Return `num_episodes` finished episodes; None if `on_step` ended the collection.

        Args:
            policy: acts.
            num_episodes: N.
            generator: for sampling actions.
            deterministic: whether to take the likeliest action instead.
            on_step: called after every step of the environment with the number of slots that took it and local
                variables; returning False ends it.
            progress: of the training, for environments that take it; see `EnvTraits.reset_options`.

        Raises:
            ValueError: if an episode ended without the verdict that it should have, or none of them ends.
        """
        spans, waits = self.traits.groups_span_slots, self.slots_wait
        record = Record(num_episodes, self.envs.num_envs, self.device, spans, waits, policy.obs_from_actions)
        starts = np.arange(self.envs.num_envs) < (num_episodes if waits else self.envs.num_envs)
        options: dict[str, Any] = {} if starts.all() else {"reset_mask": starts}
        if progress is not None and "progress" in self.traits.reset_options:
            options["progress"] = progress
        seed, self._seed = self._seed, None
        obs, infos = self.envs.reset(seed=seed, options=options or None)
        record.start(starts, infos)
        actor = policy.make_actor(obs, self.envs.single_action_space, self.device, deterministic, generator)
        while record.unfinished:
            seen = record.see(obs, starts)
            for_env, actions, log_probs = actor.act(seen, starts, record.playing)
            obs, rewards, terminated, truncated, infos = self.envs.step(for_env)
            taken = record.add(actions, log_probs, rewards)
            if self.traits.replies_in_infos:
                actor.appended, actor.waiting = record.reply(infos), record.replies.waiting
            ended, cut, dones = self._ends(terminated, truncated, infos)
            if np.count_nonzero(dones):  # `any` takes four times as long
                self._check_judged(dones, _end_info(infos))
                cut_off = record.counting(cut & ~ended)
                if len(cut_off):
                    record.final_observations(cut_off, *self._final_observations(obs, infos, cut_off))
                answered = record.counting(dones & record.replies.answered)
                if len(answered):
                    record.final_tokens(answered, *self._final_observations(obs, infos, answered))
                record.finish(dones, ended, cut, _end_info(infos))
            if on_step is not None and not on_step(taken, {"dones": dones, "infos": infos, "rewards": rewards}):
                return None
            self._check_limit(record.count - record.ended_at)
            obs, starts = self._restart(record, obs, dones, infos)
        rollout = record.rollout()
        self.failure = record.failure or self.failure
        self.statuses = np.bincount(record.status, minlength=len(STATUSES)).tolist()
        return rollout

    def _restart(self, record: Record, obs: Any, dones: np.ndarray, infos: dict[str, Any]) -> tuple[Any, np.ndarray]:
        """Give finished slots their next episode; return observations and where they begin an episode."""
        if self.mode is AutoresetMode.SAME_STEP:
            starts = dones
        elif self.mode is AutoresetMode.NEXT_STEP:
            # The step after the end only brings the new episode's observation: it does not count.
            starts = record.rest(dones)
        else:
            starts = record.to_restart(RESTART_SHARE) if self.slots_wait else dones
            if np.count_nonzero(starts):
                obs, infos = self.envs.reset(options={"reset_mask": starts})
        if np.count_nonzero(starts):
            record.start(starts, infos)
        return obs, starts

    def _final_observations(self, obs: Any, infos: dict[str, Any], slots: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return observations, and in which rows of them is what these slots, which have just ended, are looking at."""
        if self.mode is not AutoresetMode.SAME_STEP:
            return obs, slots
        rows = [map_obs(lambda x: torch.as_tensor(x)[None], infos["final_obs"][slot]) for slot in slots]
        return map_many(torch.cat, rows), np.arange(len(slots))  # `obs` is already the next episode's

    def _ends(self, terminated: Any, truncated: Any, infos: dict[str, Any]) -> tuple[np.ndarray, ...]:
        """Return who was terminated, truncated, or either [B]; without a device read if the infos say nobody."""
        if self.traits.ends_are_in_infos and "_completion" not in _end_info(infos):
            return self._none, self._none, self._none
        ended, cut = terminated, truncated
        if isinstance(terminated, torch.Tensor):
            ended, cut = (flags.numpy() for flags in to_host(terminated, truncated))
        return np.asarray(ended), np.asarray(cut), np.asarray(ended) | np.asarray(cut)

    def _check_limit(self, steps: int) -> None:
        if steps >= ENDLESS and steps * self.envs.num_envs >= self.budget and longest_episode(self.envs) is None:
            raise ValueError(
                f"no episode has ended in {steps} steps of each slot, and the environment names no limit: pass "
                "max_episode_steps (env_kwargs={'max_episode_steps': 1000}, --env-arg max_episode_steps=1000), or wrap "
                "it in gymnasium.wrappers.TimeLimit"
            )

    def _check_judged(self, dones: np.ndarray, info: dict[str, Any]) -> None:
        judged = info.get("_verdict_status", info.get("_verdict_future", self._none))
        if self.traits.verdicts_in_infos and (dones & ~judged).any():
            raise ValueError(
                "an episode ended without a verdict: a wrapper (TimeLimit?) cut it off; limit completions with "
                "max_new_tokens instead, or let the wrapper set info['verdict_status'] to 'ok' where it pays the reward"
            )


def _end_info(infos: dict[str, Any]) -> dict[str, Any]:
    """Return the infos of the episodes that ended; with SAME_STEP, the others are of the new episodes."""
    return infos.get("final_info", infos)
