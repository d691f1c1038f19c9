"""Samples of a run: the policy's completions, token by token, with probability, credit and reward.

samples.jsonl has one episode per line, see `episode_rows`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text
from transformers import PreTrainedTokenizerBase

from rlenv._status import STATUSES
from rlenv.agents import Agent, Batch, Rollout
from rlenv.agents.files import writing
from rlenv.agents.rollout import ENV_RETURN, PARTS
from rlenv.task import TextGenTask
from rlenv.verifiers import Problem
from rlenv.verifiers.base import has_dialogues
from rlenv.verifiers.conversation import text_of

from ..process.terminal import console, plain
from .folder import completion_of

SHOWN = 10  # held-out episodes before and after training
UNFINISHED = "\N{REPLACEMENT CHARACTER}"
LONGEST_CHARACTER = 4  # bytes of UTF-8, and so tokens
DIGITS = 4  # of log-probabilities and advantages

Row = dict[str, Any]


def token_texts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """Return the text that each token adds; the last token of a character that has several adds all of it."""
    texts, start, read = [], 0, 0
    for end in range(1, len(ids) + 1):
        before, now = tokenizer.decode(list(ids[start:read])), tokenizer.decode(list(ids[start:end]))
        if now.endswith(UNFINISHED) and end - read < LONGEST_CHARACTER and end < len(ids):
            texts.append("")
        else:
            texts.append(now[len(before) :])
            start, read = read, end
    return texts


def outcome_rows(task: TextGenTask, rollout: Rollout) -> list[Row]:
    """Return a row per episode, with its texts and its reward.

    Returns:
        Per episode `prompt` and `completion` as `rlenv evaluate` shows them (roles and words, without an end token; of
        a prompt whose problem is unknown, its tokens without those of the template),
        `answer` (the reference; None if unknown), `reward`, `success` (None if the verifier does not say), `truncated`,
        `status` and `parts` of the reward. Of a dialogue also `dialogue`, its turns (see `turns_of`), of which
        `completion` is the last.
    """
    lengths, returns, success = rollout.lengths.tolist(), earned(rollout).tolist(), rollout.success.tolist()
    parts = {name[len(PARTS) :]: each.tolist() for name, each in rollout.extras.items() if name.startswith(PARTS)}
    actions, cut, status = rollout.actions.tolist(), rollout.truncated.tolist(), rollout.status.tolist()
    assert isinstance(rollout.observations, dict)
    prompts, sizes = rollout.observations["tokens"].tolist(), rollout.observations["length"].tolist()
    completions = task.encoding.texts([ids[:steps] for ids, steps in zip(actions, lengths, strict=True)])
    rows = []
    for i, dialogue in enumerate(turns_of(task, rollout)):
        prompt = prompts[i][: sizes[i]]
        problem = problem_of(task, int(rollout.groups[i]), prompt)
        row = {
            "prompt": text_of(problem.prompt)
            if problem
            else task.encoding.tokenizer.decode(prompt, skip_special_tokens=True),
            "answer": None if problem is None else problem.answer,
            "completion": dialogue[-1]["text"] if dialogue else completions[i],
            "reward": round(returns[i], DIGITS),
            "success": None if math.isnan(success[i]) else bool(success[i]),
            "truncated": cut[i],
            "status": STATUSES[status[i]],
            "parts": {
                name.removeprefix(PARTS): round(v[i], DIGITS) for name, v in parts.items() if math.isfinite(v[i])
            },
        }
        rows.append(row | ({"dialogue": dialogue} if dialogue else {}))
    return rows


def episode_rows(task: TextGenTask, rollout: Rollout, **facts: Any) -> list[Row]:
    """Return episodes as samples.jsonl has them.

    Args:
        task: that posed their problems.
        rollout: a `Batch` has advantages, too.
        facts: added to each row.

    Returns:
        Per episode its `outcome_rows`, and per token `tokens` (ids), `texts`, `log_probs` in nats and `advantages`
        (None outside training); None stands for a number that is not finite.
    """
    lengths, actions, log_probs = rollout.lengths.tolist(), rollout.actions.tolist(), rollout.log_probs.tolist()
    credit = rollout.advantages.tolist() if isinstance(rollout, Batch) else None
    rows = []
    for i, (outcome, steps) in enumerate(zip(outcome_rows(task, rollout), lengths, strict=True)):
        by_token = {
            "tokens": actions[i][:steps],
            "texts": token_texts(task.encoding.tokenizer, actions[i][:steps]),
            "log_probs": list(map(_rounded, log_probs[i][:steps])),
            "advantages": None if credit is None else list(map(_rounded, credit[i][:steps])),
        }
        rows.append(facts | outcome | by_token)
    return rows


def turns_of(task: TextGenTask, rollout: Rollout) -> list[list[Row]]:
    """Return the turns of each episode of a rollout of dialogues.

    Returns:
        Per turn `text`, `tokens` (how many), `reply` (the text, as a model reads it; empty after the last turn) and
        `reward`, without the verdict's parts; None if the rewards of the rollout have been changed for training.
    """
    if not has_dialogues(task.verifier):
        return [[] for _ in range(len(rollout))]
    assert isinstance(rollout.observations, dict)
    lengths, rewards = rollout.lengths.tolist(), rollout.rewards.tolist()
    changed = not torch.allclose(earned(rollout), rollout.returns, atol=1e-5)
    actions, columns = rollout.actions.tolist(), rollout.columns.tolist()
    contexts = rollout.observations["tokens"].tolist()
    dialogues = []
    for row, length in enumerate(lengths):
        own, context = columns[row][:length], contexts[row]
        for column, token in zip(own, actions[row], strict=False):  # without replies, observations are first ones
            context[column] = token
        begins = [0]
        for step in range(1, length):
            replied = own[step] > own[step - 1] + 1
            if replied or task.encoding.ending(context[own[begins[-1]] : own[step]]) is not None:
                begins.append(step)
        parts = list(zip(begins, [*begins[1:], length], strict=True))
        turns = []
        for (begin, end), text in zip(parts, task.encoding.texts([actions[row][b:e] for b, e in parts]), strict=True):
            reply = context[own[end - 1] + 1 : own[end]] if end < length else []
            turn = {"text": text, "tokens": end - begin}
            turn["reply"] = task.encoding.tokenizer.decode(reply, skip_special_tokens=True)
            turns.append(turn | {"reward": None if changed else sum(rewards[row][begin:end])})
        dialogues.append(turns)
    return dialogues


def earned(rollout: Rollout) -> torch.Tensor:
    """Return the environment's reward of each episode [N], before any KL penalty and normalization."""
    return rollout.extras.get(ENV_RETURN, rollout.returns)


