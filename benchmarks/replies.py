"""Sampled tokens per second with replies of the environment in between, against the same tokens without.

Without, the episode is one completion after a prompt that is longer by all replies, so that as many tokens are read.
`slow-replies` has replies of half a second each: slots that wait for theirs alone, against steps that wait for all.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import torch

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import LanguageModelPolicy, Rollout
from agents.policies.language.models.loading import load_model
from agents.rollouts.collector import Collector
from verifiers import Dialogue, FunctionVerifier, Problem, Reply

from .measure import Row, alternate, clock
from .worlds import LETTERS, letter_prompts, never_ends

EPISODES, SLOTS, PROMPT, TURNS, LONGEST, REPLY = 128, 64, 8, 4, 32, 16
SLOW, WORKERS = 0.5, 16  # seconds of a slow reply, and the worker processes that make such replies


@dataclass
class Prompting(Dialogue):
    """Answers every turn with the same letters, after so many seconds; turns that are replayed take none."""

    seconds: float

    def reply(self, turn: str) -> Reply:
        """Return as many letters as fill a reply with the end token of a turn."""
        if self.seconds:
            time.sleep(self.seconds)
        return Reply((LETTERS * REPLY)[:REPLY])

    def recall(self, turn: str) -> None:
        """Nothing depends on earlier turns."""


class Answered(FunctionVerifier):
    """Has `TURNS` turns."""

    max_turns, reply_length = TURNS, REPLY
    seconds = 0.0

    def dialogue(self, problem: Problem) -> Dialogue:
        """Return what answers."""
        return Prompting(self.seconds)


class SlowlyAnswered(Answered):
    """Takes `SLOW` seconds for each reply."""

    seconds = SLOW


class ForcedTurns(LanguageModelPolicy):
    """Ends turns of 16 to 32 tokens in all slots together, or in each slot at other steps; the last is the episode's.

    Attributes:
        end: the end token.
        together: whether slots end their turns at the same steps.
        turns: of an episode, each with its end token.
    """

    end: int
    together: bool
    turns: int

    def act(self, obs: Any, *args: Any, **kwargs: Any) -> Any:
        """Choose as the model does until a turn has its length, then the end token."""
        actions, log_probs, state = super().act(obs, *args, **kwargs)
        shift = torch.ones(1) if self.together else torch.arange(len(actions)) % 17
        lengths = LONGEST // 2 + (torch.arange(TURNS) * 7 + shift[:, None]) % (LONGEST // 2 + 1)
        ends = PROMPT + lengths.cumsum(1) + torch.arange(TURNS) * REPLY - 1  # columns of end tokens [B, TURNS]
        return (
            torch.where((obs["length"][:, None] == ends[:, -self.turns :]).any(1), self.end, actions),
            log_probs,
            state,
        )


def run(name: str, pairs: int) -> list[Row]:
    """Return results for a tiny and a larger model, whose slots end their turns together or apart."""
    if name == "slow-replies":
        return [_compare_slow("tiny", together, pairs) for together in (True, False)]
    return [_compare(preset, together, pairs) for preset in ("tiny", "base") for together in (True, False)]


def _compare(preset: str, together: bool, pairs: int) -> Row:
    sides = [_collector(preset, together, kind) for kind in (Answered, FunctionVerifier)]
    taken = alternate(lambda: _collect(*sides[0])[0], lambda: _collect(*sides[1])[0], pairs)
    ours, plain = (_collect(*side)[1] for side in sides)
    same = ours.positions is not None and ours.lengths.tolist() == plain.lengths.tolist()
    read = [int(policy.costs(rollout).sum()) for (_, policy), rollout in zip(sides, (ours, plain), strict=True)]
    quality = f"the same {EPISODES} lengths: {same}; tokens read: {read[0]} and {read[1]}"
    return Row.of(_label(sides[0][1], together), *taken, "tokens/s", quality, less_is_better=False)


def _compare_slow(preset: str, together: bool, pairs: int) -> Row:
    sides = [
        _collector(preset, together, SlowlyAnswered, verifier_workers=WORKERS, late_replies=late)
        for late in (True, False)
    ]
    taken = alternate(lambda: _collect(*sides[0])[0], lambda: _collect(*sides[1])[0], pairs)  # the first starts workers
    quality = f"{EPISODES} episodes of {TURNS} turns, {SLOTS} slots; {WORKERS} workers, {SLOW} s per reply"
    for collector, _ in sides:
        collector.envs.close()
    return Row.of(_label(sides[0][1], together), *taken, "tokens/s", quality, less_is_better=False)


def _collect(collector: Collector, policy: ForcedTurns) -> tuple[float, Rollout]:
    """Return sampled tokens per second, and the episodes."""
    collector.seed(0)
    with clock() as seconds:
        rollout = collector.collect(policy, EPISODES, torch.Generator().manual_seed(0))
    assert rollout is not None
    return int(rollout.lengths.sum()) / seconds(), rollout


def _label(policy: ForcedTurns, together: bool) -> str:
    size = sum(parameter.numel() for parameter in policy.parameters())
    return f"{size / 1e6:.1f} M parameters, turns end {'together' if together else 'apart'}"


def _collector(
    preset: str, together: bool, kind: type[FunctionVerifier], **kwargs: Any
) -> tuple[Collector, ForcedTurns]:
    replies = kind is not FunctionVerifier
    prompt = PROMPT if replies else PROMPT + (TURNS - 1) * REPLY
    envs: Any = gym.make_vec(
        "TextGen-v0", SLOTS, verifier=kind(lambda prompts, completions: [0.0] * len(prompts), alphabet=LETTERS),
        problems=letter_prompts(EPISODES, prompt), test_fraction=0.0, max_prompt_tokens=prompt,
        max_new_tokens=LONGEST if replies else TURNS * LONGEST, **kwargs,
    )  # fmt: skip
    task = envs.task
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = never_ends(load_model(preset, task.vocab_size, task.max_length, None), [task.eos_token_id])
    policy = ForcedTurns(envs.single_observation_space, envs.single_action_space, model)
    policy.end, policy.turns, policy.together = task.eos_token_id, TURNS if replies else 1, together
    return Collector(envs, torch.device("cpu")), policy
