"""Runs that the doctor is tested with: healthy ones, and ones with a planted failure each.

    python tests/support/doctor_runs.py RUNS [NAME...]     # trains them into the folder RUNS; those there are kept
    python tests/support/doctor_runs.py                    # prints which values each metric has in the healthy runs

The first command records each run in tests/scripts/doctor/: its options, its result, and its progress.csv with four
digits per figure.
"""

import csv
import json
import random
import sys
import warnings
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from _rlenv_scripts.main import main
from _rlenv_scripts.reports.doctor.history import read_run
from click.testing import CliRunner

from agents.learner.kl_anchor import Anchor
from agents.learner.learner import Learner
from agents.policies.language.policy import LanguageModelPolicy
from rlenv.envs.dialogues import Dialogues
from verifiers import Reply
from verifiers.builtin.guess import Guessing

RECORDED = Path(__file__).parent.parent / "scripts" / "doctor"
REWARDS = Path(__file__).with_name("planted_rewards.py")
SEEDS = range(4, 8)  # the rules' thresholds were chosen with others
COMMON = ["--device", "cpu"]
WARM = "{runs}/warm"
CUT = (75, 85, 94)  # percent of the problems whose answers are longer than the limit of a planted run
MIXED = {share: f"{{runs}}/mixed-{share}.jsonl" for share in CUT}
MIXED_WARM = {share: f"{{runs}}/mixed-{share}-warm" for share in CUT}
FROM_WARM = ["--model", WARM, "--sft-steps", 0]
SHORT = [*FROM_WARM, "--agent", "rloo", "--timesteps", 60_000, "--log-interval", 2]
COLD = ["--agent", "rloo", "--timesteps", 60_000]
SMALL = [*FROM_WARM, "--episodes-per-update", 64, "--eval-episodes", 500, "--timesteps", 20_000, "--log-interval", 3]
TEXT = [*FROM_WARM, "--timesteps", 60_000, "--eval-episodes", 1000, "--log-interval", 2]
KINDS = {
    "rloo": ["--agent", "rloo", *TEXT],
    "grpo": ["--agent", "grpo", *TEXT],
    "kl": ["--agent", "reinforce-baseline", "--kl-coef", 0.01, *TEXT],
    "cartpole": ["--env", "CartPole-v1", "--timesteps", 40_000, "--log-interval", 2],
    "ppo": ["--agent", "ppo", *TEXT, "--timesteps", 30_000, "--agent-arg", "num_epochs=2"],
}
HEALTHY = {f"{kind}-{seed}": [*args, "--seed", seed] for seed in SEEDS for kind, args in KINDS.items()}


GUESS_WARM = "{runs}/guess-warm"
GUESS = ["--verifier", "guess", "--agent", "rloo", "--episodes-per-update", 128, "--group-size", 8]
LEARNED = [*GUESS, "--model", GUESS_WARM, "--sft-steps", 0, "--timesteps", 800_000, "--learning-rate", 5e-4]
TALKING = {f"guess-{seed}": [*LEARNED, "--eval-episodes", 500, "--seed", seed] for seed in range(3)}
BRIEF = [*GUESS, "--timesteps", 30_000, "--eval-episodes", 200, "--log-interval", 1]


@dataclass
class Planted:
    """A run with a failure.

    Attributes:
        args: of rlenv train.
        bug: a context manager in which the run is made, for failures that no option makes.
    """

    args: list[Any]
    bug: Any = field(default=nullcontext)


@contextmanager
def another_reference():
    """The KL is measured to a policy with other weights than the one that training starts from."""
    freeze = Anchor.freeze_reference

    def wrong(self, policy, always=False):
        kept = [parameter.detach().clone() for parameter in policy.parameters()]
        noise = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in policy.parameters():
                parameter += 0.02 * torch.randn(parameter.shape, generator=noise)
        freeze(self, policy, always)
        with torch.no_grad():
            for parameter, old in zip(policy.parameters(), kept, strict=True):
                parameter.copy_(old)

    with patch.object(Anchor, "freeze_reference", wrong):
        yield


@contextmanager
def another_temperature():
    """Log-probabilities are computed for a temperature of 0.998 where 1 was sampled with."""
    evaluate = LanguageModelPolicy.evaluate_actions

    def wrong(self, rollout, entropy=True):
        log_probs, entropies = evaluate(self, rollout, entropy)
        return log_probs / 0.998, entropies

    with patch.object(LanguageModelPolicy, "evaluate_actions", wrong):
        yield


