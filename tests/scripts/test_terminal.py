"""What goes to a pipe: plain lines, without bars and control characters; other libraries are told to do the same."""

import os
import re

import pytest
from inprocess import done

from rlenv._scripts.main import NO_BARS
from rlenv._scripts.process.progress import progress_bar, say
from rlenv._scripts.run.samples import show_samples

COLOR = re.compile(r"\x1b\[[\d;]*m")


def written(capsys):
    """Return what some work writes to stderr, where tests have no terminal."""
    say("begin \x1b[31mred\x1b[0m\rover")
    with progress_bar("training", 40) as show:
        for done in range(41):
            show(done, "reward [0.5], 7 tokens/s")
    show_samples([{"prompt": "a[b]", "completion": "x\x1b[2Jy\x07", "reward": 1.0}], "test")
    return capsys.readouterr().err


def test_a_pipe_gets_lines_of_text_and_colors_on_demand(capsys, monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    plain = written(capsys)
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = written(capsys)
    assert COLOR.search(colored) and COLOR.sub("", colored) == plain, "and no bar"
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", plain)
    assert plain.splitlines()[1] == "training: 100% 0:00:00  reward [0.5], 7 tokens/s"
    assert r"begin \x1b[31mred" in plain and r"x\x1b[2Jy\x07" in plain


@pytest.mark.parametrize("is_terminal", [False, True])
def test_other_libraries_are_told_to_draw_no_bars_but_on_a_terminal(is_terminal, monkeypatch):
    """By the variables that they read when they are imported."""
    for name in NO_BARS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "isatty", lambda descriptor: is_terminal)
    done("bench", "--list")
    assert [name in os.environ for name in NO_BARS] == [not is_terminal] * len(NO_BARS)
