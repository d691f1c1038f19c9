"""Episodes of `rlenv play`: a person or a policy chooses tokens, the environment answers, and both are shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import torch

from rlenv.agents import SampledPolicy
from rlenv.agents.rollouts.action_probabilities import Choices, Onlooker
from rlenv.textgen import TextGenEnv
from rlenv.verifiers.text import visible

from ..config import arguments
from ..config.options import is_text
from ..config.other_configs import PlayConfig
from ..process.terminal import plain
from . import session, subject

QUIT, HELP, END = "/quit", "/help", "/end"
HELP_TEXT = (
    f"A line is text, #17 is token 17, {END} the end token; with a policy, Enter takes its first choice.\n"
    f"{QUIT} stops, {HELP} repeats this."
)
BAR = 20  # characters of the bar of a probability of 1
BATCHED = {
    "vectorization_mode", "vector_kwargs", "autoreset_mode", "late_verdicts", "late_replies", "device",
}  # arguments that an environment of one episode does not take  # fmt: skip


class StoppedError(Exception):
    """The end of a game: /quit, or the end of the input."""


def open_subject(run: Path | None, config: PlayConfig) -> tuple[TextGenEnv, Onlooker | None]:
    """Return the environment that is played, and the policy of the run, if any.

    Raises:
        ValueError: for a run of something else than text.
    """
    onlooker = None
    if run is None:
        kwargs = arguments.env_arguments(config, subject.TEXT_ENV, {}) | {"split": config.split}
        kwargs |= subject.whole_file(config, kwargs.get("problems"))
    else:
        of_run = subject.find(run, config)
        if not is_text(of_run.env_id):
            raise ValueError(f"{str(run)!r} is a run of {of_run.env_id}; rlenv play is for text")
        policy, device, envs = of_run.load(config)
        envs.close()
        kwargs = of_run.env_kwargs | {"tokenizer": session.task_of(envs).encoding.tokenizer}
        onlooker = Onlooker(SampledPolicy(policy, config.temperature, config.top_p), device)
    kwargs = {name: value for name, value in kwargs.items() if name not in BATCHED}
    return TextGenEnv(**kwargs | {**arguments.IN_TURN, "group_size": 1, "flag_errors": True}), onlooker


class Game:
    """A game of TextGen-v0, where an action is a token.

    Args:
        env: the environment.
        onlooker: the policy, if any.
        config: of the job; with `watch`, the policy plays, else a user who types.
    """

    def __init__(self, env: TextGenEnv, onlooker: Onlooker | None, config: PlayConfig) -> None:
        self.env, self.onlooker, self.config, self.encoding = env, onlooker, config, env.task.encoding
        self.generator = torch.Generator().manual_seed(config.seed)
        self.written: list[int] = []  # of a dialogue, in this turn

    def play(self) -> dict[str, Any]:
        """Play the episodes, or until the user stops; return the result that --json prints."""
        wanted = self.config.episodes or (1 if self.config.watch else None)
        if not self.config.watch:
            click.echo(HELP_TEXT)
        played: list[dict[str, Any]] = []
        ended = "all episodes played"
        try:
            while wanted is None or len(played) < wanted:
                click.echo(f"\nepisode {len(played) + 1}")
                played.append(self._episode(None if played else self.config.seed))
        except StoppedError as stopped:
            ended = str(stopped)
        except KeyboardInterrupt:
            click.echo()
            ended = "Ctrl-C"
        return {
            "episodes": len(played),
            "mean_reward": sum(one["reward"] for one in played) / len(played) if played else None,
            "success_rate": sum(one["is_success"] for one in played) / len(played) if played else None,
            "ended": ended,
            "played": played,
        }

    def _episode(self, seed: int | None) -> dict[str, Any]:
        observation, info = self.env.reset(seed=seed)
        self.written = []
        click.echo(f"prompt  {quoted(info['prompt'])}")
        turns = "" if self.encoding.max_turns == 1 else f" per turn, {self.encoding.max_turns} turns"
        click.echo(f"        at most {self.encoding.max_new_tokens} tokens{turns}")
        if self.config.watch:
            click.echo("  step  action       probability  entropy (nats)  instead")
        if self.onlooker is not None:
            self.onlooker.start()
        typed: list[int] = []
        total, steps, over, cut = 0.0, 0, False, False
        while not (over or cut):
            choices, steps = None if self.onlooker is None else self.onlooker.look(observation), steps + 1
            if self.config.watch and choices is not None:
                action = choices.draw(self.config.deterministic, self.generator)
                self._tell(steps, action, choices)
            else:
                typed = typed or self._asked(choices)
                action = typed.pop(0)
                if choices is not None:  # what was typed need not be in the list
                    click.echo(f"  {self._name(action)} had the probability {choices.probability(action):.3f}")
            observation, reward, over, cut, info = self.env.step(action)
            total += float(reward)
            self.written.append(action)
            if "reply" in info:
                click.echo(f"turn    {quoted(str(info['turn']))}")
                click.echo(f"reply   {quoted(str(info['reply']))}" + (f"  (reward {reward:g})" if reward else ""))
                self.written = []
        self._finish(total, info, cut)
        return {"reward": total, "steps": steps, "is_success": bool(info["is_success"]), "truncated": cut}

    def _tell(self, step: int, action: int, choices: Choices) -> None:
        """Show an action of the policy, and the likeliest others."""
        others = [(other, p) for other, p in choices.likeliest(4) if other != action and p > 0][:3]
        instead = "  ".join(f"{self._name(other)} {p:.3f}" for other, p in others)
        name, p = self._name(action), choices.probability(action)
        click.echo(f"  {step:>4}  {name:<11}  {p:11.3f}  {choices.entropy:14.3f}  {instead}".rstrip())

    def _asked(self, choices: Choices | None) -> list[int]:
        """Show the text so far, and the likeliest tokens of the policy; return the tokens of a line of input."""
        if self.written:
            click.echo(f"so far  {self._names()}")
        for token, p in [] if choices is None else choices.likeliest(self.config.top):
            click.echo(f"    #{token:<6} {self._name(token):<12}  {p:6.3f}  {'=' * round(BAR * p)}".rstrip())
        while True:
            line = read("> ")
            try:
                if line.strip() == HELP:
                    click.echo(HELP_TEXT)
                elif not line and choices is not None:
                    return [choices.draw(deterministic=True)]
                else:
                    return self._parsed(line)
            except ValueError as error:
                click.echo(f"  {error}")

    def _parsed(self, line: str) -> list[int]:
        """Return the tokens that a line stands for; a `ValueError` of one line if there are none."""
        if line[:1] == "#" and len(line) > 1:
            tokens = [self._number(word) for word in line.replace("#", " ").split()]
        elif line == END:
            assert self.env.problem is not None
            tokens = [self.encoding.end_token(self.env.problem)]
        else:
            tokens = list(self.encoding.encoder.spell("answer", [line])[0]) if line else []
        if not tokens:
            raise ValueError(f"{quoted(line)} is not an action")
        return tokens

    def _number(self, word: str) -> int:
        last = self.encoding.vocab_size - 1
        if not word.isdecimal() or int(word) > last:
            raise ValueError(f"{quoted(word)} is not an action; allowed: 0 to {last}")
        return int(word)

    def _finish(self, reward: float, info: Mapping[str, Any], cut: bool) -> None:
        """Show the reward and its parts."""
        if "turns" in info:
            click.echo(f"turns   {info['turns']}")
        click.echo(f"answer  {self._names()}{'  (cut off)' if cut else ''}")
        ok = info["verdict_status"] == "ok"
        outcome = f"{reward:g}  {'solved' if info['is_success'] else 'not solved'}" if ok else info["verdict_status"]
        click.echo(f"reward  {outcome}")
        for part, value in info["verdict"].items():
            click.echo(f"        {plain(part)} {value:g}")
        if info["verdict_reason"]:
            click.echo(f"reason  {plain(str(info['verdict_reason']))}")
        if self.env.problem is not None and self.env.problem.answer:
            click.echo(f"right   {quoted(self.env.problem.answer)}")

    def _names(self) -> str:
        return " ".join(map(self._name, self.written))

    def _name(self, token: int) -> str:
        """Return how a token is shown."""
        tokenizer = self.encoding.tokenizer
        if token in tokenizer.all_special_ids:
            return str(tokenizer.convert_ids_to_tokens(token))
        return quoted(visible(str(tokenizer.decode([token]))))


def read(prompt: str) -> str:
    """Return a line of standard input, in a pipe printed too; a `StoppedError` at its end or if it asks to stop."""
    try:
        line = input(prompt)
    except EOFError:
        click.echo()
        raise StoppedError("the input has ended") from None
    except UnicodeDecodeError:
        raise StoppedError("the input is not UTF-8 text") from None
    if not sys.stdin.isatty():
        click.echo(line)
    if line.strip() == QUIT:
        raise StoppedError(QUIT)
    return line


def quoted(text: str) -> str:
    """Return a text in double quotes, on one line, with control characters spelled out."""
    return plain(json.dumps(text, ensure_ascii=False))
