"""Demonstrations: the verifier's right answers as tokens, for a supervised warm start."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from verifiers import Problem
from verifiers.conversation import shown

from ..text.encoder import STOP, STRING
from .dialogues import Turn
from .encoding import Encoding
from .judge import Exchange
from .task import TextGenTask


class NoDemonstrationError(ValueError):
    """The verifier has no right answer to imitate."""


@dataclass(frozen=True)
class Demonstrations:
    """Episodes in the shape of the batched environment.

    Attributes:
        observations: `tokens` [N, L] and `length` [N] at reset: the prompts; with `positions`, `tokens` are the final
            ones.
        actions: the tokens of the answers, with their end token [N, T].
        mask: which of them are real, bool [N, T].
        positions: where replies stand between the actions, the column of each in `tokens` [N, T]; else None.
    """

    observations: dict[str, torch.Tensor]
    actions: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor | None = None


@dataclass
class _Episode:
    """An episode, as far as it has been demonstrated."""

    problem: Problem
    turns: Sequence[str]
    tokens: list[int]
    length: int  # of the prompt
    exchange: Exchange
    actions: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)


def demonstrate(task: TextGenTask, start: int, count: int, device: str | torch.device = "cpu") -> Demonstrations:
    """Return the demonstrations of the problems `start` to `start + count` of the task's stream.

    The replies between turns are what the dialogue answers; the last turn is not answered.

    Raises:
        ValueError: if the verifier has no demonstration, or one is longer than its episode may be.
    """
    episodes = _begun(task, range(start, start + count))
    try:
        for number in range(max(len(each.turns) for each in episodes)):
            _play(task, [each for each in episodes if len(each.turns) > number], number)
    finally:
        for each in episodes:
            task.judge.close(each.exchange)
    return _as_tensors(task, episodes, device)


def _begun(task: TextGenTask, numbers: Iterable[int]) -> list[_Episode]:
    """Return the episodes of these problems before their first turns."""
    problems = {number: task.stream[number] for number in numbers}
    prompts = task.encoding.encode([problem.prompt for problem in problems.values()])
    begun, name = [], type(task.verifier).__name__
    for (number, problem), prompt in zip(problems.items(), prompts, strict=True):
        rng = random.Random(f"{task.stream.seed}/{task.stream.split}/{number}/turns")
        turns: Any = task.verifier.demonstration_turns(problem, rng)
        if isinstance(turns, str):
            raise ValueError(f"{name}.demonstration_turns must return the turns as a list of texts, got {shown(turns)}")
        if len(turns) > 1 and task.dialogues is None:
            raise ValueError(
                f"the demonstration of {shown(problem.prompt)} has {len(turns)} turns, and {name} judges one completion"
            )
        begun.append(_Episode(problem, turns or [""], list(prompt), len(prompt), task.other_side.begin(problem)))
    return begun


def turn_tokens(encoding: Encoding, problem: Problem, text: str) -> list[int]:
    """Return the tokens of a demonstrated turn with its end token, which a stop string makes superfluous.

    Raises:
        NoDemonstrationError: without a text.
        ValueError: if it is longer than a completion may be, or ends before its last token.
    """
    if not text:
        raise NoDemonstrationError(
            f"{type(encoding.verifier).__name__} has no demonstration for {shown(problem.prompt)}, and a warm start "
            "needs one (--sft-steps 0 skips the warm start)"
        )
    (tokens,) = encoding.encoder.spell("demonstration", [text])
    what, most = f"demonstration {shown(text)}", encoding.max_new_tokens
    if encoding.stop_string_end(text) is None:
        tokens = [*tokens, encoding.end_token(problem)]
    elif any(encoding.at_stop_string([tokens[:-1]])):
        raise ValueError(f"{what} goes on after the stop string of {encoding.stop_strings}")
    if len(tokens) > most:
        raise ValueError(f"{what} has {len(tokens)} tokens; allowed: {most} (max_new_tokens)")
    if stops := set(tokens[:-1]) & set(encoding.stop_token_ids):
        stop = encoding.tokenizer.convert_ids_to_tokens(min(stops))
        raise ValueError(f"{what} goes on after the stop token {stop!r}")
    return tokens


def _play(task: TextGenTask, episodes: Sequence[_Episode], number: int) -> None:
    """Add the turn with this number to each of these episodes, and the reply unless that was its last."""
    answered, turns = [], []
    for episode in episodes:
        what = f"the demonstration of {shown(episode.problem.prompt)}"
        ids = turn_tokens(task.encoding, episode.problem, episode.turns[number])
        episode.positions += range(len(episode.tokens), len(episode.tokens) + len(ids))
        episode.tokens += ids
        episode.actions += ids
        room = task.max_length - len(episode.tokens)
        if room < 0:
            raise ValueError(f"{what} has more than {task.max_length} tokens of context (max_context_tokens)")
        if len(episode.turns) > number + 1:
            answered.append((episode, what))
            turns.append(Turn(episode.exchange, ids, STOP if ids[-1] in task.stop_token_ids else STRING, room))
    if task.dialogues is None or not turns:
        return
    for (episode, what), answer in zip(answered, task.dialogues.answer(turns), strict=True):
        if answer.tokens is None:
            has = f"max_turns={task.encoding.max_turns}, max_reply_tokens={task.encoding.max_reply_tokens}"
            reason = answer.info["verdict_reason"] or f"allowed: {has}, max_context_tokens={task.max_length}"
            raise ValueError(
                f"{what} has {len(episode.turns)} turns, but its episode ends after {number + 1}; {reason}"
            )
        episode.tokens += answer.tokens


def _as_tensors(task: TextGenTask, episodes: Sequence[_Episode], device: str | torch.device) -> Demonstrations:
    several = any(len(each.turns) > 1 for each in episodes)
    lengths = torch.tensor([len(each.actions) for each in episodes])
    width = int(lengths.max())
    contexts = [each.tokens if several else each.tokens[: each.length] for each in episodes]
    return Demonstrations(
        observations={
            "tokens": _padded(contexts, task.max_length, task.pad_token_id).to(device),
            "length": torch.tensor([each.length for each in episodes], device=device),
        },
        actions=_padded([each.actions for each in episodes], width, task.pad_token_id).to(device),
        mask=(torch.arange(width) < lengths[:, None]).to(device),
        positions=_padded([each.positions for each in episodes], width, 1).to(device) if several else None,
    )


def _padded(rows: Sequence[list[int]], width: int, pad: int) -> torch.Tensor:
    return torch.tensor([row + [pad] * (width - len(row)) for row in rows])
