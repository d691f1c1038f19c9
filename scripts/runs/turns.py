"""Dialogues for reading: what the model said in each turn, what was replied, and what the turn earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from agents import Rollout
from agents.core.rollout import EARNED
from rlenv.envs.task import TextGenTask

Row = dict[str, Any]


@dataclass(frozen=True)
class Segment:
    """A turn of an episode.

    Attributes:
        begin, end: its actions, from the first to behind the last.
        reply: the tokens that the environment appended to it.
    """

    begin: int
    end: int
    reply: list[int]


def segments(columns: Sequence[int], context: Sequence[int], stops: Sequence[int]) -> list[Segment]:
    """Return the turns of an episode, which end where the environment wrote something, and with a stop token.

    Args:
        columns: of its actions in the context.
        context: its final tokens.
        stops: tokens that end a turn.
    """
    cuts = [
        step
        for step in range(1, len(columns))
        if columns[step] > columns[step - 1] + 1 or context[columns[step - 1]] in stops
    ]
    ends = [*cuts, len(columns)]
    replies = [list(context[columns[end - 1] + 1 : columns[end]]) for end in cuts]
    return [Segment(*each) for each in zip([0, *cuts], ends, [*replies, []], strict=True)]


def turns_of(task: TextGenTask, rollout: Rollout) -> list[list[Row]]:
    """Return the turns of each episode of a rollout of dialogues.

    Returns:
        Per turn `text`, `tokens` (how many), `reply` (the text, as a model reads it; empty after the last turn) and
        `reward`, without the verdict's parts; None if the rewards of the rollout have been changed for training.
    """
    if task.dialogues is None:
        return [[] for _ in range(len(rollout))]
    assert isinstance(rollout.observations, dict)
    lengths, rewards = rollout.lengths.tolist(), rollout.rewards.tolist()
    changed = not torch.allclose(rollout.extras.get(EARNED, rollout.returns), rollout.returns, atol=1e-5)
    actions, columns = rollout.actions.tolist(), rollout.columns.tolist()
    contexts = rollout.observations["tokens"].tolist()
    found = []
    for row, length in enumerate(lengths):
        for step in range(length):  # without replies, observations are first ones
            contexts[row][columns[row][step]] = actions[row][step]
        parts = segments(columns[row][:length], contexts[row], task.stop_token_ids)
        texts = task.texts([actions[row][part.begin : part.end] for part in parts])
        paid = [None if changed else sum(rewards[row][part.begin : part.end]) for part in parts]
        replies = [task.tokenizer.decode(part.reply, skip_special_tokens=True) for part in parts]
        counts = [part.end - part.begin for part in parts]
        names = ("text", "tokens", "reply", "reward")
        found.append([dict(zip(names, each, strict=True)) for each in zip(texts, counts, replies, paid, strict=True)])
    return found


def said(row: Mapping[str, Any]) -> str:
    """Return a completion; of a dialogue, all of its turns, each reply in brackets behind its turn."""
    turns = row.get("dialogue") or [{"text": row["completion"], "reply": ""}]
    return " ".join(f"{turn['text']} [{turn['reply'].strip()}]" if turn["reply"] else turn["text"] for turn in turns)
