"""A verifier as an environment of OpenEnv: an action is a turn of the model, an observation what it reads next."""

from __future__ import annotations

import random
from typing import Annotated, Any

from openenv.core.env_server import Action, Environment, Observation, State
from pydantic import BeforeValidator, Field
from typing_extensions import override

from rlenv.envs.judge import Exchange, verdict_info
from rlenv.neighbours.posing import SEEDS, Episode, Posed, as_text
from verifiers import Reply, Verdict
from verifiers.conversation import Message, text_of


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


class VerifierEnvironment(Environment[TurnAction, TurnObservation, EpisodeState]):
    """One session: episodes of one verifier, one after the other.

    Args:
        posed: the verifier, shared by all sessions.
    """

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, posed: Posed) -> None:
        super().__init__()
        self.posed = posed
        self._episode: Episode | None = None
        self._state = EpisodeState()

    @override
    def reset(
        self, seed: int | None = None, episode_id: str | None = None, level: int | None = None, **kwargs: Any
    ) -> TurnObservation:
        self.close()
        seed = random.SystemRandom().randrange(SEEDS) if seed is None else seed
        problem = self.posed.problem(seed, level)
        self._episode = self.posed.begin(problem)
        self._state = EpisodeState(episode_id=episode_id, seed=seed)
        known = {name: problem.metadata[name] for name in ("level",) if name in problem.metadata}
        return _observed(problem.prompt, metadata={"seed": seed, "max_turns": self.posed.verifier.max_turns, **known})

    @override
    def step(self, action: TurnAction, timeout_s: float | None = None, **kwargs: Any) -> TurnObservation:
        episode = self._episode
        if episode is None:
            raise ValueError("the episode is over or has not begun: send a reset")
        self._state.step_count += 1
        reply = episode.say(action.text)
        if reply.verdict is None:
            return _observed(reply.content, reward=float(reply.reward), metadata={"counts": dict(reply.counts)})
        self.close()
        return self._last(episode.exchange, reply, reply.verdict)

    def _last(self, said: Exchange, reply: Reply, verdict: Verdict) -> TurnObservation:
        """Return the observation that ends an episode; without a reward if the verifier failed."""
        metadata = verdict_info(self.posed.verifier, said.problem, verdict)
        metadata["counts"] = dict(said.counts)
        reward = float(reply.reward + verdict.reward) if verdict.status == "ok" else None
        return _observed(reply.content, done=True, reward=reward, metadata=metadata)

    @property
    @override
    def state(self) -> EpisodeState:
        return self._state

    @override
    def close(self) -> None:
        if self._episode is not None:
            self._episode.close()
        self._episode = None


def _observed(content: str | list[Message], **fields: Any) -> TurnObservation:
    messages: list[Any] = content if isinstance(content, list) else [{"role": "user", "content": content}]
    return TurnObservation(text=text_of(content), messages=messages if content else [], **fields)
