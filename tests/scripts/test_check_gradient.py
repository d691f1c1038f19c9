"""`rlenv check-gradient`: a golden run, and that every option arrives."""

from pathlib import Path

import pytest
from inprocess import result_of, run

HALF = """
from agents import RLOO
from agents.estimators import returns

class Half(RLOO):
    def advantages(self, rollout):
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return gains - gains.mean() / 2
"""


def test_an_agent_of_the_users_beside_one_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(HALF)
    lines = run("check-gradient", "rloo", "mine.py:Half", "--group-size", 2).stdout.splitlines()
    assert lines == [
        "rloo                 error 0.000   direction 1.000   noise 6.0   unbiased",
        "mine.Half            error 0.250   direction 1.000   noise 4.5   right direction, scaled by 0.75",
    ]


@pytest.mark.parametrize(
    ("options", "rollouts", "error"),
    [
        ("--episodes 4 --tokens 2", 81, 0),
        ("--tokens 2 --steps 1", 4, 0),
        ("--gamma 0.5 --seed 3", 49, 0.932),
        ("--agent-arg baseline=batch-mean", 49, 0.5),
    ],
)
def test_every_option_arrives(options, rollouts, error):
    small = ["reinforce-baseline", "--group-size", 2, *options.split(), "--json"]
    found = result_of(run("check-gradient", *small))["reinforce-baseline"]
    assert (found["rollouts"], found["error"]) == (rollouts, pytest.approx(error, abs=6e-4))
