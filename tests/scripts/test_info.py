"""`rlenv info`: what a bug report needs, and nothing that is nobody else's business."""

import re
import socket
from pathlib import Path

from inprocess import done, result_of, run


def test_versions_and_devices_are_shown_and_no_path_no_name_and_no_secret(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdef")
    outcome = run("info", "--json")
    assert result_of(outcome).keys() == {"versions", "extras", "machine"}
    private = [str(Path.home()), str(Path.cwd()), socket.gethostname(), "abcdef"]
    for text in (done("info").output, outcome.output):
        assert not [each for each in private if each in text]
        assert not re.search(r"(?<![\w.])/\w+", text)
