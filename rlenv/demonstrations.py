"""Demonstrations: the verifier's right answers as tokens, for a supervised warm start."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from rlenv.verifiers import Problem
from rlenv.verifiers.base import has_dialogues, right_turns
from rlenv.verifiers.conversation import shown

from .encoder import STOP, STRING
from .encoding import Encoding
from .task import TextGenTask
from .turns import Turn


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
    """An episode, as far as it has been demonstrated: its tokens, how many are the prompt, and the actions in them."""

    tokens: list[int]
    length: int
    actions: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)


def demonstrate(task: TextGenTask, start: int, count: int, device: str | torch.device = "cpu") -> Demonstrations:
    """Return the demonstrations of the problems `start` to `start + count` of the task's stream.

    The replies between turns come from the dialogue; the last turn is not answered.

    Raises:
        ValueError: if the verifier has no demonstration, or some are longer than their episodes may be.
    """
    made = [_demonstrated(task, number) for number in range(start, start + count)]
    if lengths := [each for each in made if isinstance(each, int)]:
        most, longest = task.encoding.max_new_tokens, max(lengths)
        raise ValueError(
            f"{len(lengths):,} of {count:,} demonstrations have more than {most:,} tokens, the longest {longest:,}; "
            f"pass max_new_tokens={longest} (--max-new-tokens {longest}), or problems whose demonstrations are shorter"
        )
    return _as_tensors(task, [each for each in made if isinstance(each, _Episode)], device)


def _demonstrated(task: TextGenTask, number: int) -> _Episode | int:
    """Return the episode of a problem with the verifier's turns, or how long the longest turn is that is too long."""
    prompt, encoding = task.stream.prompt(number), task.encoding
    problem, name = prompt.problem, type(task.verifier).__name__
    what = f"the demonstration of {shown(problem.prompt)}"
    rng = random.Random(f"{task.stream.seed}/{task.stream.split}/{number}/turns")
    turns = right_turns(task.verifier, problem, rng)
    if len(turns) > 1 and not has_dialogues(task.verifier):
        raise ValueError(f"{what} has {len(turns)} turns, and {name} judges one completion")
    actions = [turn_tokens(encoding, problem, text) for text in turns or [""]]
    if (longest := max(map(len, actions))) > encoding.max_new_tokens:
        return longest
    episode, exchange = _Episode(list(prompt.tokens), len(prompt.tokens)), task.responder.begin(problem)
    try:
        for count, ids in enumerate(actions, 1):
            episode.positions += range(len(episode.tokens), len(episode.tokens) + len(ids))
            episode.tokens += ids
            episode.actions += ids
            if (room := encoding.max_length - len(episode.tokens)) < 0:
                raise ValueError(f"{what} has more than {encoding.max_length} tokens of context (max_context_tokens)")
            if count < len(turns):
                reply = _reply(task, Turn(exchange, ids, STOP if ids[-1] in encoding.stop_token_ids else STRING, room))
                if isinstance(reply, str):
                    raise ValueError(f"{what} has {len(turns)} turns, but its episode ends after {count}; {reply}")
                episode.tokens += reply
    finally:
        task.judge.close(exchange)
    return episode


def _reply(task: TextGenTask, turn: Turn) -> list[int] | str:
    """Return the tokens of the reply to a turn, or why the episode ends with it."""
    (answer,) = task.responder.answer([turn])
    if answer.tokens is not None:
        return answer.tokens
    has = f"max_turns={task.encoding.max_turns}, max_reply_tokens={task.encoding.max_reply_tokens}"
    return answer.info["verdict_reason"] or f"allowed: {has}, max_context_tokens={task.encoding.max_length}"


def turn_tokens(encoding: Encoding, problem: Problem, text: str) -> list[int]:
    """Return the tokens of a demonstrated turn with its end token, which a stop string makes superfluous.

    Raises:
        NoDemonstrationError: without a text.
        ValueError: if it ends before its last token.
    """
    if not text:
        raise NoDemonstrationError(
            f"{type(encoding.verifier).__name__} has no demonstration for {shown(problem.prompt)}, and a warm start "
            "needs one (--sft-steps 0 skips the warm start)"
        )
    (tokens,) = encoding.encoder.spell("demonstration", [text])
    what = f"demonstration {shown(text)}"
    if encoding.stop_string_end(text) is None:
        tokens = [*tokens, encoding.end_token(problem)]
    elif any(encoding.at_stop_string([tokens[:-1]])):
        raise ValueError(f"{what} goes on after the stop string of {encoding.stop_strings}")
    if stops := set(tokens[:-1]) & set(encoding.stop_token_ids):
        stop = encoding.tokenizer.convert_ids_to_tokens(min(stops))
        raise ValueError(f"{what} goes on after the stop token {stop!r}")
    return tokens


def _as_tensors(task: TextGenTask, episodes: Sequence[_Episode], device: str | torch.device) -> Demonstrations:
    several = any(each.length + len(each.actions) < len(each.tokens) for each in episodes)  # has replies
    lengths = torch.tensor([len(each.actions) for each in episodes])
    width, encoding = int(lengths.max()), task.encoding
    contexts = [each.tokens if several else each.tokens[: each.length] for each in episodes]
    return Demonstrations(
        observations={
            "tokens": _padded(contexts, encoding.max_length, encoding.pad_token_id).to(device),
            "length": torch.tensor([each.length for each in episodes], device=device),
        },
        actions=_padded([each.actions for each in episodes], width, encoding.pad_token_id).to(device),
        mask=(torch.arange(width) < lengths[:, None]).to(device),
        positions=_padded([each.positions for each in episodes], width, 1).to(device) if several else None,
    )


def _padded(rows: Sequence[list[int]], width: int, pad: int) -> torch.Tensor:
    return torch.tensor([row + [pad] * (width - len(row)) for row in rows])
