"""The command that continues a run asks for trust exactly if it imports a module of the user's."""

from pathlib import Path

import pytest
from _rlenv_scripts.setup.agent_names import resume_command


@pytest.mark.parametrize(
    ("options", "trust"),
    [
        ({}, False),
        ({"agent": "grpo", "verifier": "arith", "env_id": "TextGen-v0"}, False),
        ({"agent": "ppo", "verifier": "arith", "env_id": "rlenv:TextGen-v0"}, False),
        ({"agent": "ppo", "verifier": "arith", "env_id": "corridor:Corridor-v0"}, True),
        ({"agent": "/home/me/mine.py:Mine", "verifier": "arith"}, True),
        ({"agent": "grpo", "verifier": "/home/me/rewards.py:f"}, True),
        ({"agent": "grpo", "verifier": "arith,/home/me/rewards.py:f=0.5"}, True),
        ({"agent": "grpo", "verifier": "regex:[0-9]+"}, False),
        ({"agent": "grpo", "verifier": "arith", "tools": ["calculator"]}, False),
        ({"agent": "grpo", "verifier": "arith", "tools": ["/home/me/tools.py:f"]}, True),
        ({"agent": "grpo", "verifier": "code", "unsafe_local_exec": True}, True),
    ],
)
def test_the_command_that_continues_asks_for_trust_if_it_imports(options, trust):
    wanted = "rlenv train --resume runs/NAME" + " --trust" * trust
    assert resume_command(Path("runs/NAME"), options) == wanted
