"""Runs of `rlenv train` in two tiny worlds, and all that must not depend on how often one was interrupted."""

import csv
import hashlib
import json
from pathlib import Path

from agent_kinds import PASSES
from inprocess import done
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from agents.training.state import read_state

# Big enough that a run saves, evaluates and logs several times; small enough for a second.
WORLDS = {
    "CartPole": [
        "--env", "CartPole-v1", "--env-arg", "max_episode_steps=40", "--episodes", 32, "--eval-episodes", 2,
        "--eval-every", 3, "--num-envs", 4,
    ],
    "TextGen": [
        "--episodes", 24, "--eval-episodes", 4, "--eval-every", 2, "--sft-steps", 4, "--sft-examples", 8,
        "--sft-batch-size", 4, "--verifier-arg", "digits=1",
    ],
}  # fmt: skip
COMMON = ["--episodes-per-update", 4, "--log-interval", 2, "--save-every-updates", 1, "--keep", 2, "--kl-coef", 0.05]
COMMON += ["--seed", 3, "--device", "cpu", "--json"]
AGENT_ARGS = {  # what makes an agent carry something from update to update, or take several steps
    **{name: ["--agent-arg", "num_epochs=2", "--agent-arg", "num_minibatches=2"] for name in PASSES},
    "reinforce-baseline": ["--baseline", "running-mean"],
    "dapo": ["--agent-arg", "max_rounds=2"],
}
SHARED = {"text": ("TextGen", "ppo"), "pole": ("CartPole", "ppo", "--lr-schedule", "constant")}  # see conftest.py
TIMED = ("seconds", "sft_seconds", "run_dir", "interrupted")  # of a result, besides figures
NOT_COMPARED = ("time/fps", "time/acting_frac", "time/environment_frac", "time/rollout_frac", "time/training_frac")


def arguments(world, agent="reinforce-baseline", *more):
    """Return the command that trains an agent in a world."""
    group = ["--group-size", 2] if world == "TextGen" else []
    return ["train", *WORLDS[world], *COMMON, *group, "--agent", agent, *AGENT_ARGS.get(agent, ()), *more]


def finished_run(folder, *command):
    """Run a command that trains in this folder, and return the folder."""
    done(*command, "--log-dir", folder)
    return folder


def content(folder):
    """Return every file in a folder."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def without_times(value):
    """Return the state of a run without what the clock says, and without the sizes of files that hold times."""
    if isinstance(value, dict):
        hidden = (*TIMED, *NOT_COMPARED, "log")
        return {name: without_times(each) for name, each in value.items() if name not in hidden}
    return value


def checkpoint_figures(folder):
    """Return digests of a checkpoint: of every file, and of what training.json says apart from times."""
    state = read_state(folder / "training")
    state["extra"] = without_times(state["extra"])
    state["unwritten"] = without_times(state["unwritten"])
    names = [path for path in folder.rglob("*") if path.is_file()]
    hidden = {"training.json", "manifest.json"}
    files = {path.relative_to(folder).as_posix(): digest(path) for path in names if path.name not in hidden}
    return files | {"training.json": hashlib.sha256(repr(state).encode()).hexdigest()}


def table(run):
    """Return progress.csv without times."""
    with (run / "progress.csv").open(encoding="utf-8") as file:
        return [{key: cell for key, cell in row.items() if key not in NOT_COMPARED} for row in csv.DictReader(file)]


def scalars(run):
    """Return TensorBoard's figures as {name: [(step, value)]}, by step; repeated ones stay.

    Files of one second are read in the order of their names, not of time.
    """
    found = {}
    events = events_of(run)
    for name in events.Tags()["scalars"]:
        if name not in NOT_COMPARED:
            found[name] = sorted((event.step, event.value) for event in events.Scalars(name))
    return found


def events_of(run):
    """Return all of TensorBoard's events of a run; repeated ones stay."""
    (folder,) = {path.parent for path in Path(run).rglob("events.out.tfevents*")}
    limits = {"scalars": 0, "tensors": 0, "histograms": 0}
    return EventAccumulator(str(folder), size_guidance=limits, purge_orphaned_data=False).Reload()


def distributions(run):
    """Return histograms and texts as {name: [(step, content)]}, by step; repeated ones stay."""
    events = events_of(run)
    histograms = {
        name: sorted((event.step, repr(event.histogram_value)) for event in events.Histograms(name))
        for name in events.Tags()["histograms"]
    }
    texts = {
        name: sorted((event.step, event.tensor_proto.string_val[0]) for event in events.Tensors(name))
        for name in events.Tags()["tensors"]
    }
    return histograms | {name: found for name, found in texts.items() if not name.startswith("_hparams_")}


def result(run):
    figures = json.loads((run / "result.json").read_text())
    return {name: value for name, value in figures.items() if name not in TIMED}


def everything(run):
    """Return all that a run leaves behind, in comparable form and without times."""
    run = Path(run)
    best = run / "best"
    return {
        "checkpoint": checkpoint_figures(run / "checkpoint"),
        "best": checkpoint_figures(best) if best.is_dir() else None,
        "table": table(run),
        "scalars": scalars(run),
        "distributions": distributions(run),
        "result": without_times(result(run)),
        "samples": (run / "samples.md").read_text() if (run / "samples.md").is_file() else None,
        "episodes": (run / "samples.jsonl").read_text() if (run / "samples.jsonl").is_file() else None,
    }


def differences(one, other):
    """Return the parts of two runs that differ, named so that a failure says where to look."""
    found = []
    for part in one:
        if one[part] == other[part]:
            continue
        if isinstance(one[part], dict) and isinstance(other[part], dict):
            keys = [key for key in {*one[part], *other[part]} if one[part].get(key) != other[part].get(key)]
            found += [
                f"{part}/{key}: {one[part].get(key)!r:.300} != {other[part].get(key)!r:.300}" for key in sorted(keys)
            ]
        else:
            found.append(f"{part}: {one[part]!r:.600} != {other[part]!r:.600}")
    return found
