"""Any vector environment, in any autoreset mode, as slots that play one episode after another.

A collector calls `reset` once, then `step` and `restart` in turn. The differences of environments are here: who starts
the next episode and when, where the last observation and the infos of an episode are, on which device its flags are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

from ..devices import to_host
from ..rollout import Obs, map_many, map_obs


@dataclass(frozen=True)
class EnvTraits:
    """Traits of a vector environment, declared in `metadata["traits"]`, a mapping with these keys.

    Beside them, the metadata of a text environment has its "tokenizer", its "stop_token_ids", the "hidden_token_ids"
    that are not in texts, which are its other special tokens, "prompt_tail": the tokens of the chat template after the
    last message of a prompt, and "part_weights": the weights by name if the reward is a weighted sum of parts of the
    verdict. With a "group_size", the infos of each reset have the number of the episode's "group".

    Attributes:
        finished_slots_may_step: without autoreset, stepping a finished slot does nothing and pays 0.
        ends_are_in_infos: a step whose infos have no "completion" ends no episode.
        verdicts_in_infos: the infos of every end have a "verdict_status", or a "verdict_future" for a later one.
        replies_in_infos: tokens that the environment appends to a text after an action are in the infos of that step,
            as their number "appended"; slots that wait for them after a step, whose next action is ignored, are in its
            infos as "waiting". A reward while a slot waits is its last action's.
        groups_span_slots: group numbers in the infos are unique over all slots.
        reset_options: what `reset` takes in `options` at the start of each rollout: "progress", a mapping with
            `num_updates` and `max_updates` (None if unknown); "groups", the numbers of groups whose prompts are posed
            again instead of the next ones, one episode each in this order, until `load_state_dict` or a reset without
            a mask (`Agent.replay`); "goes_on", a function that `step` asks while it waits for replies: once it returns
            False, `step` raises `concurrent.futures.CancelledError`.
        agent_settings: constructor arguments that an agent may choose, such as "device".
    """

    finished_slots_may_step: bool = False
    ends_are_in_infos: bool = False
    verdicts_in_infos: bool = False
    replies_in_infos: bool = False
    groups_span_slots: bool = False
    reset_options: tuple[str, ...] = ()
    agent_settings: tuple[str, ...] = ()

    @classmethod
    def of(cls, env: object) -> EnvTraits:
        """Return the traits of a vector environment, or of a class of them.

        Raises:
            ValueError: if it declares traits of other names.
        """
        declared = getattr(env, "metadata", {}).get("traits", {})
        allowed = [entry.name for entry in fields(cls)]
        unknown = [name for name in declared if name not in allowed]
        if unknown:
            raise ValueError(f"unknown traits in the environment's metadata: {unknown}; allowed: {', '.join(allowed)}")
        return cls(**declared)


class Step(NamedTuple):
    """The outcome of a step of all slots.

    Attributes:
        observations: of all slots [B, ...]; of the next episode where `restart` says that one begins with them.
        rewards: an array or a tensor [B].
        dones: slots whose episode ended, bool [B].
        terminated: slots whose episode is over for good, bool [B].
        truncated: slots whose episode was cut off, bool [B].
        infos: of all slots.
        end_infos: of the episodes that ended.
        final_obs: last observations by slot, if `observations` may be of next episodes.
        waited: in which slots this step was not an action, bool [B]; None for none.
        appended: how many tokens the environment appended to each context, int [B] on the CPU; 0 for none; None if the
            environment does not say.
        taken: the number of slots that took an action.
    """

    observations: Any
    rewards: Any
    dones: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: dict[str, Any]
    end_infos: dict[str, Any]
    final_obs: Any
    waited: np.ndarray | None
    appended: torch.Tensor | int | None
    taken: int

    def final_observations(self, slots: np.ndarray) -> tuple[Obs, np.ndarray]:
        """Return observations, and their rows with the final observations of these slots, which have just ended."""
        if self.final_obs is None:
            return self.observations, slots
        rows = [map_obs(lambda x: torch.as_tensor(x)[None], self.final_obs[slot]) for slot in slots]
        return map_many(torch.cat, rows), np.arange(len(slots))


class EnvSlots:
    """The slots of a vector environment, numpy or torch, each of which plays one episode after another.

    Args:
        env: of gymnasium, in any of its autoreset modes.
        skip_restarts: whether finished slots are reset at once if the environment would spend its next step on that.

    Attributes:
        traits: of the environment.
        slots_finish: whether slots stay finished until `restart`; if not, it must be called after the step in which
            they ended.
        playing: which slots are in an episode in the coming step, bool [B].
        waiting: which of them wait for a reply, so that it is not an action, bool [B]; None for none.
    """

    def __init__(self, env: VectorEnv, skip_restarts: bool = False) -> None:
        self.env, self.num_envs, self.traits = env, env.num_envs, EnvTraits.of(env)
        mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self.slots_finish = mode is AutoresetMode.DISABLED and self.traits.finished_slots_may_step
        self._same_step = mode is AutoresetMode.SAME_STEP
        self._next_step = mode is AutoresetMode.NEXT_STEP and not skip_restarts
        self._none = np.zeros(env.num_envs, dtype=bool)
        self._restarting = self.playing = self._none
        self.waiting: np.ndarray | None = None

    def reset(
        self,
        mask: np.ndarray,
        seed: int | None = None,
        own: Mapping[str, Any] | None = None,
        **offers: Any,
    ) -> tuple[Any, dict[str, Any]]:
        """Give up all episodes and begin new ones in some slots; return observations [B, ...] and infos.

        Args:
            mask: in which slots, bool [B]: in all of them unless `slots_finish`.
            seed: of the environment; None continues its generator.
            own: options of the user's.
            offers: further options, for environments that take them (`EnvTraits.reset_options`); None is none.

        Raises:
            ValueError: if the infos are not a dictionary.
        """
        options: dict[str, Any] = {**(own or {}), **({} if mask.all() else {"reset_mask": mask})}
        takes = self.traits.reset_options
        options |= {name: offer for name, offer in offers.items() if offer is not None and name in takes}
        self.playing, self.waiting, self._restarting = mask, None, self._none
        obs, infos = self.env.reset(seed=seed, options=options or None)
        if not isinstance(infos, dict):
            raise ValueError(
                f"reset of {self.env!r} returned infos of the type {type(infos).__name__}; agents read gymnasium's "
                "dictionary: leave that wrapper out"
            )
        return obs, infos

    def step(self, actions: Any, acting: np.ndarray | None = None) -> Step:
        """Step all slots.

        Args:
            actions: of all slots.
            acting: which slots take theirs, bool [B]; None for all. The others wait for an action of theirs.

        Raises:
            ValueError: if an episode ended without the verdict that it should have, or its last observation; if the
                environment cannot step some of its slots.
        """
        env: Any = self.env
        waited, some = self.waiting, {}
        acts = self.playing if waited is None else self.playing & ~waited
        if acting is not None and not np.array_equal(acting, acts):
            if "acting" not in signature(env.step).parameters:
                raise ValueError(
                    f"an engine writes turns of unequal length, but step of {env!r} cannot step some of its slots: "
                    "give it the argument acting, or leave the wrapper out"
                )
            waited, acts = ~acting, self.playing & acting
            some = {"acting": acting}
        obs, rewards, terminated, truncated, infos = env.step(actions, **some)
        end_infos = infos.get("final_info", infos)
        terminated, truncated, dones = self._ends(terminated, truncated, end_infos)
        appended = None
        if self.traits.replies_in_infos:
            self.waiting = infos.get("waiting")
            appended = torch.as_tensor(infos["appended"]) if "appended" in infos else 0
        taken = int(np.count_nonzero(acts))
        if np.count_nonzero(dones):  # `any` takes four times as long
            self._check_judged(dones, end_infos)
            self.playing = self.playing & ~dones
        final_obs = infos.get("final_obs") if self._same_step else None
        if self._same_step and final_obs is None and np.count_nonzero(truncated & ~terminated):
            raise ValueError(
                f"{self.env!r} resets slots in the step that ends an episode (SAME_STEP), but has no final_obs in its "
                "infos; add the last observations of episodes that are cut off, or use another mode"
            )
        ends = (dones, terminated, truncated)
        return Step(obs, rewards, *ends, infos, end_infos, final_obs, waited, appended, taken)

    def restart(self, slots: np.ndarray, step: Step) -> tuple[Any, np.ndarray, dict[str, Any]]:
        """Have finished slots play their next episode, which begins now or, if that takes a step, after that step.

        Args:
            slots: bool [B]; all that ended with the step, unless `slots_finish`.
            step: the last one.

        Returns:
            What all slots see [B, ...], where an episode begins with it (bool [B]), and the infos.
        """
        obs, infos = step.observations, step.infos
        if self._next_step:  # the step that only brings the new episode's observation does not count
            slots, self._restarting = self._restarting, slots
        elif np.count_nonzero(slots) and not self._same_step:
            obs, infos = self.env.reset(options={"reset_mask": slots})
        if np.count_nonzero(slots):
            self.playing = self.playing | slots
        return obs, slots, infos

    def _ends(self, terminated: Any, truncated: Any, end_infos: dict[str, Any]) -> tuple[np.ndarray, ...]:
        """Return the slots that were terminated, truncated, or either [B]; no device read if the infos say none."""
        if self.traits.ends_are_in_infos and "_completion" not in end_infos:
            return self._none, self._none, self._none
        if isinstance(terminated, torch.Tensor):
            terminated, truncated = (flags.numpy() for flags in to_host(terminated, truncated))
        terminated, truncated = np.asarray(terminated), np.asarray(truncated)
        return terminated, truncated, terminated | truncated

    def _check_judged(self, dones: np.ndarray, end_infos: dict[str, Any]) -> None:
        judged = end_infos.get("_verdict_status", end_infos.get("_verdict_future", self._none))
        if self.traits.verdicts_in_infos and (dones & ~judged).any():
            raise ValueError(
                "an episode ended without a verdict: a wrapper (TimeLimit?) cut it off; limit completions with "
                "max_new_tokens instead, or let the wrapper set info['verdict_status'] to 'ok' where it pays the reward"
            )
