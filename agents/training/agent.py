"""An agent: the training loop with the methods of stable-baselines3 beside it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_normalize

from rlenv._checks import check_count

from .. import processes
from ..errors import NOT_CHOSEN
from ..fsdp import gathered
from ..policies.actor import for_env
from ..rollout import Rollout, map_obs
from ..rollouts.collector import OnStep
from ..rollouts.envs import (
    MissingEnv,
    check_spaces,
    closed_on_error,
    env_maker,
    form_of,
    full_id,
    seed_of,
    takes_tokenizer,
)
from .loop import Loop

if TYPE_CHECKING:
    from .checkpoint import Checkpoint


class Agent(Loop):
    """A policy-gradient agent. An algorithm defines its advantages, surrogate and weights; see `Algorithm`.

    Args:
        policy: "auto", "MlpPolicy", "tiny", a model folder or id, or a `Policy`; see `policies.make_policy`. A model
            that comes with a tokenizer brings it to an environment that is given by its id.
        env: an id, a gymnasium.Env, a gymnasium VectorEnv or a `VecEnv` of stable-baselines3.

    Attributes: see `Algorithm` for an algorithm's declarations, and `Loop` for the parts of a training.

    Raises:
        ValueError: for a hyper-parameter out of range, an unknown policy, environment or device, or groups that do
            not fit the environment, the episodes of an update or the algorithm (see `envs.check_groups`).
        TypeError: for an unknown keyword argument, with the closest match and the allowed ones.
    """

    _is_root: ClassVar[bool] = True  # in this class alone: checkpoints are those of algorithms

    @torch.no_grad()
    def predict(
        self, observation: Any, state: Any = None, episode_start: np.ndarray | None = None, deterministic: bool = False
    ) -> tuple[np.ndarray, Any]:
        """Return an action (or a batch of them) and the next state, as stable-baselines3 does: numpy in, numpy out.

        Args:
            observation: one observation or a batch of them.
            state: the state that the last call returned, None at first.
            episode_start: where a new episode begins [B]; None: everywhere without a state, else nowhere.
            deterministic: whether to take the likeliest action instead of sampling one.

        Raises:
            ValueError: for observations of another form or shape than those of training, or if the policy gives NaN.
        """
        single = _check_observation(self.env.single_observation_space, observation, self.policy.obs_from_actions)
        device = self.generator.device
        obs = map_obs(lambda x: torch.as_tensor(np.asarray(x)[None] if single else x, device=device), observation)
        slots = len(next(iter(obs.values())) if isinstance(obs, dict) else obs)
        if episode_start is None:
            episode_start = np.full(slots, state is None)
        starts = torch.as_tensor(np.asarray(episode_start, dtype=bool).reshape(-1))
        with gathered(self.policy):
            actions, log_probs, state = self.policy.act(obs, state, starts, deterministic, self.generator)
        if bool(log_probs.isnan().any()):
            raise ValueError(f"predict: {NOT_CHOSEN}")
        array = for_env(actions.cpu().numpy(), self.env.single_action_space, self.policy.squashes)
        return (array[0] if single else array), state

    def evaluate(
        self,
        env: Any,
        num_episodes: int,
        deterministic: bool = True,
        seed: int | None = None,
        on_step: OnStep | None = None,
        env_kwargs: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], Rollout]:
        """Play fresh episodes to their end.

        Args:
            env: as for the constructor. An id makes an environment with at most `num_envs` slots and closes it again.
            num_episodes: how many, fixed before the first step.
            deterministic: whether to take the likeliest action (greedy) instead of sampling.
            seed: of the environment and of the sampling; None continues the environment's own stream.
            on_step: called after every step, as in `Collector.collect`, and while verdicts are late, of 0 slots; to end
                the evaluation, let it raise.
            env_kwargs: for the environment's constructor, if `env` is an id, such as {"split": "test"}. If it is the
                id of the training, the others are those of the training.

        Returns:
            Metrics and the episodes: `episodes`, `mean_reward`, `reward_std` (over episodes), `success_rate` (None if
            the environment does not say), `mean_ep_length`, `deterministic`; if any, `failed` (episodes without a
            verdict), `success_by_level` and `success_known` (the share of episodes that `success_rate` is of, below 1).

        Raises:
            VerifierError: if the verifier failed on all of them.
            ValueError: for an environment whose spaces or tokens do not fit the policy.
        """
        from . import evaluation

        num_episodes = check_count("num_episodes", num_episodes)
        seed = None if seed is None else check_count("seed", seed, low=0)
        started = time.perf_counter()
        kwargs: dict[str, Any] = {}
        if isinstance(env, str) and full_id(env) == self.origin["env"]:
            kwargs |= self.origin["env_kwargs"]
            tokenizer = getattr(self.policy, "tokenizer", None)
            if tokenizer is not None and takes_tokenizer(env):
                kwargs["tokenizer"] = tokenizer  # other problems may have other characters
        kwargs |= env_kwargs or {}
        with evaluation.opened(env, min(num_episodes, self.num_envs), kwargs, self.device) as envs:
            check_spaces("evaluate", self.env, envs, form_of)  # contexts may be longer, and bounds others
            try:
                playing = (deterministic, seed, self.generator, on_step, self.progress, self.player)
                return evaluation.evaluate(self.policy, envs, num_episodes, *playing)
            finally:
                self.evaluation_seconds += time.perf_counter() - started

    def replay(self, rollout: Rollout, deterministic: bool = True) -> Rollout:
        """Play the prompts of a rollout again with the policy as it is now; all processes call this together.

        Steps count in `num_timesteps`, episodes nowhere; no callback is called, and the stream of problems stays.

        Args:
            rollout: of this environment, or some of its rows, or several that were joined.
            deterministic: whether to take the likeliest actions, in one episode for all rows of a group; if not, each
                row has its own episode, drawn from the agent's generator.

        Returns:
            A rollout whose row i answers the prompt of row i, with its group; `ok` says where the verifier failed.

        Raises:
            ValueError: if the environment cannot pose a prompt twice, as in control, or has not posed these.
        """
        from . import evaluation

        return evaluation.replay(self, rollout, deterministic)

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
        from . import saving  # that a new training does not need, like `loading` and `evaluation`

        saving.save(self, Path(path), previous)

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
            path: the argument of `save`, or a checkpoint that `read_checkpoint` has found whole.
            env: an environment; None makes the one the agent was trained in, if that was given by its id. An id gets as
                many slots, and groups of the same size, unless these are given.
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
        from . import loading

        return loading.load(cls, path, env, device, trust, continue_env, settings)

    @property
    def n_envs(self) -> int:
        """Slots; a callback for every 10,000 steps or so takes `save_freq=max(10_000 // agent.n_envs, 1)`."""
        return self.num_envs

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """Adam over the policy's parameters; the agent sets its learning rate before each step."""
        return self.policy_optimizer.adam

    def get_env(self) -> VecEnv | None:
        """Return the environment as a `VecEnv` of stable-baselines3; `env` is gymnasium's vector environment.

        None for an agent that was loaded without one.
        """
        from ..rollouts.sb3_envs import as_vec_env  # for who asks

        if isinstance(self.env, MissingEnv):
            return None
        self._vec_env = self._vec_env or as_vec_env(self.env)
        return self._vec_env

    def get_vec_normalize_env(self) -> VecNormalize | None:
        """Return the `VecNormalize` around the environment, if any."""
        venv = self.get_env()
        return None if venv is None else unwrap_vec_normalize(venv)

    def set_env(self, env: Any, env_kwargs: Mapping[str, Any] | None = None) -> None:
        """Play in another environment, from its beginning, from the next rollout on; counters and weights stay.

        Args:
            env: as for the constructor. An id gets `num_envs` slots and the same size of groups.
            env_kwargs: for the environment's constructor, if `env` is an id.

        Raises:
            ValueError: if its spaces, its tokens or its groups do not fit the policy; nothing has changed then.
        """
        offers = {name: value for name, value in self.make_envs.keywords.items() if name != "env_kwargs"}
        offers |= {"group_size": self.group_size} if self.group_size else {}
        make, origin = env_maker(env, env_kwargs, self.policy, **offers)
        known = not isinstance(self.env, MissingEnv)
        slots = self.num_envs if known else min(self.usual("num_envs"), self.episodes_per_update)
        made = make(num_envs=slots)
        with closed_on_error(made, env):
            check_spaces("set_env", self.env, made)
            self.policy.adopt_tokenizer(made.metadata)
            self.use_env(made)
        self.make_envs, self.origin = make, origin
        self._set_fixed(env_kwargs=env_kwargs)

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the sampling of actions and the environment, as the constructor's `seed` does; None changes nothing.

        No global generator is seeded, since none is used.
        """
        if seed is not None:
            self._set_fixed(seed=seed)
            processes.seed_generators(self.generator, self.shuffle_generator, self.seed)
            self.collector.seed(seed_of(self.env, self.seed))
            self.moment = None

    def get_parameters(self) -> dict[str, dict[str, Any]]:
        """Return copies of the weights and of the optimizer's state, under "policy" and "policy.optimizer".

        So are states of the algorithm's own modules and optimizers, under the names of the attributes.
        """
        from . import loading

        return loading.parameters_of(self)

    def set_parameters(self, given: Mapping[str, Any] | str | Path, exact_match: bool = True) -> None:
        """Replace weights and the optimizer's state.

        Args:
            given: what `get_parameters` returned, or the path of a checkpoint.
            exact_match: whether all of it has to be given; if not, missing parts stay as they are.

        Raises:
            ValueError: for names or shapes that the agent does not have.
        """
        from . import loading

        loading.set_parameters(self, given, exact_match)


def _check_observation(space: spaces.Space, observation: Any, any_shape: bool) -> bool:
    """Check that this is what the space has, and not the pair that `reset` returns; tell whether it is a single one."""
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {"": space}
    given = dict(observation) if isinstance(observation, Mapping) else {"": observation}
    is_pair = isinstance(observation, tuple) and any(isinstance(part, Mapping) for part in observation)
    if observation is None or is_pair or given.keys() != parts.keys():
        got = f"a dictionary of {list(given)}" if isinstance(observation, Mapping) else type(observation).__name__
        keys = ", ".join(map(repr, filter(None, parts)))
        allowed = f"a dictionary of {keys}" if keys else f"an array of shape {space.shape}"
        raise ValueError(f"predict: got {got}; allowed: {allowed}, the first of what env.reset and env.step return")
    first = next(iter(parts))
    single = np.ndim(given[first]) == len(parts[first].shape or ())
    for key, part in () if any_shape else parts.items():
        shape, wanted = tuple(np.shape(given[key])[not single :]), tuple(part.shape or ())
        if shape != wanted:
            name = f"the observation {key!r}" if key else "an observation"
            raise ValueError(f"predict: {name} has shape {shape}; allowed: {wanted}, or (N, ...) for N observations")
    return single
