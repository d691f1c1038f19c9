"""Sampled tokens per second with replies of the environment in between, against the same tokens without.

Without, the episode is one completion after a prompt that is longer by all replies, so that as many tokens are read.
"""

from __future__ import annotations

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


class Prompting(Dialogue):
    """Answers every turn with the same letters."""

    def reply(self, turn: str) -> Reply:
        """Return as many letters as fill a reply with the end token of a turn."""
        return Reply((LETTERS * REPLY)[:REPLY])


class Answered(FunctionVerifier):
    """Has `TURNS` turns."""

    max_turns, reply_length = TURNS, REPLY

    def dialogue(self, problem: Problem) -> Dialogue:
        """Return what answers."""
        return Prompting()


class ForcedTurns(LanguageModelPolicy):
    """Ends turns of 16 to 32 tokens in all slots together, or in each slot at other steps; the last is the episode's.

    Attributes:
        turns: of an episode, each with its end token.
        together: whether slots end their turns at the same steps.
    """

    end: int
    turns: int
    together: bool
    taken: torch.Tensor

    def act(self, obs: Any, state: Any, episode_start: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """Choose as the model does until a turn has its length, then the end token."""
        actions, log_probs, state = super().act(obs, state, episode_start, *args, **kwargs)
        if episode_start.all():
            self.taken = torch.zeros(len(actions), dtype=torch.int64)
        self.taken[episode_start] = 0
        self.taken += 1
        turn = 1 if self.together else torch.arange(len(actions)) % 17
        ends = self._ends(turn)  # steps at which each slot's turns end [B, TURNS]
        mine = ends if self.turns > 1 else ends[:, -1:]
        return torch.where((self.taken[:, None] == mine).any(1), self.end, actions), log_probs, state

    def _ends(self, shift: Any) -> torch.Tensor:
        lengths = LONGEST // 2 + (torch.arange(TURNS) * 7 + torch.as_tensor(shift).reshape(-1, 1)) % (LONGEST // 2 + 1)
        return lengths.expand(len(self.taken), -1).cumsum(1)


def run(name: str, pairs: int) -> list[Row]:
    """Return results for a tiny and a larger model, whose slots end their turns together or apart."""
    return [_compare(preset, together, pairs) for preset in ("tiny", "base") for together in (True, False)]


def _compare(preset: str, together: bool, pairs: int) -> Row:
    sides = [_collector(preset, together, replies) for replies in (True, False)]

    def collect(side: int) -> tuple[float, Rollout]:
        collector, policy = sides[side]
        collector.seed(0)
        with clock() as seconds:
            rollout = collector.collect(policy, EPISODES, torch.Generator().manual_seed(0))
        assert rollout is not None
        return int(rollout.lengths.sum()) / seconds(), rollout

    taken = alternate(lambda: collect(0)[0], lambda: collect(1)[0], pairs)
    ours, plain = (collect(side)[1] for side in (0, 1))
    size = sum(parameter.numel() for parameter in sides[0][1].parameters())
    label = f"{size / 1e6:.1f} M parameters, turns end {'together' if together else 'apart'}"
    same = ours.positions is not None and ours.lengths.tolist() == plain.lengths.tolist()
    read = [int(policy.costs(rollout).sum()) for (_, policy), rollout in zip(sides, (ours, plain), strict=True)]
    quality = f"the same {EPISODES} lengths: {same}; tokens read: {read[0]} and {read[1]}"
    return Row.of(label, *taken, "tokens/s", quality, less_is_better=False)


def _collector(preset: str, together: bool, replies: bool) -> tuple[Collector, ForcedTurns]:
    kind = Answered if replies else FunctionVerifier
    prompt = PROMPT if replies else PROMPT + (TURNS - 1) * REPLY
    envs: Any = gym.make_vec(
        "TextGen-v0", SLOTS, verifier=kind(lambda prompts, completions: [0.0] * len(prompts), alphabet=LETTERS),
        problems=letter_prompts(EPISODES, prompt), test_fraction=0.0, max_prompt_tokens=prompt,
        max_new_tokens=LONGEST if replies else TURNS * LONGEST,
    )  # fmt: skip
    task = envs.task
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = never_ends(load_model(preset, task.vocab_size, task.max_length, None), [task.eos_token_id])
    policy = ForcedTurns(envs.single_observation_space, envs.single_action_space, model)
    policy.end, policy.turns, policy.together = task.eos_token_id, TURNS if replies else 1, together
    return Collector(envs, torch.device("cpu")), policy
