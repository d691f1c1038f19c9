"""What stable-baselines3's tools and users ask of an agent besides training: logger, environment, weights, seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from gymnasium.vector import VectorEnv
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecEnv, VecNormalize, unwrap_vec_normalize

from .. import processes
from ..checkpoints import parameters
from ..checkpoints.checkpoint import Counters
from ..declaration import Given
from ..fsdp import deal_out
from ..policies import Policy
from ..rollouts.collector import Collector
from ..rollouts.envs import MissingEnv, check_groups, closed_on_error, env_maker, longest_episode, seed_of
from ..rollouts.sb3_envs import as_vec_env
from ..settings import attribute, declared_by
from . import log_entry
from .budget import fitting_episodes
from .learner import Learner


class Surface(Learner):
    """A learner with an environment, and the methods of stable-baselines3 that need no training loop.

    Attributes:
        env: of gymnasium.
        make_envs: makes it again, with `num_envs` slots.
        origin: the id it was made from, and its arguments.
        episodes_per_update: N.
        left_open: which numbers the user has not given; none after the first `learn`.
        own_episodes: those of them that this process collects.
        before_rollout: the counters and states before the rollout that is being collected; a checkpoint continues from
            there.
        unwritten: what was recorded of the next entry of the log.
        compares_groups: whether an episode is compared with the others of its prompt.
    """

    compares_groups = False
    policy: Given[Any, Policy] = attribute(kw_only=False)
    env: Given[Any, VectorEnv] = attribute(kw_only=False)

    before_rollout: tuple[Counters, dict[str, Any]] | None = attribute(init=False)
    make_envs: partial[VectorEnv] = attribute(init=False)
    origin: dict[str, Any] = attribute(init=False)
    unwritten: log_entry.Pending = attribute(init=False)
    num_episodes: int = attribute(init=False)
    left_open: set[str] = attribute(init=False)
    _vec_env: VecEnv | None = attribute(init=False)

    def _placed(self, make: Callable[[], Policy]) -> Policy:
        """Make a policy on the device, or dealt out to the processes."""
        return deal_out(make, self.device) if self.shard else make().to(self.device)

    def use_env(self, env: VectorEnv, group_size: int | None = None) -> None:
        """Play in this environment from the next rollout on; `group_size` is what the user asked for."""
        compares = type(self).__name__ if self.compares_groups else None
        self.group_size = check_groups(env, group_size, self.episodes_per_update, compares)
        self.own_episodes = processes.check_episodes(self.episodes_per_update, self.group_size)
        self.env, self._vec_env, self.before_rollout = env, None, None
        self.num_envs = sum(processes.gather(env.num_envs))
        self.collector = Collector(env, self.device)
        self.collector.seed(seed_of(env, self.seed))

    def _fit_to_budget(self, total_timesteps: int) -> None:
        """Shrink `episodes_per_update`, and the slots of an environment made from an id, to what a budget has room for.

        Only numbers that the user left open change, and only before the first rollout. Groups stay whole, slots that
        cannot wait each get an episode, and a rollout has two episodes to compare unless there is a critic.
        """
        longest = longest_episode(self.env)
        if "episodes_per_update" not in self.left_open or self.num_episodes or longest is None:
            return
        remakes = "num_envs" in self.left_open and self.group_size is None and self.origin["env"] is not None
        slots = 1 if self.collector.slots_wait or remakes else self.num_envs
        least = max(slots, 1 if self.uses_critic else 2)
        fitting = fitting_episodes(total_timesteps, longest, (self.group_size or 1) * processes.size(), least)
        if fitting < self.episodes_per_update:
            self.episodes_per_update, replaced = fitting, self.env
            self.use_env(self.make_envs(num_envs=min(self.num_envs, fitting)) if remakes else self.env)
            if remakes:
                replaced.close()

    @property
    def logger(self) -> Logger:
        """The logger; an error before `learn` or `set_logger`."""
        if self.unwritten.logger is None:
            raise RuntimeError("no logger yet: call learn() or set_logger() first")
        return self.unwritten.logger

    def set_logger(self, logger: Logger) -> None:
        """Use this logger instead of one configured by `learn`; what a checkpoint had not written yet goes there."""
        self.unwritten.use(logger)

    @property
    def n_envs(self) -> int:
        """Slots; a callback for every 10,000 steps or so takes `save_freq=max(10_000 // agent.n_envs, 1)`."""
        return self.num_envs

    def get_env(self) -> VecEnv | None:
        """Return the environment as a `VecEnv` of stable-baselines3; `env` is gymnasium's vector environment.

        None for an agent that was loaded without one.
        """
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
        slots = self.num_envs if known else min(self.or_default("num_envs", None), self.episodes_per_update)
        with closed_on_error(env) as noted:
            made = noted(make(num_envs=slots))
            for name in ("single_observation_space", "single_action_space"):
                ours, theirs = getattr(self.env, name), getattr(made, name)
                if ours != theirs:
                    kind = name.split("_")[1]
                    shown = " ".join(f"the {kind} space {theirs} is not that of the policy, {ours}".split())
                    raise ValueError(f"set_env: {shown}")
            self.policy.adopt_tokenizer(made.metadata)
            self.use_env(made)
        self.make_envs, self.origin, self.env_kwargs = make, origin, env_kwargs

    def set_random_seed(self, seed: int | None = None) -> None:
        """Seed the sampling of actions and the environment, as the constructor's `seed` does; None changes nothing.

        No global generator is seeded, since none is used.
        """
        if seed is not None:
            self.seed = declared_by(type(self))["seed"].check(seed)
            self.seed_generators()
            self.collector.seed(seed_of(self.env, self.seed))
            self.before_rollout = None

    def get_parameters(self) -> dict[str, dict[str, Any]]:
        """Return copies of the weights and of the optimizer's state, under "policy" and "policy.optimizer"."""
        return parameters.get(self.policy, self.policy_optimizer)

    def set_parameters(self, given: Mapping[str, Any] | str | Path, exact_match: bool = True) -> None:
        """Replace weights and the optimizer's state.

        Args:
            given: what `get_parameters` returned, or the path of a checkpoint.
            exact_match: whether all of it has to be given; if not, what is left out stays as it is.

        Raises:
            ValueError: for names or shapes that the agent does not have.
        """
        if not isinstance(given, Mapping):
            spaces = (self.env.single_observation_space, self.env.single_action_space)
            given = parameters.of_checkpoint(Path(given), self.policy.kind, *spaces)
        parameters.put(self.policy, self.policy_optimizer, given, exact_match)
