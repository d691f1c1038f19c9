"""Measure two processes against one, and what the cost model says of both; write docs/scaling.json and the tables.

python docs/make_scaling.py --pairs 5     # one process, then two, five times, on two cores that do nothing else
python docs/make_scaling.py --pairs 0     # only write the tables again; the simulation takes seconds

The worker of each process: torchrun --nproc-per-node W docs/make_scaling.py --worker EPISODES
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "docs" / "scaling.json", ROOT / "docs" / "scaling.md"
EPISODES, PROMPT, COMPLETION, GROUP = 128, 16, 64, 8  # of the job that is measured
UPDATES, WARM = 4, 1  # per measurement, and before it
BYTES_PER_CELL = 23  # of a rollout that is sent, padded to its longest episode, as --pairs measures it


@dataclass(frozen=True)
class Cluster:
    """What the simulation assumes: one process per GPU, every process with the whole policy.

    Attributes:
        parameters: of the policy, read in each step of acting (2 bytes each) and in training.
        trained: those with a gradient (4 bytes each when gradients are added up).
        episodes: per update and GPU, all of them in slots at once; in groups of 8.
        prompt, completion, longest: tokens per episode: the prompt, the mean completion and the longest possible.
        memory, compute: of a GPU, in bytes/s and useful operations/s.
        network: bytes/s that a GPU sends and receives, all at once.
        host_network: the same for rollouts, which go through the hosts' memory.
        latency: seconds per message.
    """

    name: str
    parameters: float
    trained: float
    episodes: int = 64
    prompt: int = 512
    completion: int = 1024
    longest: int = 4096
    memory: float = 3.35e12 * 0.6
    compute: float = 9.9e14 * 0.35
    network: float = 50e9 * 0.7
    host_network: float = 3e9
    latency: float = 20e-6


CLUSTERS = (
    Cluster("1.5 B parameters, all trained", 1.5e9, 1.5e9),
    Cluster("8 B parameters, 40 M of an adapter trained", 8e9, 4e7),
)


def exchange(cluster: Cluster, processes: int, cells: float) -> tuple[float, float, float]:
    """Return the bytes per GPU of the gradients and of the rollout, and the seconds for both.

    Args:
        cluster: see there.
        processes: W.
        cells: tokens of the whole rollout, prompts and padding included.
    """
    gradients = 2 * (processes - 1) / processes * 4 * cluster.trained  # a ring: each sends and receives as much
    rollout = (processes - 1) / processes * cells * BYTES_PER_CELL
    messages = 2 * (processes - 1) + (processes - 1)
    seconds = gradients / cluster.network + rollout / cluster.host_network + messages * cluster.latency
    return gradients, rollout, seconds


def simulate(cluster: Cluster, processes: int, whole: int | None = None, updates: int = 20) -> dict[str, float]:
    """Draw episodes, deal their groups to the processes, and return the mean time of an update and its parts.

    Args:
        cluster: see there.
        processes: W.
        whole: episodes per update of all processes; None for `cluster.episodes` in each.
        updates: how many are drawn.
    """
    rng = np.random.default_rng(0)
    total = cluster.episodes * processes if whole is None else whole
    times = []
    for _ in range(updates):
        lengths = np.minimum(rng.exponential(cluster.completion, total), cluster.longest)
        mine = lengths.reshape(-1, GROUP)  # group g is played by process g mod W
        acting = [_acting(cluster, mine[rank::processes].ravel()) for rank in range(processes)]
        tokens = float(lengths.sum() + cluster.prompt * total)
        training = 6 * cluster.parameters * tokens / processes / cluster.compute  # rows are dealt out by their cost
        sent = exchange(cluster, processes, (lengths.max() + cluster.prompt) * total)
        times.append((max(acting), float(np.mean(acting)), training, *sent))
    longest, mean, training, gradients, rollout, exchanged = np.mean(times, axis=0)
    seconds = float(longest + training + exchanged)
    parts = {"act": float(longest), "wait": float(longest - mean), "train": float(training)}
    bytes_sent = {"gradients": float(gradients), "rollout": float(rollout)}
    return {"seconds": seconds, **parts, "exchange": float(exchanged), **bytes_sent}


def _acting(cluster: Cluster, lengths: np.ndarray) -> float:
    """Return the seconds for a process's episodes: a step reads all weights, however few the slots still are."""
    ends = np.sort(lengths)
    running = len(ends) - np.searchsorted(ends, np.arange(int(ends[-1]) + 1))
    per_step = np.maximum(2 * cluster.parameters / cluster.memory, 2 * cluster.parameters * running / cluster.compute)
    reading = 2 * cluster.parameters * cluster.prompt * len(ends) / cluster.compute
    return float(per_step.sum() + reading)


