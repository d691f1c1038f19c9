"""Episodes of 4 to 64 tokens in 64 slots: slots that end restart at once, or a wave waits for its longest episode."""

from __future__ import annotations

from typing import Any

import torch

from agents import LanguageModelPolicy, Rollout
from agents.core.rollout import join
from agents.rollouts.collector import Collector

from .floors import acting_floor
from .measure import Row, alternate, clock
from .worlds import LETTERS, endless_model, letter_envs, letter_prompts

EPISODES, SLOTS, PROMPT, SHORTEST, LONGEST = 1024, 64, 8, 4, 64


class ForcedLengths(LanguageModelPolicy):
    """Ends each episode at a length given by its prompt: 4 to 64, uniform or log-uniform."""

    end: int
    logarithmic: bool

    def act(self, obs: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
        """Choose as the model does until the length is reached, then the end token."""
        actions, log_probs, state = super().act(obs, state, *args, **kwargs)
        draws = (obs["tokens"][:, 0] * len(LETTERS) + obs["tokens"][:, 1]) * 37 % 61 / 60  # 0 to 1
        if self.logarithmic:
            lengths = SHORTEST * (LONGEST / SHORTEST) ** draws
        else:
            lengths = SHORTEST + (LONGEST - SHORTEST) * draws
        return actions.where(obs["length"] - PROMPT + 1 < lengths, self.end), log_probs, state


def run(name: str, pairs: int) -> list[Row]:
    """Return results for a cache row per slot, as on a GPU, and per distinct context, as on a CPU."""
    return [_compare(share, logarithmic, pairs) for share in (False, True) for logarithmic in (True, False)]


def _compare(share: bool, logarithmic: bool, pairs: int) -> Row:
    envs = letter_envs(SLOTS, letter_prompts(EPISODES, PROMPT), LONGEST)
    task = envs.task
    model = endless_model(task.vocab_size, task.max_length, task.eos_token_id)
    spaces = (envs.single_observation_space, envs.single_action_space)
    policy = ForcedLengths(*spaces, model, share_contexts=share)
    policy.end, policy.logarithmic = task.eos_token_id, logarithmic
    collector, generator = Collector(envs, torch.device("cpu")), torch.Generator().manual_seed(0)

    def collect(waves: int) -> tuple[float, Rollout]:
        collector.seed(0)
        with clock() as seconds:
            parts = [collector.collect(policy, EPISODES // waves, generator) for _ in range(waves)]
        rollout = join([part for part in parts if part is not None], policy.obs_from_actions)
        return int(rollout.lengths.sum()) / seconds(), rollout

    taken = alternate(lambda: collect(1)[0], lambda: collect(EPISODES // SLOTS)[0], pairs)
    ours, waves = (sorted(collect(count)[1].lengths.tolist()) for count in (1, EPISODES // SLOTS))
    mean = sum(ours) / len(ours)
    spread = "log-uniform" if logarithmic else "uniform"
    label = f"a row for each {'distinct context' if share else 'slot'}, {spread} lengths"
    quality = f"the same {EPISODES} lengths: {ours == waves}; mean {mean:.0f} of {LONGEST}"
    known: dict[str, Any] = {"mean_length": mean, "floor": acting_floor(model, SLOTS, PROMPT, round(mean))}
    return Row.of(label, *taken, "tokens/s", quality, less_is_better=False, **known)