@contextmanager
def sometimes_infinite():
    """Each tenth loss is infinite."""
    loss, count = Learner.loss, iter(range(10**9))

    def wrong(self, batch):
        value, metrics = loss(self, batch)
        factor = float("inf") if next(count) % 10 == 9 else 1.0
        return value * factor, metrics | {"train/loss": metrics["train/loss"] * factor}

    with patch.object(Learner, "loss", wrong):
        yield


@contextmanager
def unused_tools():
    """The infos of each end say that there are tools, none of which was called."""
    end = Dialogues._end
    with patch.object(Dialogues, "_end", lambda *args: end(*args) | {"tool_calls": 0, "tool_errors": 0}):
        yield


@contextmanager
def deaf():
    """The other side of `guess` understands no guess but the right one."""
    answer = Guessing.reply

    def reply(self, turn):
        right = answer(self, turn)
        return right if right.verdict is not None else Reply("?")

    with patch.object(Guessing, "reply", reply):
        yield


def guess_warm_start(folder):
    """Imitate guesses, as docs/guess.md does."""
    if not (folder / "result.json").is_file():
        long = ["--sft-steps", 1200, "--sft-examples", 20_000]
        called("sft", "--verifier", "guess", *long, "--log-dir", folder, "--overwrite", *COMMON)


def paid(name, weight):
    """Return options for a reward that pays a function of planted_rewards.py besides right answers."""
    return ["--verifier", f"arith=1,{REWARDS}:{name}={weight}"]


def write_mixed(file, share):
    """Write 1,000 sums; this percentage of them has three digits, the others one."""
    numbers = random.Random(0)
    long = [(a, b) for a in range(10, 100) for b in range(10, 100) if a + b >= 100]
    short = [(a, b) for a in range(10) for b in range(10) if a + b < 10]
    sums = [numbers.choice(long if i < 10 * share else short) for i in range(1000)]
    numbers.shuffle(sums)
    rows = [json.dumps({"prompt": f"{a}+{b}=", "answer": str(a + b)}) for a, b in sums]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")


def warm_start(folder, problems=None):
    """Imitate sums, or the answers in a file beside the folder."""
    if not (folder / "result.json").is_file():
        own = ["--verifier", "exact", "--problems", folder.with_name(Path(problems).name)] if problems else []
        called("sft", *own, "--log-dir", folder, "--overwrite", *COMMON)


GREEDY = ["--agent", "rloo", "--learning-rate", 0.001]
FAR = ["--learning-rate", 0.0005, "--lr-schedule", "constant", "--agent-arg", "num_epochs=8"]
PLANTED = {
    "stopped": Planted([*SHORT, *paid("broken", 1)]),
    "verifier-failures": Planted([*SHORT, *paid("shaky", 1)]),
    "reward-never-seen": Planted(["--env", "MountainCar-v0", "--timesteps", 100_000, "--log-interval", 1]),
    "all-rewards-equal": Planted([*SHORT, "--verifier", f"arith=0,{REWARDS}:constant=1"]),
    "answers-cut-off": Planted([*SHORT, "--max-new-tokens", 2]),
    "special-tokens": Planted([*COLD[:2], "--timesteps", 20_000, "--sft-steps", 0, *paid("padded", 1)]),
    "turns-run-out": Planted([*BRIEF, "--verifier-arg", "turns=2", "--sft-steps", 150]),
    "one-reply-dominates": Planted([*BRIEF, "--sft-steps", 150], deaf),
    "tool-never-called": Planted([*BRIEF, "--sft-steps", 150], unused_tools),
    "warm-start-too-flat": Planted([*COLD, "--sft-steps", 20]),
    "warm-start-too-sharp": Planted([*COLD, "--sft-steps", 1500, "--sft-examples", 30]),
    "kl-before-first-update": Planted([*SHORT, "--kl-coef", 0.01], another_reference),
    "ratio-not-one": Planted(SHORT, another_temperature),
    "reward-collapse": Planted([*SHORT, "--learning-rate", 0.01]),
    "entropy-collapse": Planted(["--env", "CartPole-v1", "--timesteps", 20_000, "--learning-rate", 0.3]),
    "kl-runaway": Planted([*SHORT, *paid("nines", 1), "--log-kl", "--learning-rate", 0.002]),
    "update-too-far": Planted([*SMALL, "--agent", "ppo", *FAR, "--timesteps", 8_000]),
    "length-explosion": Planted([*SMALL[2:], *GREEDY, *paid("longer", 1), "--sft-steps", 60, "--max-new-tokens", 16]),
    "length-collapse": Planted([*SMALL, *GREEDY, *paid("shorter", 1)]),
    "critic-explains-nothing": Planted([*SMALL, "--agent", "ppo", "--vf-coef", 0]),
    "reward-hacking": Planted([*SMALL, "--agent", "rloo", *paid("nines", 0.5), "--eval-every", 20]),
    "worse-than-before": Planted([*SMALL, "--agent", "grpo", "--learning-rate", 0.0003, "--timesteps", 8_000]),
    "gradient-always-clipped": Planted([*SMALL, "--agent", "rloo", "--max-grad-norm", 1e-6]),
    "updates-skipped": Planted([*SMALL, "--agent", "rloo"], sometimes_infinite),
    "nothing-improved": Planted([*SMALL, "--agent", "rloo", "--timesteps", 40_000, "--learning-rate", 1e-9]),
}
LIMIT = ["--verifier", "exact", "--max-new-tokens", 2, "--episodes-per-update", 128, "--timesteps", 15_000]
LIMIT += ["--agent", "rloo", "--sft-steps", 0, "--eval-episodes", 200, "--log-interval", 3]
LIMITED = {f"cut-{share}": Planted(["--problems", MIXED[share], "--model", MIXED_WARM[share], *LIMIT]) for share in CUT}
NEEDED = {WARM: warm_start}  # what runs are made from, and what makes it
NEEDED[GUESS_WARM] = guess_warm_start
NEEDED |= {MIXED[share]: partial(write_mixed, share=share) for share in CUT}
NEEDED |= {MIXED_WARM[share]: partial(warm_start, problems=MIXED[share]) for share in CUT}


