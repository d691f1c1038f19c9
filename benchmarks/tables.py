"""The scores of docs/results.md: every run that its tables show, continued where an earlier call stopped.

    python -m rlenv._benchmarks.tables              # make tables: about four hours of one core
    python -m rlenv._benchmarks.tables demo cartpole  # some rows

Runs are kept in build/tables. A row whose seeds are all finished is written to benchmarks/results/scores.json, with the
commit, the day and the machine; `python docs/make_performance.py` draws the tables.
"""

from __future__ import annotations

import argparse
import datetime
import json
import resource
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from .measure import machine, versions
from .record import ROOT, call, head

SCORES = ROOT / "benchmarks" / "results" / "scores.json"
RUNS = ROOT / "build" / "tables"
FINISHED = "result.json"  # of a run


class Row(NamedTuple):
    """A line of the tables: one job with several seeds.

    Attributes:
        what: the task, or the environment.
        train: the options of `rlenv train`, without seed and folder.
        seeds: their number.
        model: for text.
        link: to the page that tells more.
        first: what Python runs once to make what the options name; behind ">" is the file for what it prints.
        zoo: the score of rl-baselines3-zoo, for control.
    """

    what: str
    train: str
    seeds: int
    model: str = ""
    link: str = ""
    first: str = ""
    zoo: str = ""


WARM_GUESS = "--verifier guess --sft-steps 1200 --sft-examples 20000"
GUESS = "--verifier guess --agent rloo --group-size 8 --episodes-per-update 128 --learning-rate 5e-4"
PRODUCTS = (
    "--model smollm2 --verifier numeric --tool calculator --problems build/tables/products.jsonl --agent rloo"
    " --group-size 4 --lora-rank 16 --sft-steps 40 --sft-batch-size 32 --episodes 512 --episodes-per-update 64"
    " --max-new-tokens 48 --eval-episodes 80 --eval-every 0"
)
SIX_DIGITS = (
    "--verifier calculator-sums --agent rloo --group-size 8 --sft-steps 300 --episodes 12288"
    " --episodes-per-update 256 --eval-episodes 500 --eval-every 0"
)
ROWS = {
    "demo": Row("two-digit sums", "", 3, "tiny"),
    "three-digit-sums": Row("three-digit sums", "--config configs/three-digit-sums.yaml", 3, "tiny"),
    "calculator-sums": Row("sums of six digits, with a tool", SIX_DIGITS, 3, "tiny", "tools.md#tasks-with-tools"),
    "guess": Row(
        "a game of guesses",
        f"{GUESS} --model build/tables/guess-warm --sft-steps 0 --timesteps 800000 --eval-episodes 1000 --eval-every 0",
        3,
        "tiny",
        "worlds.md#guess",
        f"-m rlenv sft {WARM_GUESS} --overwrite --log-dir build/tables/guess-warm",
    ),
    "smollm2-sums": Row("sums in words", "--config configs/smollm2-sums.yaml", 3, "SmolLM2-135M", "index.md"),
    **{
        f"smollm2-sums-{agent}": Row(
            f"the same, `{agent}`", f"--config configs/smollm2-sums.yaml --agent {agent}", 3, "SmolLM2-135M"
        )
        for agent in ("grpo", "delightful", "vespo")
    },
    "smollm2-records": Row("records as JSON", "--config configs/smollm2-records.yaml", 3, "SmolLM2-135M"),
    "smollm2-word-problems": Row(
        "word problems",
        "--config configs/smollm2-word-problems.yaml --problems build/tables/word-problems.jsonl",
        3,
        "SmolLM2-135M",
        first="examples/word_problems/make_problems.py build/tables/word-problems.jsonl --steps 1 --largest 10",
    ),
    "products": Row(
        "products, with a calculator",
        PRODUCTS,
        1,
        "SmolLM2-135M",
        "tools.md#tasks-with-tools",
        "examples/real_model/products.py > build/tables/products.jsonl",
    ),
    "cartpole": Row("CartPole-v1", "--env CartPole-v1 --stop-reward 475 --eval-episodes 500", 5),
    "acrobot": Row("Acrobot-v1", "--config configs/Acrobot-v1.yaml", 5, zoo="-83.4 ± 17.2 (A2C)"),
    "mountaincar": Row("MountainCar-v0", "--config configs/MountainCar-v0.yaml", 5, zoo="-110.4 ± 19.5 (PPO)"),
    "pendulum": Row("Pendulum-v1", "--config configs/Pendulum-v1.yaml", 5, zoo="-172.2 ± 104.2 (PPO)"),
}  # fmt: skip


