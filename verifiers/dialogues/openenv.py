"""openenv: environments that an OpenEnv server runs, "openenv:http://127.0.0.1:8000"."""

from __future__ import annotations

import json
import math
import random
import string
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakSet

from typing_extensions import override

from rlenv._checks import check_count, check_number, require

from ..answer import document_in
from ..base import Dialogue, Execution, Problem, Reply, Turns, Verdict
from ..plugins.registry import register_verifier, require_trust
from .openenv_client import InvalidActionError, Server, ServerError, ServerStep, Session
from .world import SEEDS, WorldVerifier

FAULT = "fault"  # the column that says why the reset of a problem failed
PAUSE = 0.2  # seconds between attempts
PROBED = 4  # openings whose characters are in the alphabet
FAULT_LENGTH = 200  # characters of what was wrong with an action
_APART = "metadata"  # a field of every action and observation, which is not for the model
Result = TypeVar("Result")


@register_verifier("openenv")
class OpenEnv(WorldVerifier):
    """An environment on an OpenEnv server: its first observation is the prompt, and a turn is an action.

    A turn states an action as JSON, alone or in a fenced block; if the action has one required field, its value alone
    is enough (any text for a field of text). A turn that states none, or one that the server refuses, is answered with
    a message and counted as `invalid_actions`.

    An observation is shown as its only text field, else as JSON; longer ones are cut, and counted as
    `cut_observations`. Reward: from each step; the last one is the verdict's.

    If the server allows fewer sessions than there are episodes, they take turns: an episode that goes on repeats its
    actions in a new session. So does one whose session is lost, which is counted as `reconnects`. An environment that
    fails or is too slow ends its episode with the status "error" or "timeout". The token of a server is read from the
    environment variable OPENENV_TOKEN.

    Args:
        url: of the server, such as "http://127.0.0.1:8000".
        max_turns: actions in an episode.
        longest: characters of an observation.
        answer_length: characters of a turn.
        field: the field of observations to show.
        success_reward: the least last reward that counts as a success.
        timeout: seconds per answer of the server.
        patience: seconds to try again after a connection failed.

    Raises:
        ValueError: for another address, or a server that does not answer.
    """

    execution = Execution(slow=True, waits=True, needs={"websockets": "openenv"})
    reward_range = (-math.inf, math.inf)

    def __init__(
        self,
        url: str,
        max_turns: int = 10,
        longest: int = 1000,
        answer_length: int = 100,
        field: str | None = None,
        success_reward: float = 1.0,
        timeout: float = 30.0,
        patience: float = 60.0,
    ) -> None:
        require_trust(f"the server {url!r}, which sees what the model writes,")
        require("websockets", "openenv", "verifier 'openenv'")
        self.longest = self.prompt_length = check_count("openenv: longest", longest, 1, 10**6)
        turns = check_count("openenv: max_turns", max_turns, 1, 10_000)
        self.turns = Turns(turns, self.longest, instead=partial(_not_shown, self.longest))
        self.answer_length = check_count("openenv: answer_length", answer_length, 1, 10**6)
        self.field, self.success_reward = field, success_reward
        self.execution = replace(self.execution, timeout=check_number("openenv: timeout", timeout, 0))
        self.patience = check_number("openenv: patience", patience, 0)
        self.server, self._is_down = Server(url, self.execution.timeout), True
        self.form = ActionForm(self.server.schema())
        self._open: WeakSet[OpenEnvEpisode] = WeakSet()
        used = set().union(*(self.opening(seed) for seed in range(PROBED)))
        self.alphabet = string.printable + "".join(sorted(used - set(string.printable)))

    @override
    def sample(self, rng: random.Random) -> Problem:
        state = rng.getstate()
        try:
            return super().sample(rng)
        except ServerError as error:  # a run goes on without a server: this episode ends with an error
            rng.setstate(state)
            return Problem("(none)"[: self.longest], metadata={"seed": rng.randrange(SEEDS), FAULT: str(error)})

    @override
    def opening(self, seed: int) -> str:
        def attempt() -> ServerStep:
            session = Session(self.server)
            try:
                return session.reset(seed)
            finally:
                session.close()

        return self.shown(self.persist(attempt))[0]

    def persist(self, attempt: Callable[[], Result]) -> Result:
        """Return the result of an attempt, after others if connections fail; once all have failed, try only once.

        Raises:
            ServerError: if none succeeds.
        """
        deadline = time.monotonic() + (0.0 if self._is_down else self.patience)
        while True:
            try:
                result = attempt()
            except ServerError as error:
                if not error.again or time.monotonic() >= deadline:
                    self._is_down = error.again
                    raise
                if not (error.is_full and self._give_up_one()):
                    time.sleep(PAUSE)
            else:
                self._is_down = False
                return result

    def _give_up_one(self) -> bool:
        """Close the session that has been idle for longest; its episode repeats its actions in another one later."""
        return any(episode.pause() for episode in sorted(self._open, key=lambda one: one.used))

    def shown(self, step: ServerStep) -> tuple[str, bool]:
        """Return an observation as text, and whether it was cut.

        Raises:
            ServerError: if it is nested too deeply.
        """
        try:
            text = text_of(step.observation, self.field)
        except RecursionError as error:
            raise ServerError("the server's observation is nested too deeply") from error
        return text[: self.longest], len(text) > self.longest

    @override
    def dialogue(self, problem: Problem) -> Dialogue:
        episode = OpenEnvEpisode(self, problem)
        self._open.add(episode)
        return episode

    @override
    def close(self) -> None:
        for episode in list(self._open):
            episode.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_open"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open = WeakSet()


