"""How much there is to read has ceilings: a commit that lowers a figure lowers its ceiling, and `make size` prints all.

An issue that adds says by how much a ceiling may rise. Denser lines, dropped docstrings and lost names do not count.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import size

SLACK = 300  # lines below a ceiling of thousands that need no new one
CEILINGS = {
    "code lines: GRPO on text with a reward function, doors closed": 14_790,
    "code lines: GRPO on text with a reward function, all imports": 19_992,
    "code lines: REINFORCE on CartPole, doors closed": 7_067,
    "code lines: REINFORCE on CartPole, all imports": 9_414,
    "code lines: rlenv train, doors closed": 21_993,
    "code lines: rlenv train, all imports": 26_757,
    "lines: agents": 14_522,
    "lines: rlenv": 4_828,
    "lines: verifiers": 8_856,
    "lines: scripts": 9_444,
    "lines: labs": 1_701,
    "lines: benchmarks": 1_453,
    "lines: tests": 26_517,
    "lines: tests/support": 2_614,
    "lines: product": 40_804,
    "files: product": 288,
    "lines: longest file of the product": 413,
    "pages beside docs/api": 90,
    "depth of a package": 2,
    "depth of the tests": 2,
    "methods of Policy": 14,
}
JOBS = list(size.JOBS)

GRPO = """
import agents, rlenv
def sevens(prompts, completions, **columns):
    return [float(completion.count("7")) for completion in completions]
env_kwargs = {"verifier": sevens, "problems": ["1", "2"], "max_new_tokens": 3}

settings = {"device": "cpu", "num_envs": 4, "group_size": 2, "episodes_per_update": 4}
agents.GRPO("auto", "TextGen-v0", env_kwargs=env_kwargs, **settings).learn(total_episodes=4)
"""
POLE = """
import agents
settings = {"device": "cpu", "num_envs": 2, "episodes_per_update": 2}
agents.Reinforce("auto", "CartPole-v1", **settings).learn(total_episodes=2)
"""
LOADED = """
import json, sys
files = [getattr(module, "__file__", None) for module in sys.modules.values()]
print(json.dumps([file for file in files if file]))
"""


def test_nothing_is_above_its_ceiling_and_ceilings_follow_what_was_cut():
    found = size.sizes()
    assert found.keys() == CEILINGS.keys()
    above = {name: figure for name, figure in found.items() if figure > CEILINGS[name]}
    assert above == {}, "cut something else, or say in the issue what it is worth"
    slack = {name: SLACK if ceiling > 1000 else 0 for name, ceiling in CEILINGS.items()}
    below = {name: figure for name, figure in found.items() if figure < CEILINGS[name] - slack[name]}
    assert below == {}, "these are the new ceilings in CEILINGS"


@pytest.mark.parametrize(
    ("job", "script", "ajar"),
    [
        (JOBS[0], GRPO, {"agents/policies", "verifiers/dialogues"}),
        (JOBS[1], POLE, set()),
    ],
)
def test_an_update_loads_only_what_is_counted(job, script, ajar):
    """Folders behind a door of which something is loaded nevertheless are named, so that none is added unseen."""
    done = subprocess.run([sys.executable, "-c", script + LOADED], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    project = {path.resolve() for place in size.PRODUCT for path in (size.ROOT / place).rglob("*.py")}
    loaded = project & {Path(file).resolve() for file in json.loads(done.stdout.splitlines()[-1])}
    counted, closed = (set(size.path_of(job, closed=closed).values()) for closed in (False, True))
    assert loaded <= counted
    assert {path.parent.relative_to(size.ROOT).as_posix() for path in loaded - closed} == ajar
