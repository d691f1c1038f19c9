"""Checkpoints and run folders that somebody else has made: nothing in them runs, and one line says what is wrong."""

import json
import math
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest
from gymnasium.envs.registration import registry
from inprocess import done
from inprocess import run as invoke

from agents.files import MANIFEST, seal

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


def changed(file, **values):
    """Let a file of JSON say something else; None removes a name."""
    table = json.loads(file.read_text()) | values
    file.write_text(json.dumps(table))


def edited(file, edit):
    table = json.loads(file.read_text())
    edit(table)
    file.write_text(json.dumps(table))


def deep(depth=100_000):
    return '{"a":' * depth + "1" + "}" * depth


LISTED = {"problems": ["1+3="], "test_fraction": 0.0, "max_prompt_tokens": 4, "max_new_tokens": 4}


def verifier(run, **kwargs):
    changed(run / "checkpoint" / "agent.json", env_kwargs={**LISTED, **kwargs})


def auto_map(folder):
    """Put custom code into a folder of a model and its tokenizer."""
    shutil.copy(Path(sys.path[0]) / f"{MODULE}.py", folder)
    code = {name: f"{MODULE}.{kind}" for name, kind in
            (("AutoConfig", "Config"), ("AutoModelForCausalLM", "Model"))}  # fmt: skip
    edited(folder / "config.json", lambda table: table.update(auto_map=code, model_type="somebodys"))
    edited(
        folder / "tokenizer_config.json",
        lambda table: table.update(auto_map={"AutoTokenizer": [None, f"{MODULE}.Tokenizer"]}, tokenizer_class="Mine"),
    )


def pickled(*names):
    def plant(run, ran):
        for name in names:
            (run / "checkpoint" / name).write_bytes(pickle.dumps(Code(ran)))

    return plant


def no_checkpoint(run, **values):
    shutil.rmtree(run / "checkpoint")
    changed(run / "config.json", **values)


# What an attacker does: a function of the run folder and the file that his code would make.
TEXT = {
    "verifier module:Name": lambda run, ran: verifier(run, verifier=f"{MODULE}:shout"),
    "verifier with callables": lambda run, ran: verifier(
        run, verifier="weighted", verifier_kwargs={"parts": {"shout": {"weight": 1, "verifier": f"{MODULE}:shout"}}}
    ),
    "verifier of the standard library": lambda run, ran: verifier(
        run, verifier="subprocess:Popen", problems=[{"prompt": "1+3=", "args": f"touch {ran}", "shell": True}]
    ),
    "sandbox lifted": lambda run, ran: verifier(run, verifier="code", verifier_kwargs={"unsafe_local_exec": True}),
    "code of the model": lambda run, ran: auto_map(run / "checkpoint" / "policy" / "model"),
    "code of the tokenizer": lambda run, ran: (
        auto_map(run / "checkpoint" / "policy" / "model"),
        verifier(run, verifier="arith", tokenizer=str(run / "checkpoint" / "policy" / "model")),
    ),
    "weights as a pickle": lambda run, ran: (
        (run / "checkpoint" / "policy" / "model" / "model.safetensors").unlink(),
        pickled("policy/model/pytorch_model.bin")(run, ran),
    ),
    "configuration names a verifier": lambda run, ran: no_checkpoint(run, verifier=f"{MODULE}:shout"),
    "configuration names a model": lambda run, ran: (
        shutil.copytree(run / "checkpoint" / "policy" / "model", run / "model"),
        auto_map(run / "model"),
        no_checkpoint(run, model=str(run / "model")),
    ),
}
CONTROL = {
    "training files as pickles": pickled("training.safetensors", "training.json"),
    "weights as a pickle, control": pickled("policy/policy.safetensors"),
    "facts as a pickle": pickled("agent.json"),
    "training.pt": pickled("training.pt"),
    "environment module:Name": lambda run, ran: changed(run / "checkpoint" / "agent.json", env=f"{MODULE}:Trap-v0"),
    "both name an environment": lambda run, ran: (
        changed(run / "checkpoint" / "agent.json", env=f"{MODULE}:Trap-v0"),
        changed(run / "config.json", env_id=f"{MODULE}:Trap-v0"),
    ),
    "configuration names an environment": lambda run, ran: no_checkpoint(run, env_id=f"{MODULE}:Trap-v0"),
    "network of a module": lambda run, ran: changed(
        run / "checkpoint" / "policy" / "policy.json", network={"features_extractor_class": f"{MODULE}:Config"}
    ),
    "activation of a module": lambda run, ran: changed(
        run / "checkpoint" / "policy" / "policy.json", network={"activation_fn": f"{MODULE}.Config"}
    ),
    "both name an agent": lambda run, ran: (
        changed(run / "checkpoint" / "agent.json", agent=f"{MODULE}:Config"),
        changed(run / "config.json", agent=f"{MODULE}:Config"),
    ),
    "configuration names an agent": lambda run, ran: no_checkpoint(run, agent=f"{MODULE}:Config"),
    "class of a module": lambda run, ran: changed(run / "checkpoint" / "agent.json", agent=f"{MODULE}:Config"),
}
EVERY = [("TextGen", name, plant) for name, plant in TEXT.items()]
EVERY += [("CartPole", name, plant) for name, plant in CONTROL.items()]