class OpenEnvEpisode(Dialogue):
    """An episode on a server, which outlives its session: a new one repeats the actions taken so far.

    Args:
        world: the environment.
        problem: its metadata have the seed of the reset, or why the reset failed.
    """

    def __init__(self, world: OpenEnv, problem: Problem) -> None:
        self.world, self.seed = world, problem.metadata["seed"]
        self._fault = problem.metadata.get(FAULT, "")
        self._actions: list[dict[str, Any]] = []
        self._session: Session | None = None
        self._sessions, self._closed = 0, False
        self._busy, self.used = Lock(), 0.0

    @override
    def reply(self, turn: str) -> Reply:
        with self._busy:
            self.used = time.monotonic()
            return self._reply(turn)

    def pause(self) -> bool:
        """Close the session, unless there is none or it is being used; return whether it did."""
        if self._session is None or not self._busy.acquire(blocking=False):
            return False
        try:
            self._leave()
            self._sessions -= 1  # which is not a reconnect
        finally:
            self._busy.release()
        return True

    def _reply(self, turn: str) -> Reply:
        before = max(self._sessions, 1)
        action = self.world.form.read(turn)
        try:
            if action is None:
                raise InvalidActionError(f"write {self.world.form}")
            step = self.world.persist(lambda: self._step(action))
            text, cut = self.world.shown(step)
        except InvalidActionError as error:
            message = f"Not an action: {error}"[: min(FAULT_LENGTH, self.world.longest)]
            return Reply(message, counts=_counts(invalid_actions=1, reconnects=max(self._sessions - before, 0)))
        except ServerError as error:
            return Reply(verdict=Verdict(0.0, status=error.status, reason=str(error)), counts=_counts())
        self._actions.append(action)
        counts = _counts(cut_observations=int(cut), reconnects=max(self._sessions - before, 0))
        if step.done:
            return Reply(text, verdict=Verdict(step.reward), counts=counts)
        return Reply(text, step.reward, counts=counts)

    def _step(self, action: dict[str, Any]) -> ServerStep:
        """Take an action in the session, or in a new one if it was lost."""
        if self._fault or self._closed:
            raise ServerError(self._fault or "the episode was given up")
        try:
            if self._session is None:
                self._repeat()
            assert self._session is not None
            return self._session.step(action)
        except ServerError:
            self._leave()  # its next message may be the answer to this action
            raise

    def _repeat(self) -> None:
        """Open a session and repeat the episode's past actions."""
        self._session = Session(self.world.server)
        self._session.reset(self.seed)
        self._sessions += 1
        for past in self._actions:
            try:
                over = self._session.step(past).done
            except InvalidActionError as error:
                raise ServerError(f"the server refuses an action that it accepted before: {error}") from error
            if over:
                raise ServerError(
                    "the environment is not deterministic: repeated with its seed, an episode ends earlier"
                )

    def _leave(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    @override
    def close(self) -> None:
        self._closed = True
        self._leave()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_session", "_busy")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _session=None, _sessions=0, _busy=Lock())


def _not_shown(longest: int, turn: str, fault: str) -> Reply:
    return Reply(f"(an observation that cannot be shown: {fault})"[:longest])


def _counts(**changed: int) -> dict[str, int]:
    return {"invalid_actions": 0, "cut_observations": 0, "reconnects": 0, **changed}


class ActionForm:
    """The form of a server's actions.

    Args:
        schema: of the action, a JSON schema.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        properties = schema.get("properties", {})
        self.fields = {name: kind for name, kind in properties.items() if name != _APART}
        self.needed = [name for name in schema.get("required", ()) if name in self.fields]
        self.single = self.needed[0] if len(self.needed) == 1 else None
        self.is_text = self.single is not None and _type(self.fields[self.single]) == "string"

    def read(self, turn: str) -> dict[str, Any] | None:
        """Return the action that a turn states, None if it states none.

        It is an object in JSON, alone or in the first fenced block. If the action has one required field, the turn may
        be its value alone: any text for a field of text, else JSON.
        """
        found = _json(document_in(turn))
        if isinstance(found, dict) and set(self.needed) <= found.keys() <= self.fields.keys():
            return found
        if self.single is None or (found is None and not self.is_text):
            return None
        if self.is_text:
            return {self.single: turn}
        return None if isinstance(found, dict) else {self.single: found}

    def __str__(self) -> str:
        shown = ", ".join(f'"{name}": {_type(self.fields[name]) or "value"}' for name in self.needed or self.fields)
        return f"{{{shown}}}"


def text_of(observation: Mapping[str, Any], field: str | None = None) -> str:
    """Return an observation as text: one of its fields, its only text, or else JSON.

    Args:
        observation: of a server.
        field: the field to show; None for the only one that is a text.
    """
    shown = {name: value for name, value in observation.items() if name != _APART}
    if field is not None:
        shown = {field: shown.get(field, "")}
    texts = [value for value in shown.values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 else json.dumps(shown, ensure_ascii=False)


def _type(kind: Any) -> str | None:
    """Return the type that a schema names; None for several."""
    named = kind.get("type") if isinstance(kind, dict) else None
    return named if isinstance(named, str) else None


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