def train(name, runs):
    """Train one of the runs, into RUNS/NAME; return its folder."""
    folder = Path(runs, name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    planted = (PLANTED | LIMITED).get(name) or Planted((HEALTHY | TALKING)[name])
    args = [Path(runs, Path(part).name) if part in NEEDED else part for part in planted.args]
    for place, part in zip(args, planted.args, strict=True):
        if part in NEEDED:
            NEEDED[part](place)
    if not (folder / "result.json").is_file():
        with planted.bug(), warnings.catch_warnings():
            if name in PLANTED:
                warnings.simplefilter("default")  # a run that fails may say so
            called("train", *args, *COMMON, "--log-dir", folder, "--overwrite", codes=(0, 1))
    return folder


def called(*args, codes=(0,)):
    outcome = CliRunner().invoke(main, [str(arg) for arg in args])
    assert outcome.exit_code in codes, outcome.output
    return outcome


def record(folder, to):
    """Write what the doctor reads of a run into another folder, in few bytes."""
    to.mkdir(parents=True, exist_ok=True)
    with (folder / "progress.csv").open(encoding="utf-8") as file:
        header, *rows = [*csv.reader(file)] or [[]]  # empty if the run stopped before its first update
    keep = [i for i, name in enumerate(header) if name != "time/fps"]
    with (to / "progress.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow([header[i] for i in keep])
        table.writerows([[short(row[i]) for i in keep] for row in rows])
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    read = ("env_id", "max_grad_norm", "eval_episodes", "eval_every", "dtype")
    kept = {name: config[name] for name in read if name in config}
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    said = {name: result[name] for name in ("stopped", "failures", "initial_eval", "eval") if name in result}
    (to / "config.json").write_text(json.dumps(kept) + "\n", encoding="utf-8")
    (to / "result.json").write_text(json.dumps(said) + "\n", encoding="utf-8")


def short(cell):
    """Return a number with four digits; counts as they are."""
    return cell if not cell or cell.isdigit() else f"{float(cell):.4g}"


def ranges():
    """Return {metric: {kind of run: (lowest, highest)}} of the recorded healthy runs, as `Series.start` and `end`."""
    found = {}
    for name in (name for name in HEALTHY if (RECORDED / name).is_dir()):
        history = read_run(RECORDED / name)
        for metric, series in history.metrics.items():
            seen = found.setdefault(metric, {}).setdefault(name.rpartition("-")[0], [])
            seen += [series.start, series.end]
    return {metric: {kind: (min(seen), max(seen)) for kind, seen in kinds.items()} for metric, kinds in found.items()}


if __name__ == "__main__":
    if not sys.argv[1:]:
        for metric, kinds in sorted(ranges().items()):
            print(
                f"{metric:<32}", *(f"{kind} {low:.3g} to {high:.3g}" for kind, (low, high) in kinds.items()), sep="  "
            )
        sys.exit()
    runs, *names = sys.argv[1:]
    for each in names or [*PLANTED, *LIMITED, *HEALTHY, *TALKING]:
        record(train(each, runs), RECORDED / each)
        print(each, flush=True)