def command(row: Row, seed: int, folder: Path) -> list[str]:
    """Return the words that train a row with a seed, or continue its run if there is a checkpoint."""
    if any(folder.glob("checkpoint*")):
        return ["rlenv", "train", "--trust", "--resume", str(folder)]  # verifiers are in files of the repository
    options = [*shlex.split(row.train), "--seed", str(seed), "--device", "cpu", "--no-report"]
    return ["rlenv", "train", *options, "--log-dir", str(folder), "--overwrite"]


def finished(name: str, seed: int) -> dict[str, Any]:
    """Return the result of a run, trained now if it was not before, with the processor's seconds for all of it.

    Raises:
        RuntimeError: if the run fails, with its last line.
    """
    folder = RUNS / f"{name}-{seed}"
    if not (folder / FINISHED).is_file():
        with processor_seconds(folder.with_suffix(".seconds")):
            call(command(ROWS[name], seed, folder), ROOT, OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1")
    result: dict[str, Any] = json.loads((folder / FINISHED).read_text("utf-8"))
    return result | {"processor_seconds": float(folder.with_suffix(".seconds").read_text())}


@contextmanager
def processor_seconds(file: Path) -> Iterator[None]:
    """Add the processor time of what is called within to the seconds in a file, also after an interruption."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        yield
    finally:
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(spent + (float(file.read_text()) if file.is_file() else 0.0)))


def prepare(row: Row, name: str) -> None:
    """Run the first command of a row, unless it was run to its end before."""
    mark = RUNS / f"{name}.prepared"
    if row.first and not mark.is_file():
        RUNS.mkdir(parents=True, exist_ok=True)
        words, _, file = row.first.partition(" > ")
        made = subprocess.run([sys.executable, *shlex.split(words)], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        if file:
            Path(ROOT, file).write_bytes(made.stdout)
        mark.touch()


def score(evaluation: Mapping[str, Any] | None) -> float | None:
    """Return the figure of a table in an evaluation: the success of text, the reward of control."""
    if evaluation is None:
        return None
    success: float | None = evaluation["success_rate"]
    return float(evaluation["mean_reward"]) if success is None else success


def measured(name: str) -> dict[str, Any]:
    """Return a row of the results: scores of each seed before and after, steps and processor seconds."""
    commit = head()
    prepare(ROWS[name], name)
    results = []
    for seed in range(ROWS[name].seeds):
        results.append(finished(name, seed))
        print(f"{name}, seed {seed}: {score(results[-1]['initial_eval'])} to {score(results[-1]['eval'])}", flush=True)
    return {
        "before": [score(result["initial_eval"]) for result in results],
        "after": [score(result["eval"]) for result in results],
        "steps": [result["timesteps"] for result in results],
        "processor_seconds": [round(result["processor_seconds"], 1) for result in results],
        "commit": commit,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": versions(),
    }


def main() -> None:
    """Measure the named rows, or all, and write each as soon as its seeds are finished."""
    parser = argparse.ArgumentParser(prog="python -m rlenv._benchmarks.tables", description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", choices=[*ROWS, []], metavar="ROW", help=f"of {', '.join(ROWS)}")
    for name in parser.parse_args().rows or ROWS:
        try:
            row = measured(name)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            sys.exit(str(error))
        rows = json.loads(SCORES.read_text("utf-8")) if SCORES.is_file() else {}
        SCORES.write_text(json.dumps({**rows, name: row}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
