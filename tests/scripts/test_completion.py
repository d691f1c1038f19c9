"""Shell completion: commands, options, and the names of everything that has one."""

import os
import shutil
import subprocess
import sys

import pytest
from _rlenv_scripts.main import main
from click.shell_completion import ShellComplete


def completed(*words):
    """Return what completes the last of these words."""
    *before, last = words
    found = ShellComplete(main, {}, "rlenv", "_RLENV_COMPLETE").get_completions(before, last)
    return [item.value for item in found]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["tr"], ["train"]),
        (["verifiers", "l"], ["list", "lint"]),
        (["train", "--kl-c"], ["--kl-coef"]),
        (["train", "--agent", "gr"], ["grpo"]),
        (["compare", "--agents", "rloo,gr"], ["rloo,grpo"]),
        (["train", "--model", "ti"], ["tiny"]),
        (["train", "--verifier", "arith,countd"], ["arith,countdown"]),
        (["verifiers", "lint", "arith", "countd"], ["countdown"]),
        (["train", "--env", "CartPole-v"], ["CartPole-v0", "CartPole-v1"]),
        (["lab", "band"], ["bandit"]),
        (["bench", "trl-gr"], ["trl-grpo"]),
    ],
    ids=" ".join,
)
def test_a_name_is_completed(words, expected):
    assert completed(*words) == expected


@pytest.mark.parametrize(("option", "kind"), [("--verifier", "file"), ("--model", "dir")])
def test_what_is_no_name_is_left_to_the_shell(option, kind):
    [item] = ShellComplete(main, {}, "rlenv", "_").get_completions(["train", option], "my/own")
    assert (item.value, item.type) == ("my/own", kind)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script_and_without_torch(tmp_path):
    program = tmp_path / "rlenv"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "$PROGRAM" "$@"\n')
    program.chmod(0o755)
    source = "import sys\nfrom _rlenv_scripts.main import main\ntry:\n    main(prog_name='rlenv')\n"
    source += "finally:\n    assert not {'torch', 'gymnasium'} & set(sys.modules)\n"
    script = 'eval "$(rlenv completion bash)"; COMP_WORDS=(rlenv train --agent gr); COMP_CWORD=3; '
    script += '_rlenv_completion rlenv; echo "${COMPREPLY[@]}"'
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env={**os.environ, "PATH": path, "PROGRAM": source}
    )
    assert (done.stdout, done.returncode) == ("grpo\n", 0), done.stderr
