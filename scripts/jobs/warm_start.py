"""Imitation of demonstrations within a run: its warm start, or all of supervised training."""

from __future__ import annotations

import time

from rlenv.agents import Agent, Rollout
from rlenv.agents.errors import reading
from rlenv.agents.training.supervised import WarmStart

from ..config.configs import SftConfig, TrainConfig
from ..process.progress import Interrupt, progress_bar
from ..run.checkpoints import Saver
from ..run.log import log_scalar


def warm_start(
    saver: Saver,
    demonstrations: Rollout | None,
    config: TrainConfig | SftConfig,
    interrupt: Interrupt,
    in_passes: bool = False,
) -> bool:
    """Imitate demonstrations, drawn with the run's seed, to the end or a signal; return whether it came to its end.

    The run's state has the loop until its end, from which a resumed run goes on, and its figures.

    Args:
        saver: of the run, whose agent learns; writes a checkpoint when it is time, and one at the end.
        demonstrations: None for no warm start.
        config: of the run.
        interrupt: ends it between two steps.
        in_passes: see `WarmStart`.
    """
    agent, state = saver.agent, saver.state
    if "warm_start" in state and "imitation" not in state:
        return True
    if demonstrations is None:
        state["warm_start"] = {"steps": 0, "loss": None, "seconds": 0.0}
        saver.save()
        return True
    sizes = (config.sft_steps or 0, config.sft_batch_size, imitation_rate(agent, config))
    loop = WarmStart(
        agent.policy,
        demonstrations,
        *sizes,
        micro_batch_size=agent.micro_batch_size,
        micro_batch_tokens=agent.micro_batch_tokens,
        seed=config.seed,
        in_passes=in_passes,
    )
    started = time.perf_counter() - state.get("warm_start", {}).get("seconds", 0.0)
    if "imitation" in state:
        with reading("the warm start of the checkpoint"):
            loop.load_state_dict(state["imitation"])

    def keep(ended: bool = False) -> None:
        figures = {"steps": len(loop.losses), "loss": loop.losses[-1] if loop.losses else None}
        state["warm_start"] = figures | {"seconds": round(time.perf_counter() - started, 3)}
        state["imitation"] = loop.state_dict()  # with the optimizer
        if ended:
            del state["imitation"]
        saver.save()

    with progress_bar("warm start", loop.steps, len(loop.losses)) as show:

        def on_step(step: int, loss: float) -> bool:
            show(step + 1, f"loss {loss:.3f}")
            log_scalar(agent.logger, "sft/loss", loss, step)
            if saver.due():
                keep()
            return not interrupt.signal

        loop.run(on_step)
    keep(ended := len(loop.losses) == loop.steps)
    return ended


def imitation_rate(agent: Agent, config: TrainConfig | SftConfig) -> float:
    """Return the learning rate of supervised training: the option, else the policy's default."""
    rate = config.sft_learning_rate
    return agent.usual("sft_learning_rate") if rate is None else rate
