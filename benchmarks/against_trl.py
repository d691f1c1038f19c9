"""An update of GRPO beside TRL's: time, reward and peak memory from the same runs.

Each side is a separate process, and each pair is a seed. The sides take a few updates in turn, from the same weights,
on the same prompts, with the same settings of the optimizer. The first turn of a seed is not timed.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from transformers import AutoModelForCausalLM

from rlenv.agents import Agent, find_agent
from rlenv.agents.language.loading import load_model

from . import worlds
from .floors import product_speed, read_once, size
from .measure import Case, Side, clock, mean_and_range, wait_for_turns
from .peers import Turns, peer_trainer, require_trl
from .worlds import GROUPS, K

SIDES = ("ours", "peer")
LAST = 8  # updates whose mean reward is what a side has learned, at most half of all


@dataclass(frozen=True)
class Job:
    """An update of `groups` prompts with `k` answers each, `updates` times per seed.

    Attributes:
        label: for the table.
        start: returns the model that both sides start from, or its folder.
        envs: returns our environment, given the job and a seed.
        reward: of completions, with TRL's signature.
        tokens: of the longest answer.
        steps: updates per turn.
        rate: the learning rate.
        device: of both sides.
        theirs: settings of TRL for this job.
        ours: settings of our agent for this job.
    """

    label: str
    start: Callable[[], Any]
    envs: Callable[[Job, int], Any]
    reward: Callable[..., list[float]]
    groups: int
    k: int
    tokens: int
    updates: int
    steps: int
    rate: float
    device: str = "cpu"
    theirs: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)

    @property
    def batch(self) -> int:
        """Episodes per update."""
        return self.groups * self.k


def _arith(job: Job, seed: int) -> Any:
    return worlds.arith_envs(job.batch, group_size=job.k)


def _letters(job: Job, seed: int) -> Any:
    prompts = worlds.letter_prompts(job.groups * job.updates, 8, seed)
    return worlds.letter_envs(job.batch, prompts, job.tokens, job.reward, group_size=job.k)


def _tiny() -> Any:
    task = worlds.letter_envs(1, worlds.letter_prompts(1, 8), JOBS["trl-long"].tokens).task
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return load_model("tiny", task.encoding.vocab_size, task.encoding.max_length, None)


def _words(prompt: int, size: int, job: Job, seed: int) -> Any:
    return worlds.word_envs(job.batch, size, prompt, job.tokens, job.reward, group_size=job.k, device=job.device)


def _chat(problems: Any, job: Job, seed: int) -> Any:
    posed = problems(job.groups * job.updates, seed)
    return worlds.chat_envs(job.batch, posed, job.tokens, job.reward, group_size=job.k)


def _of_words(prompt: int, k: int, tokens: int, groups: int, width: int, layers: int) -> Job:
    start = partial(worlds.qwen3, width, layers, prompt + tokens)
    label = f"{groups} prompts of {prompt} tokens x {k} answers of {tokens}"
    reward, envs = partial(worlds.even_words, tokens), partial(_words, prompt, 512)
    # At this rate few updates show whether both sides learn equally well.
    return Job(label, start, envs, reward, groups, k, tokens, updates=6, steps=3, rate=5e-3)


JOBS = {
    "trl-grpo": Job(
        f"{GROUPS} sums x {K} answers of at most 5", worlds.warm_model, _arith, worlds.same_text, GROUPS, K, 5,
        updates=100, steps=50, rate=3e-4,
    ),
    "trl-long": Job(  # at this rate lengths hardly change while it is measured
        f"{GROUPS} prompts x {K} answers of 1 to 64", _tiny, _letters, worlds.share_of_vowels, GROUPS, K, 64,
        updates=10, steps=5, rate=5e-5,
    ),
    "trl-prompt": _of_words(prompt=512, tokens=32, groups=2, k=16, width=256, layers=6),
    "trl-30m": _of_words(prompt=128, tokens=64, groups=4, k=8, width=512, layers=10),
    "trl-smollm2": Job(
        "4 sums x 8 answers of at most 16", worlds.smollm2, partial(_chat, worlds.sums), worlds.right_number, 4, 8, 16,
        updates=8, steps=4, rate=2e-5,
    ),
    "trl-smollm2-story": Job(
        "2 stories x 8 answers of 64", worlds.smollm2, partial(_chat, worlds.stories), worlds.short_words, 2, 8, 64,
        updates=4, steps=2, rate=2e-5,
    ),
    "trl-gpu": Job(
        "64 prompts of 128 tokens x 8 answers of 256", worlds.half_billion, partial(_words, 128, 151_936),
        partial(worlds.even_words, 256), 64, 8, 256, updates=4, steps=2, rate=1e-6, device="cuda",
        theirs={"bf16": True, "per_device_train_batch_size": 64, "gradient_accumulation_steps": 8},
        ours={"micro_batch_tokens": 64 * 384},
    ),
}  # fmt: skip


def cases(name: str) -> Iterator[Case]:
    """Yield the one case of a job; each of its pairs is another seed."""
    require_trl()
    job = JOBS[name]
    with TemporaryDirectory() as folder:
        start = job.start()
        if not isinstance(start, str):
            start.save_pretrained(folder)
        place = start if isinstance(start, str) else folder
        seeds: list[dict[str, Any]] = []

        def pair() -> tuple[float, float]:
            seeds.append(_measure(name, len(seeds) + 1, place))  # seed 0 has the sums of the warm start
            return seeds[-1]["ours"]["seconds"], seeds[-1]["peer"]["seconds"]

        def details() -> dict[str, Any]:
            return {"floor": statistics.median(seed["ours"]["floor"] for seed in seeds), "seeds": seeds}

        yield Case(f"GRPO, {job.label}", "s/update", pair, lambda: _quality(job, seeds), details, warm_up=0)


def _measure(name: str, seed: int, place: str) -> dict[str, Any]:
    """Return the figures of both sides with a seed, and their seconds per update in all turns but the first."""
    arguments, turns = (name, str(seed), place, str(torch.get_num_threads())), JOBS[name].updates // JOBS[name].steps
    with Side(__name__, "ours", *arguments) as ours, Side(__name__, "trl", *arguments) as peer:
        taken = [(peer.turn(), ours.turn()) for _ in range(turns)]
        ends = {"ours": ours.turn(), "peer": peer.turn()}
    for side, each in zip(("peer", "ours"), zip(*taken, strict=True), strict=True):
        ends[side]["seconds"] = statistics.mean(turn["seconds"] for turn in each[1:])
    ends["ours"]["acting"] = statistics.mean(turn["acting"] for _, turn in taken[1:])
    return ends


def _quality(job: Job, seeds: list[dict[str, Any]]) -> str:
    """Return the rewards that both sides reached, and their other figures."""

    def of(side: str, figure: str, part: slice = slice(None)) -> list[float]:
        return [statistics.mean(seed[side][figure][part]) for seed in seeds]

    last = min(LAST, job.updates // 2)
    before, ours, theirs = of("ours", "rewards", slice(1)), *(of(s, "rewards", slice(-last, None)) for s in SIDES)
    acting = statistics.median(seed["ours"]["acting"] for seed in seeds)
    whole = statistics.median(seed["ours"]["seconds"] for seed in seeds)
    lengths = [statistics.mean(of(side, "lengths")) for side in SIDES]
    peaks = [max(seed[side]["peak"] for seed in seeds) for side in SIDES]
    gap = max(seed["ours"]["gap"] for seed in seeds)
    return (
        f"reward {mean_and_range(before)} -> ours {mean_and_range(ours)}, TRL {mean_and_range(theirs)} (the last "
        f"{last} of {job.updates} updates; mean and range over {len(seeds)} seeds); "
        f"mean length ours {lengths[0]:.1f}, TRL {lengths[1]:.1f} tokens; "
        f"ours acts {acting:.3g} s and trains {whole - acting:.3g} s; "
        f"peak memory ours {peaks[0]:.1f}, TRL {peaks[1]:.1f} GB; "
        f"log-probabilities of acting and training differ by at most {gap:.1g}"
    )


class Rollouts(BaseCallback):
    """Keeps mean reward, mean length and size of each of our rollouts."""

    def __init__(self) -> None:
        super().__init__()
        self.rewards: list[float] = []
        self.lengths: list[float] = []
        self.read: list[int] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        rollout = self.locals["rollout"]
        self.rewards.append(float(rollout.returns.mean()))
        self.lengths.append(float(rollout.lengths.float().mean()))
        self.read.append(read_once(rollout))


def our_agent(job: Job, model: Any, seed: int = 0) -> Agent:
    """Return our side, which trains all weights of this model."""
    agent: Agent = find_agent("grpo")(
        model, job.envs(job, seed), learning_rate=job.rate, lr_schedule="constant", warmup_updates=0,
        episodes_per_update=job.batch, group_size=job.k, num_envs=job.batch, seed=seed, device=job.device, **job.ours,
    )  # fmt: skip
    return agent


def _our_side(job: Job, seed: int, place: str) -> None:
    agent, kept, acting = our_agent(job, _load(job, place), seed), Rollouts(), 0.0
    collect_rollout = agent.collect_rollout

    def timed(callback: Any) -> Any:
        nonlocal acting
        with clock() as seconds:
            rollout = collect_rollout(callback)
        acting += seconds()
        return rollout

    agent.collect_rollout = timed  # type: ignore[method-assign]
    turns, gaps = wait_for_turns(), []
    for _ in range(job.updates // job.steps):
        answer, acting = next(turns), 0.0
        with clock() as seconds:
            agent.learn(total_episodes=job.batch * job.steps, callback=kept, reset_num_timesteps=False)
        gaps.append(agent.last_metrics["train/logp_gap_max"])
        answer({"seconds": seconds() / job.steps, "acting": acting / job.steps})
    answer = next(turns)
    floor = 8 * size(agent.policy.model) * statistics.mean(kept.read) / product_speed(agent.policy.model)
    answer({"rewards": kept.rewards, "lengths": kept.lengths, "gap": max(gaps), "floor": floor})


def _their_side(job: Job, seed: int, place: str) -> None:
    task, model, turns = job.envs(job, seed).task, _load(job, place), wait_for_turns()
    with TemporaryDirectory() as folder:
        kept = Turns(turns, job.steps)
        settings = {"seed": seed, "learning_rate": job.rate, "output_dir": folder, "use_cpu": job.device == "cpu"}
        peer_trainer(model, task, job.batch, job.reward, job.updates, kept, **settings, **job.theirs).train()
    kept.answer({"rewards": kept.rewards, "lengths": kept.lengths})


def _load(job: Job, place: str) -> Any:
    dtype = torch.float32 if job.device == "cpu" else torch.bfloat16
    return AutoModelForCausalLM.from_pretrained(place, dtype=dtype).to(job.device)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    side, name, seed, place, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    {"ours": _our_side, "trl": _their_side}[side](JOBS[name], int(seed), place)