def _rounded(value: float) -> float | None:
    """Return a number as it is written; None for one that is not finite, which JSON does not have."""
    return round(value, DIGITS) if math.isfinite(value) else None


def problem_of(task: TextGenTask, group: int, prompt: list[int]) -> Problem | None:
    """Return the problem of a group; None if the stream has another prompt there: groups that were joined anew."""
    number = task.first_problem + group
    posed = task.stream.prompt(number) if task.stream.remembers(number) else None
    return posed.problem if posed is not None and posed.tokens == prompt else None


def contrasting(batch: Batch) -> list[int]:
    """Return two of the best and two of the worst episodes of an update, the best first.

    If prompts are shared, they are of the prompt with the widest spread.
    """
    returns, candidates = earned(batch), batch.ok.nonzero()[:, 0].tolist()
    members: dict[int, list[int]] = {}
    for row in candidates:
        members.setdefault(int(batch.groups[row]), []).append(row)
    shared = [rows for rows in members.values() if len(rows) > 1]
    if shared:
        candidates = max(shared, key=lambda rows: float(returns[rows].max() - returns[rows].min()))
    ordered = sorted(candidates, key=lambda row: -float(returns[row]))
    return ordered if len(ordered) <= 4 else ordered[:2] + ordered[-2:]


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
    """Return episodes as names of columns and rows: with the reference answer, if any, and the parts of the reward."""
    parts = list(dict.fromkeys(name for row in rows for name in row["parts"]))
    parts = parts if len(parts) > 1 else []
    answer = ["answer"] if any(row["answer"] for row in rows) else []
    cells = []
    for row in rows:
        notes = ["cut off"] * row["truncated"] + [row["status"]] * (row["status"] != "ok")
        texts = [row["prompt"], completion_of(row), *(row[name] or "" for name in answer)]
        figures = [row["reward"], *(row["parts"].get(name, math.nan) for name in parts)]
        cells.append([*texts, *figures, ", ".join(notes)])
    return ["prompt", "completion", *answer, "reward", *parts, ""], cells


class SampleLog:
    """Writes samples.jsonl, at the end of the file.

    Args:
        path: of the file.
        agent: that is trained.
    """

    def __init__(self, path: Path, agent: Agent) -> None:
        self.path, self.agent = path, agent
        # Makes the rows of an update that may not have ended: no error in them, and no full disk, ends it halfway.
        self.pending: Callable[[], list[Row]] | None = None

    def add(self, rows: Sequence[Row]) -> None:
        """Append episodes."""
        if not rows:
            return
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=True, allow_nan=False) + "\n" for row in rows)

    def watch(self, batch: Batch) -> None:
        """Take a few episodes, with their credit, of the updates 1, 2, 4, 8, 16 and so on."""
        update, task = self.agent.num_updates + 1, self.agent.env.unwrapped.task
        if update.bit_count() == 1:
            facts = {"kind": "training", "when": "during", "updates": update, "split": task.split}
            few = batch.select(torch.as_tensor(contrasting(batch), dtype=torch.long, device=batch.mask.device))
            self.pending = partial(episode_rows, task, few, **facts)

    def write_pending(self) -> None:
        """Append the episodes of the last update."""
        if self.pending is not None:
            rows, self.pending = self.pending(), None
            self.add(rows)


def show_samples(rows: Sequence[Mapping[str, Any]], split: str | None) -> None:
    """Print a table of samples on stderr."""
    table = Table("prompt", "completion", "reward", title=f"samples from the {split} split")
    for row in rows:  # brackets are not rich's markup
        cells = Text(plain(text_of(row["prompt"]))), Text(plain(completion_of(row)))
        table.add_row(*cells, f"{row['reward']:g}")
    console(error=True).print(table)
