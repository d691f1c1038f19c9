"""Updates of all weights of SmolLM2-135M-Instruct against TRL's: time, reward and peak memory from the same runs.

Each side is a separate process, and each pair is a seed. The sides take a few updates in turn, from the same weights,
on the same prompts. Every seed is written down when it is measured, so that a later call can go on with the others.
"""

from __future__ import annotations

import json
import statistics
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from .floors import counted_tokens, operations, product_speed
from .measure import Row, Side, clock, mean_and_range, wait_for_turns
from .peers import SAME_LOSS, Rewards, Turns, learned, peer_trainer, require_trl
from .smollm2 import JOBS, RATE, Job, model_place, our_agent, text_envs

LAST = 8  # updates whose mean reward is what a side has learned


def run(name: str, pairs: int, folder: Path, updates: int | None = None, resume: bool = False) -> list[Row]:
    """Return the row of a job.

    Args:
        name: of the job.
        pairs: seeds.
        folder: where NAME.jsonl gets a line for each seed.
        updates: of each side per seed; None for the job's own number.
        resume: keep the seeds that the file already has.
    """
    require_trl()
    model_place()  # written once, before two processes ask for it
    updates = updates or JOBS[name].updates
    if updates % JOBS[name].steps or updates < 2 * JOBS[name].steps:
        raise ValueError(f"updates={updates} is not a multiple of {JOBS[name].steps}, from {2 * JOBS[name].steps} on")
    file = folder / f"{name}.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if resume and file.is_file() else []
    kept = [made for made in map(json.loads, lines) if made["updates"] == updates]
    each = {made["seed"]: made for made in kept}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(made) + "\n" for made in kept), encoding="utf-8")
    for seed in range(pairs):
        if seed not in each:
            each[seed] = _measure(name, seed, updates)
            with file.open("a", encoding="utf-8") as lines_of_seeds:
                lines_of_seeds.write(json.dumps(each[seed]) + "\n")
    return [_row(JOBS[name], [each[seed] for seed in range(pairs)])]


def _measure(name: str, seed: int, updates: int) -> dict[str, Any]:
    """Return what both sides did with a seed; the first turn is for warming up, and is not timed."""
    arguments = (name, str(seed), str(updates), str(torch.get_num_threads()))
    with Side(__name__, "ours", *arguments) as ours, Side(__name__, "trl", *arguments) as peer:
        taken = [(peer.turn(), ours.turn()) for _ in range(updates // JOBS[name].steps)]
        ends = {"ours": ours.turn(), "peer": peer.turn()}
    made: dict[str, Any] = {"seed": seed, "updates": updates, "threads": torch.get_num_threads(), **ends}
    for side, turns in zip(("peer", "ours"), zip(*taken, strict=True), strict=True):
        made[side]["seconds"] = [turn["seconds"] for turn in turns]
    made["ours"]["floor"] = [turn["floor"] for _, turn in taken]
    return made


def _row(job: Job, each: list[dict[str, Any]]) -> Row:
    def per_seed(side: str, figure: str, part: slice) -> list[float]:
        return [statistics.mean(seed[side][figure][part]) for seed in each]

    timed, last, updates = slice(1, None), slice(-LAST, None), each[0]["updates"]
    seconds, floors = per_seed("ours", "seconds", timed), per_seed("ours", "floor", timed)
    rewards = [per_seed("ours", "rewards", slice(1)), *(per_seed(side, "rewards", last) for side in ("ours", "peer"))]
    peaks = [max(seed[side]["peak"] for seed in each) for side in ("ours", "peer")]
    lengths = [statistics.mean(per_seed(side, "lengths", slice(None))) for side in ("ours", "peer")]
    shares = [floor / taken for floor, taken in zip(floors, seconds, strict=True)]
    quality = (
        f"{learned('reward', updates, *rewards)} (the mean of the last {min(LAST, updates)}); "
        f"mean length ours {lengths[0]:.1f}, TRL {lengths[1]:.1f} tokens; "
        f"peak memory ours {peaks[0]:.1f}, TRL {peaks[1]:.1f} GB; "
        f"{statistics.mean(per_seed('ours', 'trained', timed)):.0%} of the answers have a gradient; "
        f"floor / ours {mean_and_range(shares)}; "
        f"log-probabilities of acting and training differ by at most {max(seed['ours']['gap'] for seed in each):.1g}"
    )
    known: dict[str, Any] = {"reward": rewards[1], "peer_reward": rewards[2], "length": lengths, "peak": peaks}
    known |= {"floor": statistics.median(floors), "seeds": each}
    return Row.of(f"GRPO, {job.label}", seconds, per_seed("peer", "seconds", timed), "s/update", quality, **known)


def _our_side(job: Job, seed: int, updates: int) -> None:
    agent, kept, batch, gaps = our_agent(job, updates, seed), Rewards(), job.batch * job.steps, []
    trained: list[float] = []
    agent.watchers.append(lambda rows: trained.append(float((rows.advantages != 0).any(1).float().mean())))
    turns = wait_for_turns()
    for _ in range(updates // job.steps):
        answer = next(turns)
        with counted_tokens(agent.policy) as tokens, clock() as seconds:
            agent.learn(total_episodes=batch, callback=kept, reset_num_timesteps=False)
        gaps.append(agent.last_metrics["train/logp_gap_max"])
        floor = operations(agent.policy, tokens) / product_speed(agent.policy.model)
        answer({"seconds": seconds() / job.steps, "floor": floor / job.steps})
    next(turns)({"rewards": kept.kept, "lengths": kept.lengths, "trained": trained, "gap": max(gaps)})


def _their_side(job: Job, seed: int, updates: int) -> None:
    task = text_envs(job, job.batch, job.groups * updates, seed, group_size=job.k).task
    model, turns = AutoModelForCausalLM.from_pretrained(model_place(), dtype=torch.float32), wait_for_turns()

    answer: Any  # of the present turn

    def others() -> float:
        nonlocal answer
        answer({"seconds": callback.theirs[-1]})
        answer = next(turns)  # ours has had its turn
        return 0.0

    callback = Turns(others, job.steps, updates // job.steps)
    with TemporaryDirectory() as place:
        settings = {"seed": seed, "learning_rate": RATE, "logging_steps": 1, **SAME_LOSS}
        peer = peer_trainer("GRPO", model, task, job.batch, job.reward, callback, place, **settings)
        answer = next(turns)
        peer.train()
    answer({"rewards": callback.rewards, "lengths": callback.lengths})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    side, name, *numbers = sys.argv[1:]
    seed, updates, threads = map(int, numbers)
    torch.set_num_threads(threads)
    {"ours": _our_side, "trl": _their_side}[side](JOBS[name], seed, updates)
