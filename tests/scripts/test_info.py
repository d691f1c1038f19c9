"""`rlenv info`: what a bug report needs, and nothing that is nobody else's business."""

import re
import socket
from pathlib import Path

from inprocess import done, result_of, run


def test_variables_are_shown_if_they_are_harmless_and_no_path_no_name_and_no_secret(monkeypatch):
    given = {"OMP_NUM_THREADS": "3", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "0,1"}
    hidden = {"HF_TOKEN": "hf_abcdef", "HF_HOME": "somewhere", "TORCH_HOME": "/secret/place", "RLENV_KEY": "4242"}
    for name, value in (given | hidden | {"MY_OWN": "private"}).items():
        monkeypatch.setenv(name, value)
    outcome = run("info", "--json")
    said = result_of(outcome)["environment"]
    assert said | given == said and "MY_OWN" not in said
    assert {name: said[name] for name in hidden} == dict.fromkeys(hidden, "(set)")
    private = [str(Path.home()), str(Path.cwd()), socket.gethostname(), "abcdef", "secret", "4242", "somewhere"]
    for text in (done("info").output, outcome.output):
        assert not [each for each in private if each in text]
        assert not re.search(r"(?<![\w.])/\w+", text)
