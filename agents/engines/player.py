"""Episodes that an engine writes: weights are sent, episodes played, and their log-probabilities compared.

With `staleness=1` the engine writes the next rollout while the update of this one runs: each rollout is of one version
of the weights, the last but one. A rollout that is begun and not used is dropped whole, since dropping some of its
episodes would favour short ones.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from typing_extensions import override

from rlenv._checks import check_choice

from .. import processes
from ..devices import HALVES
from ..errors import EngineError
from ..fsdp import gather_weights, local, release_weights
from ..policies.base import actor_parameters
from ..rollout import Rollout
from ..rollouts.collector import OnStep
from ..training.extras import in_passes
from ..training.player import Part, Player
from ..training.state import own_parts_of
from .actor import EngineActor
from .base import Engine, StaleEngineError
from .server import ServerEngine
from .vllm import VllmEngine, check_temperature, check_vllm

NAMES = ("vllm",)
CHECKED = 8  # episodes of each process that the guard evaluates
# Nats per token, the mean of |log π_engine - log π|. Kernels of float32 differ by less than 1e-5; of 16 bits by 0.01.
LIMIT, HALF_LIMIT = 1e-3, 0.1


class EnginePlayer(Player):
    """Plays the episodes of an agent's updates with an engine in place of its policy.

    Attributes:
        obs_from_actions: see `Policy`.
        gap: between the engine and a training pass in the last rollout, in nats per token.
        dropped: rollouts that were begun and not trained on.
    """

    obs_from_actions = True

    def __init__(self, agent: Any) -> None:
        if agent.policy.kind != "language-model":
            raise ValueError(f"an engine writes text; omit engine={agent.engine!r} for a {type(agent.policy).__name__}")
        if not isinstance(agent.engine, Engine):
            check_temperature(agent.policy.temperature)
        super().__init__(agent)
        self.gap, self.dropped = 0.0, 0
        self._engine: Engine | None = None
        self._sent: list[torch.Tensor] | None = None  # weights of the rollout; None for the present ones
        # A new thread has the number of OpenMP's threads that torch was told only once it has asked torch.
        self._thread = ThreadPoolExecutor(1, "rlenv-engine", initializer=torch.get_num_threads)
        self._ahead: Future[Part] | None = None

    @property
    def engine(self) -> Engine:
        """The engine, started if it was not yet."""
        if self._engine is None:
            self._engine = open_engine(self.agent)
            self._engine.goes_on = lambda: self.agent.collector.goes_on()
        return self._engine

    def sync(self) -> None:
        """Send the policy's weights as they are now; all processes call this together, and no request is open.

        Raises:
            CancelledError: if the training is to end while the engine is waited for.
        """
        began = time.perf_counter()
        self.wait()
        policy = self.agent.policy
        release_weights(policy)
        processes.gather(None)  # nobody else writes any more
        self.engine.load(policy)
        self.agent.seconds["syncing"] += time.perf_counter() - began

    @override
    @contextmanager
    def acting(self) -> Iterator[Any]:
        self.sync()
        yield self

    def make_actor(
        self,
        obs: Any,
        action_space: gym.Space,
        device: torch.device,
        deterministic: bool = False,
        generator: torch.Generator | None = None,
    ) -> EngineActor:
        """Return the actor of one rollout, as `Policy.make_actor` does."""
        agent, source = self.agent, None if deterministic else generator
        return EngineActor(
            self.engine, agent.policy, agent.env.metadata, len(obs["length"]), action_space, device, source
        )

    @override
    def collect_parts(self, on_step: OnStep) -> list[Part]:
        """Return the episodes of each process, written with the policy's weights.

        Raises:
            EngineError: if the engine does not write with the policy's weights, also after they were sent again.
        """
        for again in (True, False):
            why = ""
            try:
                parts = self._parts(on_step)
            except StaleEngineError as error:
                why = str(error)
            else:
                if any(rollout is None for rollout, _ in parts):
                    return parts
                why = self._fault(parts[processes.rank()][0])
            self.figures = {"train/engine_gap": self.gap, "train/engine_dropped": float(self.dropped)}
            if not why:
                return parts
            self.dropped += 1
            if again:
                warnings.warn(f"{why}; the weights are sent again", stacklevel=2)
        raise EngineError(f"{why}, also after the weights were sent again; restart it with the model of this run")

    def _parts(self, on_step: OnStep) -> list[Part]:
        if self._ahead is None:
            try:
                self.sync()
            except CancelledError:
                return [(None, 0)] * processes.size()
            self._sent = None
            return processes.on_all(lambda: self.play(self, on_step, self.agent.progress))
        ahead, self._ahead = self._ahead, None
        self.moment = {}
        parts = processes.on_all(ahead.result)
        goes_on = on_step(parts[processes.rank()][1], {"dones": np.array([]), "infos": {}, "rewards": []})
        return parts if goes_on else [(None, taken) for _, taken in parts]

    # One rollout ahead.

    @override
    def look_ahead(self) -> None:
        if self.agent.staleness:
            try:
                self.sync()
            except CancelledError:  # the next rollout is not played, ahead or later
                return
            weights = actor_parameters(self.agent.policy)
            self._sent = [local(weight).detach().to("cpu", copy=True) for weight in weights]
            self.moment = {name: part.state_dict() for name, part in self._played().items()}
            self._ahead = self._thread.submit(self.play, self, lambda taken, local: True, self.agent.progress)

    def wait(self) -> None:
        """Wait for the rollout that is being written ahead, if any; it stays."""
        if self._ahead is not None:
            self._ahead.exception()

    @override
    def drop_ahead(self) -> None:
        if self._ahead is not None:
            self.wait()
            self._ahead, before, self.moment = None, self.moment, {}
            self.dropped += 1
            for name, part in self._played().items():
                part.load_state_dict(before[name])

    def _played(self) -> dict[str, Any]:
        """Return the parts of an agent that playing changes."""
        parts = own_parts_of(self.agent)
        return {name: parts[name] for name in ("actions", "envs")}

    # The guard.

    def _fault(self, rollout: Rollout | None) -> str:
        """Compare a rollout with the weights that were sent; return the fault, empty without one."""
        self.gap = self._measured(rollout)
        limit = HALF_LIMIT if self.agent.policy.model.dtype in HALVES else LIMIT
        if self.gap <= limit:
            return ""
        return (
            f"the engine and a training pass give tokens log-probabilities that differ by {self.gap:.3g} nats on "
            f"average (at most {limit:g} is rounding): it has other weights, or another temperature or precision"
        )

    def _measured(self, rollout: Rollout | None) -> float:
        """Return the mean gap on a few episodes of each process, with the weights that were sent for them."""
        assert rollout is not None
        agent, policy = self.agent, self.agent.policy
        rows = torch.linspace(0, len(rollout) - 1, min(CHECKED, len(rollout))).round().long().unique()
        seen = processes.on(rollout.select(rows), agent.device)
        with self._with_sent(policy):
            gather_weights(policy)
            trained = in_passes(agent, lambda part: policy.evaluate(part)["log_probs"], seen)
            release_weights(policy)
        gaps = (trained - seen.log_probs)[seen.mask].double().abs()
        sums = processes.gather((float(gaps.sum()), len(gaps)))
        return sum(total for total, _ in sums) / max(sum(count for _, count in sums), 1)

    @contextmanager
    def _with_sent(self, policy: Any) -> Iterator[None]:
        """Within this context, a policy has the weights that were sent for the rollout."""
        if self._sent is None:
            yield
            return
        held = [local(weight) for weight in actor_parameters(policy)]
        now = [weight.detach().clone() for weight in held]
        self._put(held, self._sent)
        try:
            yield
        finally:
            self._put(held, now)

    @torch.no_grad()
    def _put(self, held: list[torch.Tensor], values: list[torch.Tensor]) -> None:
        for weight, value in zip(held, values, strict=True):
            weight.detach().copy_(value)


def check_engine(agent: Any) -> None:
    """Check the settings of an agent's engine, before anything is made and without starting it.

    Raises:
        ValueError: for an unknown name, one that is not installed, or settings that do not go together.
    """
    if isinstance(agent.engine, Engine):
        agent.refuse_idle("with an engine that is made already", "engine_url", "engine_kwargs")
    else:
        check_named(agent.engine, agent.engine_url)


def check_named(name: Any, url: str | None) -> None:
    """Check that there is an engine of this name, and that it is installed if it is to run in this process.

    Raises:
        ValueError: naming the allowed values, or the package to install.
    """
    check_choice("engine", name, NAMES)
    if url is None:
        check_vllm()


def open_engine(agent: Any) -> Engine:
    """Return the engine that an agent's settings name: an object, one in this process, or one at an address."""
    if isinstance(agent.engine, Engine):
        return agent.engine
    arguments = agent.engine_kwargs or {}
    if agent.engine_url is None:
        return VllmEngine(agent.policy, **arguments)
    return ServerEngine(agent.engine_url, agent.policy, **arguments)