def refused(outcome, what=""):
    """Check that a command ended with one line that says what is wrong."""
    assert isinstance(outcome.exception, SystemExit), repr(outcome.exception)
    assert outcome.exit_code == 2, outcome.output
    assert "Traceback" not in outcome.stderr
    (line,) = [line for line in outcome.stderr.splitlines() if line.startswith("Error: ")]
    assert outcome.stderr.splitlines()[-1] == line and len(line) < 1000
    assert what in line, line


NEED_TRUST = {
    "verifier module:Name", "verifier with callables", "verifier of the standard library", "sandbox lifted",
    "configuration names a verifier", "both name an environment", "configuration names an environment",
    "both name an agent", "configuration names an agent",
}  # fmt: skip


@pytest.mark.parametrize(("world", "name", "plant"), EVERY, ids=[name for _, name, _ in EVERY])
def test_nothing_is_executed(world, name, plant, folder, ran):
    run = folder / world
    plant(run, ran)
    if (run / "checkpoint" / MANIFEST).is_file():
        seal(run / "checkpoint")
    refused(invoke("train", "--resume", run, "--json"), "pass --trust" if name in NEED_TRUST else "")
    refused(invoke("evaluate", run, "--episodes", 2, "--json"))
    assert not ran.exists() and MODULE not in sys.modules


def test_the_traps_would_spring(folder, ran):
    """The code in here does run where it is trusted."""
    pickle.loads(pickle.dumps(Code(ran)))
    assert ran.exists()
    ran.unlink()
    run = folder / "TextGen"
    verifier(run, verifier=f"{MODULE}:shout")
    seal(run / "checkpoint")
    done("evaluate", run, "--episodes", 2, "--split", "train", "--json", "--trust")
    assert ran.exists()


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


def facts(**values):
    return lambda run: changed(run / "checkpoint" / "agent.json", **values)


def settings(**values):
    return lambda run: edited(run / "checkpoint" / "agent.json", lambda table: table["settings"].update(values))


def written(name, text):
    return lambda run: (run / "checkpoint" / name).write_text(text)


def sealed_names(*names):
    return lambda run: edited(
        run / "checkpoint" / MANIFEST, lambda table: table["sha256"].update(dict.fromkeys(names, "0" * 64))
    )


def link(name, target):
    def plant(run):
        shutil.rmtree(run / name, ignore_errors=True) if (run / name).is_dir() else (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(target)

    return plant


NONSENSE = {  # one of each kind, and what would hang
    "deep agent.json": written("agent.json", deep()),
    "deep tags": written("training.json", '{"list":[' * 50_000 + "]}" * 50_000),
    "long number": written("agent.json", '{"format": ' + "9" * 100_000 + "}"),
    "names in tags": written("training.json", json.dumps({"tensor": "../../../etc/passwd"})),
    "two tags": written("training.json", json.dumps({"list": [], "tuple": []})),
    "manifest leads out": sealed_names("../../../../etc/passwd"),
    "manifest of nothing": written(MANIFEST, '{"sha256": 7}'),
    "NaN counter": facts(num_timesteps=math.nan),
    "negative counter": facts(num_episodes=-5),
    "kind of policy": facts(policy_kind="../../elsewhere"),
    "unknown setting": settings(nonsense=1),
    "rate": settings(learning_rate="fast"),
    "very many slots": settings(num_envs=10**22),
    "long text": settings(num_envs="x" * 1_000_000),
    "no arguments": facts(env_kwargs=None),
    "NaN seconds": state(["extra", "seconds"], math.nan),
    "log size": state(["extra", "log"], {"dict": [["rows", 1], ["events", {"dict": [["../x", -1]]}]]}),
    "extra": state(["extra"], {"list": [1]}),
    "generator": state(["moments", 0, "generators", "actions"], "state"),
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
    "a device": link("checkpoint/agent.json", "/dev/zero"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("plant", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_one_line(plant, folder):
    run = folder / "CartPole"
    before = (run / "checkpoint" / MANIFEST).read_bytes()
    plant(run)
    if (run / "checkpoint" / MANIFEST).read_bytes() == before:
        seal(run / "checkpoint")
    refused(invoke("train", "--resume", run, "--json"))


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


@pytest.mark.parametrize("name", [".config.json-new", ".progress.csv-new", "samples.md", "result.json", "progress.csv"])
def test_nothing_outside_is_written(name, folder, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine\n")
    run = folder / "TextGen"
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(precious)
    refused(invoke("train", "--resume", run, "--episodes", 28, "--json"), f"{name}' is a symbolic link")
    assert precious.read_text() == "mine\n"


@pytest.mark.parametrize("name", ["trust_checkpoint", "trust"])
def test_a_run_folder_cannot_trust_itself(name, folder, ran):
    run = folder / "TextGen"
    no_checkpoint(run, verifier=f"{MODULE}:shout", **{name: True})
    refused(invoke("train", "--resume", run, "--json"), "pass --trust")
    assert not ran.exists() and MODULE not in sys.modules


def test_a_run_folder_cannot_lift_the_sandbox(folder):
    run = folder / "TextGen"
    no_checkpoint(run, verifier="code", unsafe_local_exec=True)
    refused(invoke("train", "--resume", run, "--trust", "--json"), "pass --unsafe-local-exec")


def test_a_run_folder_cannot_have_itself_overwritten(folder):
    run = folder / "CartPole"
    changed(run / "config.json", overwrite=True, log_dir=str(folder / "TextGen"))
    outcome = done("train", "--resume", run, "--json")
    assert json.loads(outcome.stdout.splitlines()[-1])["run_dir"] == str(run)
