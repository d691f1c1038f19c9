"""Damaged checkpoints: each is noticed, named in one line, and the good one before it is used."""

import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest
import safetensors.torch
from _rlenv_scripts.main import main
from _rlenv_scripts.runs import run_folder
from click.testing import CliRunner
from runs import arguments, differences, everything

from agents import Agent
from agents.checkpoints import checkpoint
from agents.checkpoints import state as packing
from agents.core import files as agents_files


def invoke(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a finished run of a language model, with two checkpoints, and a critic and a reference."""
    folder = tmp_path_factory.mktemp("corruption") / "run"
    outcome = invoke(*arguments("TextGen", "ppo", "--log-dir", folder))
    assert outcome.exit_code == 0, outcome.output
    return folder


@pytest.fixture
def copy(run, tmp_path):
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "run"
    outcome = invoke(*arguments("CartPole", "reinforce", "--log-dir", folder))
    assert outcome.exit_code == 0, outcome.output
    return folder


@pytest.fixture
def small(small_run, tmp_path):
    return Path(shutil.copytree(small_run, tmp_path / "small"))


def files(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def truncate(file):
    os.truncate(file, file.stat().st_size // 2)


def empty(file):
    os.truncate(file, 0)


def flip(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def flip_last(file):
    content = bytearray(file.read_bytes())
    content[-1] ^= 64
    file.write_bytes(content)


def remove(file):
    file.unlink()


def make_folder(file):
    file.unlink()
    file.mkdir()


DAMAGE = {"truncated": truncate, "empty": empty, "bit": flip, "last bit": flip_last, "missing": remove}
DAMAGE |= {"a folder": make_folder}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_every_file_of_a_checkpoint(damage, run, tmp_path, capsys):
    """Over all files: the checkpoint before is found, and one line says why."""
    names = files(run / "checkpoint")
    assert len(names) >= 15
    (tmp_path / "run").mkdir()
    (earlier,) = run_folder.earlier(run)
    (tmp_path / "run" / earlier.name).symlink_to(earlier)
    for name in names:
        shutil.copytree(run / "checkpoint", tmp_path / "run" / "checkpoint")
        damage(tmp_path / "run" / "checkpoint" / name)
        assert run_folder.newest_whole(tmp_path / "run").path.name == earlier.name, name
        (line,) = capsys.readouterr().err.splitlines()
        assert str(tmp_path / "run" / "checkpoint") in line, line
        assert line.endswith(f"; '{tmp_path / 'run' / earlier.name}' is used instead")
        shutil.rmtree(tmp_path / "run" / "checkpoint")


def test_every_single_bit_of_what_names_the_version(run, tmp_path):
    """One bit makes format 3 a format 2, of which nothing was sealed."""
    folder = tmp_path / "checkpoint"
    shutil.copytree(run / "checkpoint", folder)
    agent = folder / "agent.json"
    good = agent.read_bytes()
    place = good.index(b'"format"')
    for bit in range(8 * place, 8 * (place + len(b'"format": 3,'))):
        content = bytearray(good)
        content[bit // 8] ^= 1 << bit % 8
        agent.write_bytes(content)
        with pytest.raises(ValueError) as caught:
            checkpoint.read_checkpoint(folder)
        assert "\n" not in str(caught.value)
    agent.write_bytes(good)
    checkpoint.read_checkpoint(folder)


@pytest.mark.parametrize("version", [1, 4, "3", None, [3], True, 3.0, {"format": 3}], ids=repr)
def test_another_version(version, copy, capsys):
    file = copy / "checkpoint" / "agent.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"format": version}))
    assert run_folder.newest_whole(copy).path == run_folder.earlier(copy)[0]
    (line,) = capsys.readouterr().err.splitlines()
    assert f"has the checkpoint format {version!r}; allowed: 2, 3" in line or "agent.json is not what was" in line


def test_a_resumed_run_says_which_checkpoint_it_uses_and_ends_the_same(run, copy):
    flip(copy / "checkpoint" / "training.safetensors")
    (copy / "result.json").unlink()
    outcome = invoke("train", "--resume", copy, "--json")
    assert outcome.exit_code == 0, outcome.output
    first, *_ = outcome.stderr.splitlines()
    assert re.search(r"checkpoint' is damaged: training\.safetensors is not .*checkpoint-\d+' is used instead$", first)
    assert (copy / "damaged" / "training.safetensors").is_file()
    assert differences(everything(run), everything(copy)) == []


def test_a_whole_checkpoint_beside_a_damaged_one_is_used(copy, capsys):
    """A kill between the last two renames of a save leaves the one before under its third name."""
    (earlier,) = run_folder.earlier(copy)
    earlier.rename(copy / ".checkpoint-old")
    flip(copy / "checkpoint" / "agent.json")
    newest = run_folder.newest_whole(copy).path
    assert newest == copy / ".checkpoint-old"
    assert "is used instead" in capsys.readouterr().err
    moved = run_folder.promote(copy, newest)
    assert moved == copy / "checkpoint"
    Agent.load(moved, device="cpu")
    assert (copy / "damaged").is_dir()


def test_no_whole_checkpoint_is_one_line(copy):
    for folder in (copy / "checkpoint", *run_folder.earlier(copy)):
        truncate(folder / "policy" / "model" / "model.safetensors")
    outcome = invoke("train", "--resume", copy)
    assert outcome.exit_code == 2
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(f"Error: no whole checkpoint is left in '{copy}': ") and line.count("is damaged") == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "\x00", "[" * 100_000], ids=lambda text: repr(text[:4]))
@pytest.mark.parametrize("name", ["agent.json", "manifest.json", "config.json"])
def test_json_that_is_none_is_one_line(name, text, small):
    folder = small if name == "config.json" else small / "checkpoint"
    (folder / name).write_text(text)
    for earlier in run_folder.earlier(small):
        shutil.rmtree(earlier)
    outcome = invoke("train", "--resume", small)
    assert outcome.exit_code == 2, outcome.output
    assert name in outcome.stderr.splitlines()[-1] and "Traceback" not in outcome.stderr
    assert isinstance(outcome.exception, SystemExit)


FULL, READ_ONLY = OSError(errno.ENOSPC, "full"), OSError(errno.EROFS, "read-only")
WRITES = {
    "the facts": (Path, "write_text"),
    "the tensors": (packing, "save_file"),
    "the folder": (Path, "mkdir"),
    "the names": (Path, "replace"),
    "the sync": (os, "fsync"),
}


@pytest.mark.parametrize("error", [FULL, READ_ONLY], ids=["full", "read-only"])
@pytest.mark.parametrize(("owner", "name"), WRITES.values(), ids=WRITES)
def test_a_disk_that_fails_while_saving_leaves_the_checkpoint_before(owner, name, error, small, monkeypatch):
    def fail(*_, **__):
        raise error

    before = everything(small)["checkpoint"]
    agent = Agent.load(small / "checkpoint", device="cpu")
    with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
        patch.setattr(owner, name, fail)
        agent.save(small / "checkpoint", small / "checkpoint-000099")
    assert caught.value is error
    assert everything(small)["checkpoint"] == before
    assert run_folder.newest_whole(small).path == small / "checkpoint"
    assert not [path for path in small.iterdir() if path.name.startswith(".checkpoint")]
    agent.save(small / "checkpoint")
    Agent.load(small / "checkpoint", device="cpu")


def test_a_disk_that_fills_up_during_a_run(run, copy, monkeypatch):
    """The run ends with one line; with space again it is resumed, and ends as if nothing had happened."""
    shutil.rmtree(copy)
    real, calls = safetensors.torch.save_file, []

    def full(*given, **more):
        calls.append(given)
        if len(calls) > 4:
            raise FULL
        return real(*given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(packing, "save_file", full)
        outcome = invoke(*arguments("TextGen", "ppo", "--log-dir", copy))
    assert outcome.exit_code == 1
    assert outcome.stderr.splitlines()[-1].startswith("Error: cannot read or write a file: No space left on device")
    outcome = invoke("train", "--resume", copy, "--json")
    assert outcome.exit_code == 0, outcome.output
    assert differences(everything(run), everything(copy)) == []


def test_a_file_that_cannot_be_read_is_passed_over(copy, monkeypatch, capsys):
    real = Path.open

    def fail(path, *args, **more):
        if path == copy / "checkpoint" / "training.safetensors":
            raise OSError(errno.EIO, "Input/output error")
        return real(path, *args, **more)

    monkeypatch.setattr(Path, "open", fail)
    assert run_folder.newest_whole(copy).path == run_folder.earlier(copy)[0]
    assert "training.safetensors cannot be read: Input/output error" in capsys.readouterr().err


def test_every_damaged_checkpoint_is_moved_away(copy):
    (earlier,) = run_folder.earlier(copy)
    oldest = Path(shutil.copytree(earlier, copy / "checkpoint-000001"))
    flip(copy / "checkpoint" / "agent.json")
    flip(earlier / "agent.json")
    assert run_folder.promote(copy, run_folder.newest_whole(copy).path) == copy / "checkpoint"
    assert not oldest.exists() and run_folder.earlier(copy) == []
    assert {path.name for path in copy.glob("damaged*")} == {"damaged", earlier.name.replace("checkpoint", "damaged")}
    Agent.load(copy / "checkpoint", device="cpu")


@pytest.mark.parametrize("command", [("train", "--resume"), ("evaluate", "--episodes", 1)], ids=["resume", "evaluate"])
def test_files_are_hashed_once(command, small, monkeypatch):
    folder, hashed, real = small / "checkpoint", [], agents_files.digest_of
    monkeypatch.setattr(agents_files, "digest_of", lambda file: (hashed.append(file), real(file))[1])
    (small / "result.json").unlink()
    outcome = invoke(*command, small, "--json")
    assert outcome.exit_code == 0, outcome.output
    read = [file.relative_to(folder).as_posix() for file in hashed if folder in file.parents]
    assert sorted(read) == [name for name in files(folder) if name != "manifest.json"]
