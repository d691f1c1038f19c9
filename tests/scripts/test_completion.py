"""Shell completion: commands, options, agents and verifiers."""

import os
import shutil
import subprocess
import sys

import pytest
from click.shell_completion import ShellComplete

from rlenv._scripts.main import main


def completed(*words):
    """Return what completes the last of these words, each with its kind."""
    *before, last = words
    found = ShellComplete(main, {}, "rlenv", "_RLENV_COMPLETE").get_completions(before, last)
    return [(item.value, item.type) for item in found]


NAMES = """
tr | train
verifiers l | lint list
train --kl-c | --kl-coef
train --agent gr | grpo
compare --agents rloo,gr | rloo,grpo
train --verifier arith,countd | arith,countdown
verifiers lint arith countd | countdown
train --task math | math math500
train --task gsm --ask --verifier countd | countdown
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_a_name_is_completed(line):
    typed, expected = line.split(" | ")
    assert completed(*typed.split()) == [(name, "plain") for name in expected.split()]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script(tmp_path):
    program = tmp_path / "rlenv"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rlenv "$@"\n')
    program.chmod(0o755)
    script = 'eval "$(rlenv completion bash)"; COMP_WORDS=(rlenv train --agent gr); COMP_CWORD=3; '
    script += '_rlenv_completion rlenv; echo "${COMPREPLY[@]}"'
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path})
    assert (done.stdout, done.returncode) == ("grpo\n", 0), done.stderr
