"""What an agent shows to the world: stable-baselines3's methods for acting, measuring, saving and callbacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_normalize

from .checks import check_count
from .collector import Collector, numpy_actions
from .envs import make_envs
from .metrics import evaluation_metrics
from .policies import Policy
from .rollout import Rollout, map_obs
from .sb3_envs import AsVecEnv, FromVecEnv

if TYPE_CHECKING:
    from .agent import Agent


class Surface:
    """The part of an agent that has nothing to do with learning.

    Attributes:
        policy: acts.
        env: the vector environment it learns in.
        device: where the policy is.
        generator: for sampling actions.
        num_timesteps: steps of the environment taken so far. Environments whose slots cannot wait play surplus
            episodes until the last one of a rollout is over; their steps count here.
        trained_timesteps: those of them that updates were made from.
    """

    policy: Policy
    env: VectorEnv
    device: torch.device
    generator: torch.Generator
    num_timesteps: int
    trained_timesteps: int
    _logger: Logger | None = None
    _vec_env: VecEnv | None = None

    def predict(
        self, observation: Any, state: Any = None, episode_start: np.ndarray | None = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Return actions and the next state, as stable-baselines3 does: numpy in, numpy out.

        Args:
            observation: one observation or a batch of them.
            state: what the last call returned, None at first.
            episode_start: where a new episode begins [B]; None: everywhere if there is no state, else nowhere.
            deterministic: whether to take the likeliest action instead of sampling one.

        Returns:
            One action, or a batch of them; the state.
        """
        single = _is_single(self.env.single_observation_space, observation)
        obs = map_obs(lambda x: torch.as_tensor(np.asarray(x)[None] if single else x, device=self.device), observation)
        slots = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        if episode_start is None:
            episode_start = np.full(slots, state is None)
        starts = torch.as_tensor(np.asarray(episode_start, dtype=bool).reshape(-1), device=self.device)
        with torch.no_grad():
            actions, _, state = self.policy.act(obs, state, starts, deterministic, self.generator)
        array = numpy_actions(self.policy.for_env(actions), self.env.single_action_space)
        return (array[0] if single else array), state

    def evaluate(
        self, env: Any, num_episodes: int, deterministic: bool = True, seed: int | None = None
    ) -> tuple[dict[str, Any], Rollout]:
        """Play fresh episodes to their end.

        Args:
            env: as for the constructor.
            num_episodes: how many, fixed before the first step.
            deterministic: whether to take the likeliest action (greedy) instead of sampling.
            seed: of the environment and of the sampling; None continues the environment's own stream.

        Returns:
            `episodes`, `mean_reward`, `success_rate` (None where the environment does not say), `mean_ep_length`,
            `deterministic`, `failed` episodes without a verdict and `success_by_level` where there are any; and the
            episodes.

        Raises:
            VerifierError: if the verifier failed on all of them.
        """
        collector = Collector(make_envs(env, 1, None), self.device)
        generator = self.generator
        if seed is not None:
            collector.seed(seed)
            generator = torch.Generator(self.device).manual_seed(seed)
        rollout = collector.collect(self.policy, check_count("num_episodes", num_episodes), generator, deterministic)
        assert rollout is not None
        return evaluation_metrics(rollout, collector.failure) | {"deterministic": deterministic}, rollout

    # Persistence.

    def save(self, path: str | Path) -> None:
        """Write a checkpoint folder; see `checkpoint.py`. A suffix `.zip` is dropped.

        Raises:
            ValueError: if the path holds something else than a checkpoint, or another process is writing it.
            DivergedError: if the policy's weights are not finite; nothing is written then.
        """
        from .checkpoint import save_checkpoint  # it builds agents, so it cannot be imported above

        save_checkpoint(cast("Agent", self), Path(path))

    @classmethod
    def load(
        cls,
        path: str | Path,
        env: Any = None,
        device: str | torch.device = "auto",
        trust: bool = False,
        **settings: Any,
    ) -> Self:
        """Read a checkpoint folder; nothing in it is executed.

        Args:
            path: what was given to `save`.
            env: an environment; None makes the one the agent was trained in, where that was given by its id.
            device: see `Agent`.
            trust: whether an environment or a verifier that the checkpoint names may be imported from any module.
                Otherwise only registered ones are made, and `env_kwargs` says no more than the checkpoint; an `env`
                that is passed here is taken as it is.
            settings: constructor arguments that replace the saved ones, those of the policy excepted.

        The environment starts its stream of problems anew: what follows is no exact continuation.

        Raises:
            ValueError: if this is no checkpoint, or of another agent class, or it is damaged, or an environment or
                trust is needed.
        """
        from .checkpoint import load_checkpoint

        return cast(Self, load_checkpoint(Path(path), env, device, trust, settings, cast("type[Agent]", cls)))

    # What stable-baselines3's callbacks ask for.

    @property
    def logger(self) -> Logger:
        """The logger; it exists once learning has started or `set_logger` was called."""
        if self._logger is None:
            raise RuntimeError("there is no logger before learn() or set_logger()")
        return self._logger

    def set_logger(self, logger: Logger) -> None:
        """Use this logger instead of one configured by `learn`."""
        self._logger = logger

    @property
    def n_envs(self) -> int:
        """Slots of the environment.

        Callbacks count calls, one per step of all slots: for a checkpoint every 10,000 steps or so, pass
        `CheckpointCallback(save_freq=max(10_000 // agent.n_envs, 1), ...)`.
        """
        return self.env.num_envs

    def get_env(self) -> VecEnv:
        """Return the environment as a `VecEnv` of stable-baselines3; `env` is gymnasium's vector environment."""
        if self._vec_env is None:
            self._vec_env = self.env.venv if isinstance(self.env, FromVecEnv) else AsVecEnv(self.env)
        return self._vec_env

    def get_vec_normalize_env(self) -> VecNormalize | None:
        """Return the `VecNormalize` around the environment, if any."""
        return unwrap_vec_normalize(self.get_env())

    def dump_logs(self, iteration: int = 0) -> None:
        """Write out what was recorded."""
        self.logger.dump(self.num_timesteps)


def _is_single(space: spaces.Space, observation: Any) -> bool:
    """Tell whether an observation comes without a batch dimension."""
    if isinstance(space, spaces.Dict):
        key, part = next(iter(space.spaces.items()))
        return np.ndim(observation[key]) == len(part.shape or ())
    return np.ndim(observation) == len(space.shape or ())
