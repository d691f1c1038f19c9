"""Where the time of an update on short answers goes: 32 sums x 8 answers, 0.43 million parameters, RLOO."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any

import torch

from agents.policies.language import policy as language_model
from agents.policies.language.decoding import decoder
from agents.policies.language.decoding import step as decode_step
from agents.policies.language.training import forward
from agents.rollouts import record

from .floors import counted_tokens, operations, product_speed
from .measure import Row, clock
from .trl_short import our_agent
from .worlds import GROUPS, K, warm_model

UPDATES = 20


class _Watch:
    """Adds up the time spent in functions, without the time in other watched functions that they call."""

    def __init__(self) -> None:
        self.own: dict[str, float] = defaultdict(float)
        self.inner = [0.0]

    def over(self, owner: Any, name: str, part: str) -> None:
        """Replace a function by a timed one."""
        function = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            self.inner.append(0.0)
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent = time.perf_counter() - started
                self.own[part] += spent - self.inner.pop()
                self.inner[-1] += spent

        setattr(owner, name, timed)


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for each part of an update; the ratio is the whole over the part."""
    agent = our_agent("rloo", warm_model())
    agent.learn(total_episodes=GROUPS * K * 5)
    with counted_tokens(agent.policy) as tokens:
        agent.learn(total_episodes=GROUPS * K * UPDATES, reset_num_timesteps=False)
    watch = _Watch()
    _place(watch, agent)
    whole: list[float] = []
    parts: dict[str, list[float]] = defaultdict(list)
    for _ in range(pairs):
        watch.own.clear()
        with clock() as seconds:
            agent.learn(total_episodes=GROUPS * K * UPDATES, reset_num_timesteps=False)
        whole.append(seconds() / UPDATES * 1e3)
        for part, spent in watch.own.items():
            parts[part].append(spent / UPDATES * 1e3)
        parts["the rest: collecting, logging"].append(whole[-1] - sum(watch.own.values()) / UPDATES * 1e3)
    floor = operations(agent.policy, tokens) / UPDATES / product_speed(agent.policy.model)
    parts["floor: the arithmetic at the speed of a plain product"] = [floor * 1e3] * pairs
    per_update = {kind: count / UPDATES for kind, count in tokens.items()}
    read = f"{per_update['acting']:.0f} tokens read in acting, {per_update['training']:.0f} in training, per update"
    return [Row.of(part, taken, whole, "ms/update", read) for part, taken in parts.items()]


def _place(watch: _Watch, agent: Any) -> None:
    env, policy = agent.env, agent.policy
    for owner, name, part in (
        (env, "reset", "environment: posing problems"), (env, "step", "environment: appending, judging"),
        (decoder.Decoder, "_prefill", "acting: reading prompts"),
        (decode_step.LlamaStep, "__call__", "acting: decode steps"),
        (policy, "_choose", "acting: sampling"), (decoder.ContextDecoder, "logits", "acting: sharing contexts"),
        (record.Record, "rollout", "collecting: assembling the rollout"),
        (language_model, "plan_reading", "training: planning what to read"),
        (forward.Reading, "outputs", "training: forward"), (torch.Tensor, "backward", "training: backward"),
        (agent.policy_optimizer, "step", "training: optimizer"),
        (agent, "update", "training: advantages, loss, figures"),
    ):  # fmt: skip
        watch.over(owner, name, part)
