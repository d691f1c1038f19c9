"""An episode as a player sees it: what is on the screen, and what a typed line means. Text and control."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np
from gymnasium import Env, spaces

from agents.rollouts.action_probabilities import Choices
from rlenv.envs.picture import token_text

from ...console.terminal import plain
from .screen import LETTERS, cartpole, quoted, show, table

QUIT, HELP, UNDO, END = "/quit", "/help", "/undo", "/end"


class TextGame:
    """TextGen-v0: an action is a token.

    Args:
        env: the environment, unwrapped attributes included.
        top: how many tokens are listed.
        listed: whether there is a policy whose likeliest tokens are listed.
    """

    first = 0  # the number of the first action

    def __init__(self, env: Env, top: int, listed: bool) -> None:
        self.env, self.inner = env, cast(Any, env.unwrapped)
        self.task, self.top, self.listed = self.inner.task, top, listed
        choosing = "a letter chooses from the list, Enter takes the first, other lines are text"
        literal = '"a is the text a, ' if listed else ""
        self.help = (
            f"Type tokens: {choosing if listed else 'a line is text'}.\n"
            f"{literal}#17 is token 17, {END} the end token.\n"
            f"{UNDO} takes back the last line, {QUIT} stops, {HELP} repeats this."
        )
        self._written: list[int] = []
        self._turn = 0  # where in them the turn begins

    def begin(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Show the start of an episode."""
        self._written, self._turn = [], 0
        show(f"prompt  {quoted(info['prompt'])}", bold=True)
        turns = "" if self.task.dialogues is None else f" per turn, {self.task.dialogues.max_turns} turns"
        show(f"        at most {self.task.max_new_tokens} tokens{turns}")

    def offer(self, observation: Any, choices: Choices | None) -> None:
        """Show what can be chosen now."""
        if self._written[self._turn :]:
            show(f"so far  {self._names(self._written[self._turn :])}")
        if choices is not None:
            tokens, probabilities = zip(*choices.likeliest(self.top), strict=True)
            for line in table([self.name(token) for token in tokens], probabilities):
                show(line)

    def parse(self, line: str, choices: Choices | None) -> list[int]:
        """Return the tokens that a line stands for.

        Raises:
            ValueError: in one line, for a line that stands for none.
        """
        if not line:
            if choices is None:
                raise ValueError(f"nothing was typed; {self.help}")
            return [choices.draw(deterministic=True)]
        if line == END:
            return [self.task.end_token(self.inner.problem)]
        if line[0] == "#" and len(line) > 1:
            return [_whole(line[1:], 0, self.task.vocab_size - 1, "token")]
        if choices is not None and len(line) == 1 and line in LETTERS:
            likeliest = choices.likeliest(self.top)
            place = LETTERS.index(line)
            if place >= len(likeliest):
                last = LETTERS[len(likeliest) - 1]
                raise ValueError(f"{quoted(line)} is not a letter of the list; allowed: a to {last}")
            return [likeliest[place][0]]
        text = line[1:].removesuffix('"') if line[0] == '"' else line
        tokens = self.task.encoder.spell("answer", [text])[0] if text else []
        if not tokens:
            raise ValueError(f"{quoted(line)} has no tokens; {self.help}")
        return list(tokens)

    def name(self, action: int) -> str:
        """Return how a token is shown."""
        text = token_text(self.task.tokenizer, action)
        return text if action in self.task.tokenizer.all_special_ids else quoted(text)

    def played(self, action: int, reward: float, info: Mapping[str, Any]) -> None:
        """Keep what was played; show the reply to a turn, and what it earned."""
        self._written.append(action)
        if "reply" in info:
            earned = f"  (reward {reward:g})" if reward else ""
            show(f"turn    {quoted(str(info['turn']))}")
            show(f"reply   {quoted(str(info['reply']))}{earned}", bold=True)
            self._turn = len(self._written)

    def start(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Begin the next episode of the stream, or with a seed the first one; return what `reset` returns."""
        place = None if seed is not None else self.inner.state_dict()
        self._begin_again = partial(self._reset, seed, place)
        return self._begin_again()

    def take_back(self, count: int) -> Any:
        """Play the episode again without the last tokens, nothing of which is judged yet; return the observation."""
        observation, _ = self._begin_again()
        self._written, self._turn = self._written[:-count], 0
        for length, token in enumerate(self._written, 1):
            observation, *_, info = self.env.step(token)
            self._turn = length if "reply" in info else self._turn
        return observation

    def _reset(self, seed: int | None, place: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        if place is not None:
            self.inner.load_state_dict(place)
        return self.env.reset(seed=seed)

    def finish(self, reward: float, info: Mapping[str, Any], cut: bool) -> None:
        """Show the reward and its parts."""
        left = "token" if self.task.dialogues is None else "turn or token"
        if "turns" in info:
            show(f"turns   {info['turns']}")
        show(f"answer  {self._names(self._written[self._turn :])}" + (f"  (cut: no {left} is left)" if cut else ""))
        ok = info["verdict_status"] == "ok"
        said = f"{reward:g}  {'solved' if info['is_success'] else 'not solved'}" if ok else info["verdict_status"]
        show(f"reward  {said}", fg="green" if info["is_success"] else "red" if ok else "yellow")
        for part, value in info["verdict"].items():
            show(f"        {plain(part)} {value:g}")
        if info["verdict_reason"]:
            show(f"reason  {plain(str(info['verdict_reason']))}")
        if self.inner.problem.answer:
            show(f"right   {quoted(self.inner.problem.answer)}")

    def _names(self, tokens: list[int]) -> str:
        return " ".join(map(self.name, tokens))


class ControlGame:
    """An environment with discrete actions: CartPole is drawn, others are shown as their text or their numbers.

    Args:
        env: the environment.

    Raises:
        ValueError: if its actions are not discrete.
    """

    def __init__(self, env: Env) -> None:
        if not isinstance(env.action_space, spaces.Discrete):
            name = env.spec.id if env.spec else type(env.unwrapped).__name__
            raise ValueError(f"{name} has actions in {env.action_space}; play supports discrete actions")
        self.env, self.inner = env, env.unwrapped
        self.first = int(env.action_space.start)
        self.last = self.first + int(env.action_space.n) - 1
        self.is_pole = type(self.inner).__name__ == "CartPoleEnv"
        push = " (0 pushes left, 1 right)" if self.is_pole else ""
        self.help = f"Type an action, {self.first} to {self.last}{push}, or several in a line. "
        self.help += f"{QUIT} stops, {HELP} repeats this."
        self._steps = 0

    def begin(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Show the start of an episode."""
        self._steps = 0

    def offer(self, observation: Any, choices: Choices | None) -> None:
        """Show where the environment is, and what the policy would do."""
        for line in self.picture(observation):
            show(line)
        if choices is not None:
            shown = (
                f"{self.name(action)} {choices.probability(action):.3f}" for action in range(len(choices.log_probs))
            )
            show(f"policy  {'  '.join(shown)}")

    def picture(self, observation: Any) -> list[str]:
        """Return the environment as lines of text."""
        if self.env.render_mode == "ansi":
            return str(self.env.render()).rstrip("\n").split("\n")
        numbers = (
            " ".join(f"{value:+.3f}" for value in np.ravel(observation)) if _is_numbers(observation) else observation
        )
        drawn = cartpole(self.inner, observation) if self.is_pole else []
        return [*drawn, f"step {self._steps}  observation {numbers}"]

    def parse(self, line: str, choices: Choices | None) -> list[int]:
        """Return the actions that a line stands for, counted from 0.

        Raises:
            ValueError: in one line, for a line that stands for none.
        """
        if line.strip():
            return [_whole(word, self.first, self.last, "action") - self.first for word in line.split()]
        if choices is None:
            raise ValueError(f"nothing was typed; {self.help}")
        return [choices.draw(deterministic=True)]

    def name(self, action: int) -> str:
        """Return how an action is shown."""
        return str(self.first + action)

    def played(self, action: int, reward: float, info: Mapping[str, Any]) -> None:
        """Count the step."""
        self._steps += 1

    def start(self, seed: int | None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode; return what `reset` returns."""
        return self.env.reset(seed=seed)

    def finish(self, reward: float, info: Mapping[str, Any], cut: bool) -> None:
        """Show the return."""
        show(f"over    after {self._steps} steps" + (" (the time is up)" if cut else ""))
        show(f"return  {reward:g}", bold=True)


def _is_numbers(observation: Any) -> bool:
    return np.asarray(observation).dtype.kind in "fiu" if not isinstance(observation, (dict, tuple)) else False


def _whole(text: str, low: int, high: int, what: str) -> int:
    """Return a whole number in a range; a ValueError in one line else."""
    if len(text) <= 20 and text.isascii() and text.removeprefix("-").isdecimal() and low <= int(text) <= high:
        return int(text)
    raise ValueError(f"{quoted(text)} is not {'an' if what == 'action' else 'a'} {what}; allowed: {low} to {high}")
