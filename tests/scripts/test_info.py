"""`rlenv info`: what a bug report needs, and nothing that is nobody else's business."""

import re
import socket
from importlib import metadata
from pathlib import Path

import pytest
from _rlenv_scripts import info
from inprocess import done, result_of, run


@pytest.fixture
def variables(monkeypatch):
    given = {"OMP_NUM_THREADS": "3", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    hidden = {"HF_TOKEN": "hf_abcdef", "HF_HOME": "somewhere", "TORCH_HOME": "/secret/place", "RLENV_KEY": "4242"}
    for name, value in (given | hidden | {"MY_OWN": "private"}).items():
        monkeypatch.setenv(name, value)
    return given, hidden


def test_variables_are_shown_if_they_are_harmless(variables):
    given, hidden = variables
    said = result_of(run("info", "--json"))["environment"]
    assert said | given == said
    assert {name: said[name] for name in hidden} == dict.fromkeys(hidden, "(set)")
    assert "MY_OWN" not in said


def test_no_path_no_name_and_no_secret_is_printed(variables):
    private = [str(Path.home()), str(Path.cwd()), socket.gethostname(), "abcdef", "secret", "4242", "somewhere"]
    for said in (done("info").output, done("info", "--json").output):
        assert not [text for text in private if text in said]
        assert not re.search(r"(?<![\w.])/\w+", said)


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    def version(name):
        if name == "peft":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(info.metadata, "version", version)
    assert info.extras()["lora"] == "missing: peft"
    assert info.extras()["json"] == "complete"
