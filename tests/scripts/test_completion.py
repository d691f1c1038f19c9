"""Shell completion: commands, options, agents and verifiers."""

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
