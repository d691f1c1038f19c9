"""An update on short answers: 32 sums x 8 answers of at most 5 tokens, 0.43 million parameters, warm-started."""

from __future__ import annotations

import copy
from typing import Any

from gymnasium.utils import seeding

from agents import Agent, find_agent

from .floors import update_floor
from .measure import Row, clock
from .peers import Rewards, require_trl, train_beside
from .worlds import GROUPS, K, arith_envs, greedy_success, warm_model

STEPS, RATE, LOGGED = 50, 3e-4, 10
SAME: dict[str, Any] = {"activation_checkpointing": False, "beta": 0.0}  # as ours: nothing recomputed, no reference
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {  # name of a row: the trainer's settings
    "trl-grpo": {
        "GRPO, the same loss, no checkpointing, beta 0": SAME | {"loss_type": "grpo", "scale_rewards": "group"},
        "GRPO, TRL's defaults": {},
    },
    "trl-rloo": {
        "RLOO, the same loss, no checkpointing, beta 0": SAME | {"normalize_advantages": False},
        "RLOO, TRL's defaults (with a reference pass)": {},
    },
}


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each of TRL's configurations."""
    require_trl()
    return [_compare(name, label, settings, pairs) for label, settings in SETTINGS[name].items()]


def _compare(name: str, label: str, settings: dict[str, Any], pairs: int) -> Row:
    model = warm_model()
    turns = pairs + 1  # the first is for warming up
    agent = our_agent(name.removeprefix("trl-"), model)
    before = greedy_success(model)
    rows = [{"prompt": p.prompt, "answer": p.answer} for p in problems(agent, GROUPS * STEPS * turns)]

    def reward(completions: list[str], answer: list[str], **rest: Any) -> list[float]:
        return [float(text == right) for text, right in zip(completions, answer, strict=True)]

    rewards = Rewards()

    def our_turn() -> float:
        with clock() as seconds:
            agent.learn(total_episodes=GROUPS * K * STEPS, callback=rewards, reset_num_timesteps=False)
        return seconds() / STEPS

    times, theirs = train_beside(
        name.removeprefix("trl-").upper(), model, agent.env.task.tokenizer, rows, reward, our_turn, STEPS, turns,
        per_device_train_batch_size=GROUPS * K, num_generations=K, max_completion_length=agent.env.task.max_new_tokens,
        learning_rate=RATE, logging_steps=LOGGED, **settings,
    )  # fmt: skip
    after = [greedy_success(trained) for trained in (agent.policy.model, theirs)]
    last = [sum(kept[-count:]) / count for kept, count in ((rewards.kept, STEPS), (times.rewards, STEPS // LOGGED))]
    quality = (
        f"reward of the last {STEPS} of {STEPS * turns} updates: ours {last[0]:.3f}, TRL {last[1]:.3f}; "
        f"success {before:.3f} -> ours {after[0]:.3f}, TRL {after[1]:.3f}"
    )
    floor = update_floor(agent)
    known: dict[str, Any] = {"success": [before, *after], "reward": last, "floor": floor}
    return Row.of(label, times.ours[1:], times.theirs[1:], "s/update", quality, **known)


def our_agent(name: str, model: Any) -> Agent:
    """Return our agent at the same point, with the same settings."""
    envs = arith_envs(GROUPS * K, group_size=K)
    return find_agent(name)(
        copy.deepcopy(model), envs, learning_rate=RATE, lr_schedule="constant",
        episodes_per_update=GROUPS * K, group_size=K, device="cpu",
    )  # fmt: skip


def problems(agent: Agent, count: int) -> list[Any]:
    """Return the first problems that the agent's environment will pose."""
    task = copy.copy(agent.env.task)
    task.stream = copy.copy(task.stream)
    generator, _ = seeding.np_random(agent.seed)
    task.reseed(generator)
    return [task.stream[i] for i in range(count)]