# What is measured.


def worker(episodes: int) -> None:
    """Train a while, and let the main process print the median seconds of the parts of an update."""
    import torch
    import torch.distributed as dist

    import rlenv  # noqa: F401
    from agents import AGENTS
    from agents.distributed import parallel
    from verifiers import FunctionVerifier

    torch.set_num_threads(1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("gloo")
    letters = "abcdefghijklmno"
    draw = np.random.default_rng(0).integers(len(letters), size=(512, PROMPT))
    world = {
        "verifier": FunctionVerifier(_reward, alphabet=letters),
        "problems": ["".join(letters[i] for i in row) for row in draw],
        "test_fraction": 0.0,
        "max_new_tokens": COMPLETION,
    }
    sizes = {"episodes_per_update": episodes, "num_envs": episodes, "group_size": GROUP, "micro_batch_tokens": 4096}
    agent = AGENTS["grpo"]("small", "TextGen-v0", env_kwargs=world, learning_rate=1e-6, device="cpu", **sizes)
    rounds: list[float] = []
    updates: list[float] = []
    agent.collect_rollout = _timed(agent.collect_rollout, rounds)
    agent.update = _timed(agent.update, updates)
    start = time.perf_counter()
    rollout: Any = None
    for number, (last, _) in enumerate(agent.updates(total_episodes=(WARM + UPDATES) * episodes), 1):
        rollout = last
        if number == WARM:
            start = time.perf_counter()
    seconds = (time.perf_counter() - start) / UPDATES
    exchanged: list[float] = []
    own = parallel.own_rows(rollout.lengths)
    sent = rollout.select(torch.arange(own.start, own.stop))  # a copy: of a view, everything would be sent
    for parameter in agent.policy.parameters():
        parameter.grad = torch.zeros_like(parameter)
    for _ in range(9):
        parallel.gather(0)
        begun = time.perf_counter()
        parallel.gather(sent)
        parallel.sum_gradients(agent.policy.parameters())
        exchanged.append(time.perf_counter() - begun)
    figures = {
        "seconds": seconds,
        "act": statistics.median(rounds[WARM:]),
        "train": statistics.median(updates[WARM:]),
        "exchange": statistics.median(exchanged),
        "parameters": sum(parameter.numel() for parameter in agent.policy.parameters()),
        "bytes_per_cell": len(pickle.dumps(sent)) / (len(sent) * (PROMPT + sent.mask.shape[1])),
    }
    if parallel.is_main():
        print(json.dumps(figures))
    if parallel.size() > 1:
        dist.destroy_process_group()


def _reward(prompts: list[str], completions: list[str]) -> list[float]:
    return [float(text.count("a")) for text in completions]


def _timed(work: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        begun = time.perf_counter()
        result = work(*args)
        seconds.append(time.perf_counter() - begun)
        return result

    return call


def measured(processes: int, episodes: int) -> dict[str, float]:
    """Run the worker in so many processes, of one thread each, and return its figures."""
    starter = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *starter, __file__, "--worker", str(episodes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.strip().splitlines()[-1])


def measure(pairs: int) -> dict[str, Any]:
    """Return one process, one with half of the episodes, and two, in turn, so many times."""
    runs: dict[str, list[dict[str, float]]] = {"one": [], "half": [], "two": []}
    for _ in range(pairs):
        for name, processes, episodes in (("one", 1, EPISODES), ("half", 1, EPISODES // 2), ("two", 2, EPISODES)):
            runs[name].append(measured(processes, episodes))
    return runs


# The tables.


def tables(runs: dict[str, Any]) -> str:
    """Return what is written into the page."""
    lines = []
    if runs.get("one"):
        middle = {name: {key: _median(each, key) for key in each[0]} for name, each in runs.items()}
        one, half, two = middle["one"], middle["half"], middle["two"]
        predicted = half["act"] + half["train"] + two["exchange"]
        gains = [a["seconds"] / b["seconds"] for a, b in zip(runs["one"], runs["two"], strict=True)]
        lines += [
            f"{EPISODES} episodes of {PROMPT} + at most {COMPLETION} tokens per update, {one['parameters'] / 1e6:.1f} "
            f"M parameters, 2 cores, one thread per process; medians of {len(gains)} runs:",
            "",
            "| seconds per update | act | train | exchange | together | episodes/s |",
            "|---|---|---|---|---|---|",
            _row("one process", one["act"], one["train"], 0.0, one["seconds"]),
            _row("two, by the model", half["act"], half["train"], two["exchange"], predicted),
            _row("two, measured", None, None, None, two["seconds"]),
            "",
            f"Measured gain: {statistics.median(gains):.2f} ({min(gains):.2f} to {max(gains):.2f}); predicted: "
            f"{one['seconds'] / predicted:.2f}. A rollout takes {two['bytes_per_cell']:.0f} bytes per "
            "token or cell of padding to send.",
            "",
        ]
    for cluster in CLUSTERS:
        lines += _simulated(cluster)
    return "\n".join(lines)


def _row(name: str, act: float | None, train: float | None, sent: float | None, seconds: float) -> str:
    cells = ["" if value is None else f"{value:.2f}" for value in (act, train, sent)]
    return f"| {name} | {' | '.join(cells)} | {seconds:.2f} | {EPISODES / seconds:.1f} |"


def _median(runs: list[dict[str, float]], key: str) -> float:
    return statistics.median(run[key] for run in runs)


def _simulated(cluster: Cluster) -> list[str]:
    alone = simulate(cluster, 1)["seconds"]
    lines = [
        f"{cluster.name}; {cluster.episodes} episodes per GPU and update (in brackets: 8,192 in all):",
        "",
        "| GPUs | act | of it waiting | train | exchange | gradients | rollout | efficiency |",
        "|---|---|---|---|---|---|---|---|",
    ]
    strong = simulate(replace(cluster, episodes=8192), 1, updates=5)["seconds"]
    for processes in (8, 64, 256, 1024):
        found = simulate(cluster, processes)
        fixed = simulate(cluster, processes, whole=8192)
        times = " | ".join(f"{found[name]:.1f} s" for name in ("act", "wait", "train", "exchange"))
        sent = f"{found['gradients'] / 1e9:.2f} GB | {found['rollout'] / 1e9:.3f} GB"
        efficiency = f"{alone / found['seconds']:.0%} ({strong / processes / fixed['seconds']:.0%})"
        lines.append(f"| {processes:,} | {times} | {sent} | {efficiency} |")
    return [*lines, ""]


def page(text: str, written: str) -> str:
    """Return the page with these tables between its marks."""
    begin, end = "<!-- made by make_scaling.py -->\n", "<!-- end -->"
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{written}\n{end}{rest.partition(end)[2]}"


def main() -> None:
    """Measure if asked to, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        worker(given.worker)
        return
    if given.pairs:
        RESULTS.write_text(json.dumps(measure(given.pairs), indent=1) + "\n", encoding="utf-8")
    runs = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), tables(runs)), encoding="utf-8")


if __name__ == "__main__":
    main()
