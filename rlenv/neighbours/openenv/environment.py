"""A verifier as an environment of OpenEnv: an action is a turn of the model, an observation what it reads next."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated, Any

from openenv.core.env_server import Action, Environment, Observation, State
from pydantic import BeforeValidator, Field
from typing_extensions import override

from rlenv.envs.judge import Exchange, Judge, verdict_info
from verifiers import Problem, Reply, Verdict, Verifier
from verifiers.base import in_range
from verifiers.conversation import Message, text_of
from verifiers.isolation.workers.pool import make_pool

SEEDS = 2**31


def as_text(value: Any) -> Any:
    """Return JSON for what is not text: clients that read a turn such as "32" as JSON send a number."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class TurnAction(Action):
    """A turn of the model: a completion, or what it says next in a dialogue."""

    text: Annotated[str, BeforeValidator(as_text)] = Field(description="what the model writes")


class TurnObservation(Observation):
    """The prompt after a reset, else the reply to a turn; metadata of the last one say what the verdict was."""

    text: str = Field(description="what the model reads next, as text")
    messages: list[dict[str, Any]] = Field(description="the same as messages of a conversation")


class EpisodeState(State):
    """The episode so far."""

    seed: int | None = Field(default=None, description="of the problem")


class Posed:
    """A verifier for the sessions of a server, several at once.

    Args:
        verifier: judges. Without worker processes it is asked by one session at a time, since few are thread-safe.
        problems: to choose from; None to have the verifier make them.

    Raises:
        ValueError: for a verifier that makes no problems, without problems.
    """

    def __init__(self, verifier: Verifier, problems: Sequence[Problem] | None = None) -> None:
        if not problems and not verifier.makes_problems:
            raise ValueError(f"{type(verifier).__name__} makes no problems: pass --problems FILE")
        self.verifier, self.problems = verifier, problems
        self.pool = make_pool(verifier)
        self.judge = Judge(verifier, self.pool, flag_errors=True)
        self._lock = threading.Lock()

    def problem(self, seed: int, level: int | None) -> Problem:
        """Return the problem of a seed, of one level if it is given.

        Raises:
            ValueError: for a level that the verifier does not have.
        """
        rng = random.Random(seed)
        if self.problems:
            return rng.choice(self.problems)
        if level is not None and not 1 <= level <= self.verifier.levels:
            raise ValueError(f"level must be from 1 to {self.verifier.levels}, got {level}")
        with self._lock:
            level = rng.randint(1, self.verifier.levels) if level is None else level
            return self.verifier.sample_at(rng, level)

    def reply(self, exchange: Exchange) -> Reply:
        """Return the reply to the last turn; it has a verdict if the episode is over, also for want of turns."""
        with nullcontext() if self.pool is not None or self.verifier.waits else self._lock:
            (reply,) = self.judge.replies([exchange])
            exchange.paid += reply.reward
            verdict = reply.verdict
            if verdict is None and len(exchange.turns) >= self.verifier.max_turns:
                (last,) = self.judge.replies([exchange], out_of_budget=True)
                verdict = last.verdict
            return reply if verdict is None else replace(reply, verdict=in_range(self.verifier, verdict, exchange.paid))

    def close(self) -> None:
        """Stop the worker processes and close the verifier."""
        for each in (self.pool, self.verifier):
            if each is not None:
                each.close()


class VerifierEnvironment(Environment[TurnAction, TurnObservation, EpisodeState]):
    """One session: episodes of one verifier, one after the other.

    Args:
        posed: the verifier, shared by all sessions.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, posed: Posed) -> None:
        super().__init__()
        self.posed = posed
        self._exchange: Exchange | None = None
        self._state = EpisodeState()

    @override
    def reset(
        self, seed: int | None = None, episode_id: str | None = None, level: int | None = None, **kwargs: Any
    ) -> TurnObservation:
        self.close()
        seed = random.SystemRandom().randrange(SEEDS) if seed is None else seed
        problem = self.posed.problem(seed, level)
        self._exchange = Exchange(problem, False, [])
        self._state = EpisodeState(episode_id=episode_id, seed=seed)
        known = {name: problem.metadata[name] for name in ("level",) if name in problem.metadata}
        return _observed(problem.prompt, metadata={"seed": seed, "max_turns": self.posed.verifier.max_turns, **known})

    @override
    def step(self, action: TurnAction, timeout_s: float | None = None, **kwargs: Any) -> TurnObservation:
        exchange = self._exchange
        if exchange is None:
            raise ValueError("the episode is over or has not begun: send a reset")
        exchange.turns.append(action.text)
        self._state.step_count = len(exchange.turns)
        reply = self.posed.reply(exchange)
        if reply.verdict is None:
            return _observed(reply.content, reward=float(reply.reward), metadata={"counts": dict(reply.counts)})
        self.close()
        return self._last(exchange.problem, reply, reply.verdict)

    def _last(self, problem: Problem, reply: Reply, verdict: Verdict) -> TurnObservation:
        """Return the observation that ends an episode; without a reward if the verifier failed."""
        metadata = verdict_info(self.posed.verifier, problem, verdict)
        metadata["counts"] = dict(reply.counts)
        reward = float(reply.reward + verdict.reward) if verdict.status == "ok" else None
        return _observed(reply.content, done=True, reward=reward, metadata=metadata)

    @property
    @override
    def state(self) -> EpisodeState:
        return self._state

    @override
    def close(self) -> None:
        if self._exchange is not None:
            self.posed.judge.close(self._exchange)
        self._exchange = None


def _observed(content: str | list[Message], **fields: Any) -> TurnObservation:
    messages: list[Any] = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return TurnObservation(text=text_of(content), messages=messages if content else [], **fields)
