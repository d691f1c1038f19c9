"""Runs of `rlenv train` in two tiny worlds, and all that must not depend on how often one was interrupted."""

import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from agent_kinds import PASSES
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils._pytree import tree_map_only

from rlenv.agents.training.checkpoint import read_state

# Big enough that a run saves, evaluates and logs several times; small enough for a second.
WORLDS = {
    "CartPole": "--env CartPole-v1 --env-arg max_episode_steps=40 --episodes 32 --eval-episodes 2 --eval-every 3 "
    "--num-envs 4",
    "TextGen": "--episodes 24 --eval-episodes 4 --eval-every 2 --sft-steps 4 --sft-examples 8 --sft-batch-size 4 "
    "--verifier-arg digits=1 --group-size 2",
}
COMMON = "--episodes-per-update 4 --log-interval 2 --save-every-updates 1 --keep 2 --kl-coef 0.05 --seed 3 --device cpu"
AGENT_ARGS = {  # what makes an agent carry something from update to update, or take several steps
    **dict.fromkeys(PASSES, "--agent-arg num_epochs=2 --agent-arg num_minibatches=2"),
    "reinforce-baseline": "--baseline running-mean",
    "dapo": "--agent-arg max_rounds=2",
}
SHARED = {"text": ("TextGen", "ppo"), "pole": ("CartPole", "ppo", "--lr-schedule", "constant")}  # see conftest.py
# What the clock says, and the sizes of files that hold times.
TIMED = ("seconds", "sft_seconds", "run_dir", "interrupted", "log", "time/fps")
TIMED += ("time/acting_frac", "time/environment_frac", "time/rollout_frac", "time/training_frac")


def arguments(world, agent="reinforce-baseline", *more):
    """Return the command that trains an agent in a world."""
    own = AGENT_ARGS.get(agent, "").split()
    return ["train", *WORLDS[world].split(), *COMMON.split(), "--json", "--agent", agent, *own, *more]


def edited(file, *edits, **values):
    """Let a file of JSON say something else."""
    table = json.loads(file.read_text()) | values
    for edit in edits:
        edit(table)
    file.write_text(json.dumps(table))


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_times(value):
    if isinstance(value, dict):
        return {name: without_times(each) for name, each in value.items() if name not in TIMED}
    return value


def checkpoint_figures(folder):
    """Return digests of a checkpoint: of every file, and of what training.json says apart from times."""
    state = read_state(folder / "training", copied=False)
    state |= {name: without_times(state[name]) for name in ("extra", "unwritten")}
    files = {path.as_posix(): data for path, data in content(folder).items() if path.name != "manifest.json"}
    # The numbers are compared as the bytes of training.safetensors.
    structure = tree_map_only((torch.Tensor, np.ndarray), lambda each: each.shape, state)
    files["training.json"] = repr(structure).encode()
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}


def table(run):
    with (run / "progress.csv").open(encoding="utf-8") as file:
        return list(map(without_times, csv.DictReader(file)))


def events_of(run):
    """Return all of TensorBoard's events of a run; repeated ones stay."""
    (folder,) = {path.parent for path in Path(run).rglob("events.out.tfevents*")}
    limits = {"scalars": 0, "tensors": 0}
    return EventAccumulator(str(folder), size_guidance=limits, purge_orphaned_data=False).Reload()


def scalars(run):
    """Return TensorBoard's figures as {name: [(step, value)]}, by step: files of one second are read in any order."""
    events = events_of(run)
    names = [name for name in events.Tags()["scalars"] if name not in TIMED]
    return {name: sorted((event.step, event.value) for event in events.Scalars(name)) for name in names}


def texts(run):
    """Return TensorBoard's texts, in the same way."""
    events = events_of(run)
    names = [name for name in events.Tags()["tensors"] if not name.startswith("_hparams_")]
    found = {name: [(each.step, each.tensor_proto.string_val[0]) for each in events.Tensors(name)] for name in names}
    return {name: sorted(values) for name, values in found.items()}


def everything(run):
    """Return all that a run leaves behind, in comparable form and without times."""
    run = Path(run)
    samples = run / "samples.jsonl"
    return {
        "checkpoint": checkpoint_figures(run / "checkpoint"),
        "best": checkpoint_figures(run / "best") if (run / "best").is_dir() else None,
        "table": table(run),
        "scalars": scalars(run),
        "texts": texts(run),
        "result": without_times(json.loads((run / "result.json").read_text())),
        "samples": samples.read_text() if samples.is_file() else None,
    }


def differences(one, other):
    """Return the parts of two runs that differ, named so that a failure says where to look."""
    found = []
    for part in one:
        pair = (one[part], other[part])
        if not all(isinstance(each, dict) for each in pair):
            pair = ({"": one[part]}, {"": other[part]})
        keys = [key for key in sorted({*pair[0], *pair[1]}) if pair[0].get(key) != pair[1].get(key)]
        found += [f"{part}/{key}: {pair[0].get(key)!r:.300} != {pair[1].get(key)!r:.300}" for key in keys]
    return found
