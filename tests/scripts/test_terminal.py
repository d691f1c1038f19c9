"""What goes to a terminal and what to a pipe: bars or plain lines, colors or none."""

import os
import pty
import re
import sys
import threading

import pytest
from inprocess import done

from rlenv._scripts.main import NO_BARS
from rlenv._scripts.process.progress import progress_bar, say
from rlenv._scripts.run.samples import show_samples

COLOR = re.compile(r"\x1b\[[\d;]*m")
HUE = re.compile(r"\x1b\[[\d;]*[34]\d[;m]")
CURSOR = re.compile(r"\r(?!\n)|\x1b\[\??\d*[A-HJKhl]")
VARIABLES = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


@pytest.fixture
def written(monkeypatch):
    """Return a function that runs work with a pseudo-terminal or a pipe as stderr, and returns what it wrote there."""

    def write(work, is_terminal, **variables):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in ({"TERM": "xterm-256color"} | variables).items():
            monkeypatch.setenv(name, value)
        reading, writing = pty.openpty() if is_terminal else os.pipe()
        parts = []

        def read():
            try:
                while part := os.read(reading, 4096):
                    parts.append(part)
            except OSError:  # the end of a pseudo-terminal
                return

        thread = threading.Thread(target=read)
        thread.start()
        with os.fdopen(writing, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            work()
        thread.join(20)
        os.close(reading)
        return b"".join(parts).decode()

    return write


def some_work():
    say("begin \x1b[31mred\x1b[0m\rover")
    with progress_bar("training", 40) as show:
        for done in range(41):
            show(done, "reward [0.5], 7 tokens/s")
    show_samples([{"prompt": "a[b]", "completion": "x\x1b[2Jy\x07", "reward": 1.0}], "test")


def test_a_pipe_gets_lines_of_text(written):
    said = written(some_work, False, FORCE_COLOR="1")
    assert not CURSOR.search(said) and COLOR.search(said) and not COLOR.search(written(some_work, False))
    said = COLOR.sub("", said)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", said)
    assert said.splitlines()[1] == "training: 100% 0:00:00  reward [0.5], 7 tokens/s"


def test_a_terminal_gets_a_bar_and_colors_unless_they_are_not_wanted(written):
    said = written(some_work, True)
    assert CURSOR.search(said) and HUE.search(said) and not HUE.search(written(some_work, True, NO_COLOR="1"))
    assert not CURSOR.search(written(some_work, True, TERM="dumb"))
    plain = COLOR.sub("", said)
    assert "100%" in plain and "reward [0.5], 7 tokens/s" in plain and "0:00:0" in plain
    assert r"begin \x1b[31mred" in plain and r"x\x1b[2Jy\x07" in plain


@pytest.mark.parametrize("is_terminal", [False, True])
def test_other_libraries_are_told_to_draw_no_bars_but_on_a_terminal(is_terminal, monkeypatch):
    """By the variables that they read when they are imported."""
    for name in NO_BARS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "isatty", lambda descriptor: is_terminal)
    done("bench", "--list")
    assert [name in os.environ for name in NO_BARS] == [not is_terminal] * len(NO_BARS)
