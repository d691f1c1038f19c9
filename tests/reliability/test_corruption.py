"""Checkpoints and run folders that are damaged, or made by somebody else.

Damage is noticed, named in one line, and the good checkpoint before it is used; nothing of somebody's runs.
"""

import errno
import itertools
import json
import math
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from gymnasium.envs.registration import registry
from inprocess import done, error_of, result_of
from inprocess import run as invoke
from runs import content, edited, everything

from rlenv import __version__
from rlenv._scripts.run.folder import RunFolder
from rlenv.agents import Agent, ControlPolicy
from rlenv.agents.files import MANIFEST, seal
from rlenv.agents.training import saving as packing
from rlenv.agents.training.checkpoint import read_checkpoint


def truncate(file):
    os.truncate(file, file.stat().st_size // 2)


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def make_folder(file):
    file.unlink()
    file.mkdir()


DAMAGE = (truncate, flip, Path.unlink, make_folder)


def test_every_file_of_a_checkpoint(text_run, tmp_path, capsys):
    """Over all files: the checkpoint before is found, and one line says why."""
    names = sorted(map(str, content(text_run / "checkpoint")))
    assert len(names) >= 15
    (tmp_path / "run").mkdir()
    (earlier,) = RunFolder(text_run).earlier().values()
    (tmp_path / "run" / earlier.name).symlink_to(earlier)
    shutil.copytree(text_run / "checkpoint", tmp_path / "run" / "checkpoint")
    for name, damage in zip(names, itertools.cycle(DAMAGE), strict=False):
        damaged = tmp_path / "run" / "checkpoint" / name
        damage(damaged)
        assert RunFolder(tmp_path / "run").newest().path.name == earlier.name, name
        (line,) = capsys.readouterr().err.splitlines()
        assert str(tmp_path / "run" / "checkpoint") in line, line
        assert line.endswith(f"; '{tmp_path / 'run' / earlier.name}' is used instead")
        if damaged.is_dir():
            damaged.rmdir()
        shutil.copy(text_run / "checkpoint" / name, damaged)
    assert RunFolder(tmp_path / "run").newest().path.name == "checkpoint", "all is whole again"


def test_another_version(text_copy, capsys):
    file = text_copy / "checkpoint" / "agent.json"
    for version in (8, "7", None):
        edited(file, format=version, version="0.9")
        assert [RunFolder(text_copy).newest().path] == [*RunFolder(text_copy).earlier().values()]
        (line,) = capsys.readouterr().err.splitlines()
        assert f"was written by version '0.9' of rlenv (format {version!r}); this is {__version__} (format 7)" in line


def test_a_whole_checkpoint_beside_a_damaged_one_is_used(text_copy, capsys):
    """A kill between the last two renames of a save leaves the one before under its third name."""
    (earlier,) = RunFolder(text_copy).earlier().values()
    earlier.rename(text_copy / ".checkpoint-old")
    flip(text_copy / "checkpoint" / "agent.json")
    newest = RunFolder(text_copy).newest().path
    assert newest == text_copy / ".checkpoint-old"
    assert "is used instead" in capsys.readouterr().err
    Agent.load(newest, device="cpu")


def test_no_whole_checkpoint_is_one_line(text_copy):
    for folder in (text_copy / "checkpoint", *RunFolder(text_copy).earlier().values()):
        truncate(folder / "policy" / "model" / "model.safetensors")
    line = error_of(invoke("train", "--resume", text_copy))
    assert line.startswith(f"Error: no whole checkpoint is left in '{text_copy}': ") and line.count("is damaged") == 2


FULL = OSError(errno.ENOSPC, "full")
WRITES = {  # what is called, and which of its calls fails
    "the policy": (ControlPolicy, "save", 1),
    "the tensors": (packing, "save_file", 1),
    "the second name": (Path, "replace", 2),
    "the sync": (os, "fsync", 1),
}


@pytest.mark.parametrize(("owner", "name", "call"), WRITES.values(), ids=WRITES)
def test_a_disk_that_fails_while_saving_leaves_the_checkpoint_before(owner, name, call, pole_copy, monkeypatch):
    calls, function = itertools.count(1), getattr(owner, name)

    def fail(*given, **more):
        if next(calls) == call:
            raise FULL
        return function(*given, **more)

    before = everything(pole_copy)["checkpoint"]
    agent = Agent.load(pole_copy / "checkpoint", device="cpu")
    with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
        patch.setattr(owner, name, fail)
        agent.save(pole_copy / "checkpoint", pole_copy / "checkpoint-000099")
    assert caught.value is FULL
    assert everything(pole_copy)["checkpoint"] == before
    assert RunFolder(pole_copy).newest().path == pole_copy / "checkpoint"
    assert not [path for path in pole_copy.iterdir() if path.name.startswith(".checkpoint")]
    agent.save(pole_copy / "checkpoint")
    Agent.load(pole_copy / "checkpoint", device="cpu")


def test_damaged_checkpoints_take_no_place_of_whole_ones(pole_copy):
    """They may be later than the one from which the run goes on."""
    shutil.copytree(pole_copy / "best", pole_copy / "checkpoint-000002")
    for folder in (pole_copy / "checkpoint", pole_copy / "checkpoint-000007"):
        flip(folder / "training.safetensors")
    (pole_copy / "checkpoint" / "agent.json").unlink()  # its place is needed all the same
    outcome = done("train", "--resume", pole_copy, "--episodes", 36)
    assert outcome.stderr.splitlines()[0].endswith("checkpoint-000002' is used instead")
    kept = [read_checkpoint(folder).facts["num_updates"] for folder in RunFolder(pole_copy).checkpoints()]
    assert kept == [9, 8]


# Checkpoints and run folders that somebody else has made.

MODULE = "malicious_module"
SOURCE = """
from pathlib import Path

from gymnasium.envs.registration import register
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

Path(__file__).with_name("ran").touch()
register("Trap-v0", entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")
Config, Model, Tokenizer = LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

def shout(prompts, completions):
    return [1.0] * len(prompts)
"""


@pytest.fixture
def folder(pole_run, text_run, tmp_path):
    """Return a place with copies of finished runs, one in each world, without results and earlier checkpoints."""
    ignore = shutil.ignore_patterns("result.json", "checkpoint-*")
    for world, run in (("CartPole", pole_run), ("TextGen", text_run)):
        shutil.copytree(run, tmp_path / "somebodys" / world, ignore=ignore)
    return tmp_path / "somebodys"


@pytest.fixture
def ran(tmp_path, monkeypatch):
    """Return the file that is made if any of the code in here runs."""
    place = tmp_path / "python"
    place.mkdir()
    (place / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(place)
    monkeypatch.setattr("builtins.input", lambda question: "y")
    yield place / "ran"
    sys.modules.pop(MODULE, None)
    registry.pop("Trap-v0", None)


class Code:
    """What a pickle makes of this runs a command."""

    def __init__(self, ran):
        self.ran = ran

    def __reduce__(self):
        return (os.system, (f"touch {self.ran}",))


def auto_map(folder):
    """Put custom code into a folder of a model and its tokenizer."""
    shutil.copy(Path(sys.path[0]) / f"{MODULE}.py", folder)
    code = {"AutoConfig": f"{MODULE}.Config", "AutoModelForCausalLM": f"{MODULE}.Model"}
    edited(folder / "config.json", auto_map=code, model_type="somebodys")
    tokenizer = {"AutoTokenizer": [None, f"{MODULE}.Tokenizer"]}
    edited(folder / "tokenizer_config.json", auto_map=tokenizer, tokenizer_class="Mine")


# What an attacker does: a function of the run folder and the file that his code would make.

LISTED = {"problems": ["1+3="], "test_fraction": 0.0, "max_prompt_tokens": 4, "max_new_tokens": 4}
SHOUT, CLASS, MODEL = f"{MODULE}:shout", f"{MODULE}:Config", "checkpoint/policy/model"
POLICY = "policy/policy.json"
DAMAGED = f"{POLICY}' is damaged: "
TRUST = "pass --trust"


def facts(**values):
    return lambda run, ran=None: edited(run / "checkpoint" / "agent.json", **values)


def verifier(**kwargs):
    return facts(env_kwargs={**LISTED, **kwargs})


def policy(**values):
    return lambda run, ran=None: edited(run / "checkpoint" / POLICY, **values)


def pickled(*names):
    def plant(run, ran):
        for name in names:
            (run / "checkpoint" / name).write_bytes(pickle.dumps(Code(ran)))

    return plant


def config(**values):
    """Return an attack by a run without a checkpoint, of which config.json counts."""

    def plant(run, ran=None):
        shutil.rmtree(run / "checkpoint")
        edited(run / "config.json", **values)

    return plant


def each(*plants):
    def plant(run, ran):
        for one in plants:
            one(run, ran)

    return plant


TEXT = {
    "verifier module:Name": (verifier(verifier=SHOUT), TRUST),  # more in verifiers/test_registry.py
    "sandbox lifted": (verifier(verifier="code", verifier_kwargs={"unsafe_local_exec": True}), TRUST),
    "code of the model": (lambda run, ran: auto_map(run / MODEL), ""),
    "code of the tokenizer": (
        lambda run, ran: (auto_map(run / MODEL), verifier(verifier="arith", tokenizer=str(run / MODEL))(run)),
        "",
    ),
    "weights as a pickle": (
        each(lambda run, ran: (run / MODEL / "model.safetensors").unlink(), pickled("policy/model/pytorch_model.bin")),
        "",
    ),
    "configuration names a verifier": (config(verifier=SHOUT), TRUST),
    "configuration trusts itself": (config(verifier=SHOUT, trust=True), TRUST),
    "configuration names a model": (
        lambda run, ran: (
            shutil.copytree(run / MODEL, run / "model"),
            auto_map(run / "model"),
            config(model=str(run / "model"))(run),
        ),
        "",
    ),
}
TRAP, CONFIG = f"{MODULE}:Trap-v0", "config.json"
CONTROL = {
    "training files as pickles": (pickled("training.safetensors", "training.json"), ""),
    "weights as a pickle, control": (pickled("policy/policy.safetensors"), ""),
    "facts as a pickle": (pickled("agent.json"), ""),
    "training.pt": (pickled("training.pt"), ""),
    "environment module:Name": (facts(env=TRAP), ""),
    "both name an environment": (each(facts(env=TRAP), lambda run, ran: edited(run / CONFIG, env_id=TRAP)), TRUST),
    "configuration names an environment": (config(env_id=TRAP), TRUST),
    "network of a module": (policy(network={"features_extractor_class": CLASS}), ""),
    "activation of a module": (policy(network={"activation_fn": f"{MODULE}.Config"}), ""),
    "both name an agent": (each(facts(agent=CLASS), lambda run, ran: edited(run / CONFIG, agent=CLASS)), TRUST),
    "configuration names an agent": (config(agent=CLASS), TRUST),
    "class of a module": (facts(agent=CLASS), ""),
}
EVERY = [("TextGen", *row) for row in TEXT.values()] + [("CartPole", *row) for row in CONTROL.values()]


def refused(outcome, what=""):
    """Check that a command ended with one line that says what is wrong."""
    assert outcome.exit_code == 2, f"{outcome.output}{outcome.exception!r}"
    (line,) = [line for line in outcome.stderr.splitlines() if line.startswith("Error: ")]
    assert outcome.stderr.splitlines()[-1] == line and len(line) < 1000
    assert what in line, line


@pytest.mark.parametrize(("world", "plant", "said"), EVERY, ids=[*TEXT, *CONTROL])
def test_nothing_is_executed(world, plant, said, folder, ran):
    run = folder / world
    plant(run, ran)
    if (run / "checkpoint" / MANIFEST).is_file():
        seal(run / "checkpoint")
    refused(invoke("train", "--resume", run, "--json"), said)
    refused(invoke("evaluate", run, "--episodes", 2, "--json"))
    assert not ran.exists() and MODULE not in sys.modules


# What makes no sense.


def state(path, edit):
    """Return an attack that edits training.json, as Python's values, in the place that a path of names leads to."""

    def plant(run):
        file = run / "checkpoint" / "training.json"
        structure = json.loads(file.read_text())
        place = structure
        for name in path[:-1]:
            place = place["list"][name] if "list" in place else dict(place["dict"])[name]
        place["dict"] = [entry for entry in place["dict"] if entry[0] != path[-1]] + [[path[-1], edit]]
        file.write_text(json.dumps(structure))

    return plant


def settings(**values):
    return lambda run: edited(run / "checkpoint" / "agent.json", lambda table: table["settings"].update(values))


def written(name, text):
    return lambda run: (run / "checkpoint" / name).write_text(text)


def sealed_names(*names):
    return lambda run: edited(
        run / "checkpoint" / MANIFEST, lambda table: table["sha256"].update(dict.fromkeys(names, "0" * 64))
    )


NONSENSE = {  # one of each kind, and what would hang
    "deep agent.json": written("agent.json", '{"a":' * 100_000 + "1" + "}" * 100_000),
    "deep tags": written("training.json", '{"list":[' * 50_000 + "]}" * 50_000),
    "long number": written("agent.json", '{"format": ' + "9" * 100_000 + "}"),
    "names in tags": written("training.json", json.dumps({"tensor": "../../../etc/passwd"})),
    "manifest leads out": sealed_names("../../../../etc/passwd"),
    "manifest of nothing": written(MANIFEST, '{"sha256": 7}'),
    "NaN counter": facts(num_timesteps=math.nan),
    "kind of policy": facts(policy_kind="../../elsewhere"),
    "unknown setting": settings(nonsense=1),
    "very many slots": settings(num_envs=10**22),
    "long text": settings(num_envs="x" * 1_000_000),
    "no arguments": facts(env_kwargs=None),
    "NaN seconds": state(["extra", "seconds"], math.nan),
    "log size": state(["extra", "log"], {"dict": [["rows", -1], ["files", {"dict": []}]]}),
    "generator": state(["moments", 0, "actions", "state"], "state"),
    "slots of the environment": state(["moments", 0, "envs", "env", "parts"], {"list": []}),
    "optimizer": state(["optimizer", "adam"], {"dict": []}),
    "linked checkpoint": lambda run: (
        (run / "checkpoint").rename(run.parent / "elsewhere"),
        (run / "checkpoint").symlink_to(run.parent / "elsewhere"),
    ),
    "a pipe": lambda run: (
        (run / "checkpoint" / "training.json").unlink(),
        os.mkfifo(run / "checkpoint" / "training.json"),
    ),
    "a device": lambda run: (
        (run / "checkpoint" / "agent.json").unlink(),
        (run / "checkpoint" / "agent.json").symlink_to("/dev/zero"),
    ),
}


OF_THE_POLICY = {  # damaged before it was sealed: of which world, and what the line says
    "no JSON": ("CartPole", written(POLICY, "{"), DAMAGED),
    "nothing": ("CartPole", written(POLICY, "{}"), DAMAGED),
    "no name of a policy": ("CartPole", policy(name=3), DAMAGED),
    "no network": ("CartPole", policy(network=[1]), DAMAGED),
    "a temperature": ("TextGen", policy(temperature=None), DAMAGED),
    "a type": ("TextGen", policy(dtype="float31"), DAMAGED),
    "a switch": ("TextGen", policy(merge_rows="x"), DAMAGED),
    "another setting": ("TextGen", policy(nonsense=1), DAMAGED),
    "a tokenizer": ("TextGen", written("policy/model/tokenizer.json", "{}"), "policy/model' cannot be loaded: "),
}
ALL = [*(("CartPole", plant, "") for plant in NONSENSE.values()), *OF_THE_POLICY.values()]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("world", "plant", "said"), ALL, ids=[*NONSENSE, *OF_THE_POLICY])
def test_nonsense_is_one_line(world, plant, said, folder):
    run = folder / world
    before = (run / "checkpoint" / MANIFEST).read_bytes()
    plant(run)
    if (run / "checkpoint" / MANIFEST).read_bytes() == before:
        seal(run / "checkpoint")
    refused(invoke("train", "--resume", run, "--json"), said)


@pytest.mark.parametrize("name", ["training.json", "policy"])
def test_links_in_a_checkpoint_are_not_written_through(name, folder):
    """A linked file is read if its SHA-256 is right, as in the cache of Hugging Face; a linked folder is refused."""
    run, elsewhere = folder / "CartPole", folder / "elsewhere"
    (run / "checkpoint" / name).rename(elsewhere)
    (run / "checkpoint" / name).symlink_to(elsewhere)
    held = {path: path.read_bytes() for path in (elsewhere, *elsewhere.rglob("*")) if path.is_file()}
    outcome = invoke("train", "--resume", run, "--json")
    if name == "policy":
        refused(outcome, "is missing")
    else:
        assert outcome.exception is None
    assert {path: path.read_bytes() for path in held} == held


@pytest.mark.parametrize(
    "name", [".config.json-new", ".progress.csv-new", "report.html", "result.json", "progress.csv"]
)
def test_nothing_outside_is_written(name, folder, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    run = folder / "TextGen"
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(precious)
    refused(invoke("train", "--resume", run, "--episodes", 28, "--json"), f"{name}' is a symbolic link")
    assert precious.read_text() == "mine\n"


def test_a_run_folder_cannot_lift_the_sandbox(folder):
    run = folder / "TextGen"
    config(verifier="code", unsafe_local_exec=True)(run)
    refused(invoke("train", "--resume", run, "--trust", "--json"), "pass --unsafe-local-exec")


def test_a_run_folder_cannot_have_itself_overwritten(folder):
    run = folder / "CartPole"
    edited(run / "config.json", overwrite=True, log_dir=str(folder / "TextGen"))
    assert result_of(done("train", "--resume", run, "--json"))["run_dir"] == str(run)
