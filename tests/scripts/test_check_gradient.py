"""`rlenv check-gradient`: a golden run, and that every option arrives."""

from pathlib import Path

import pytest
from inprocess import result_of, run

from rlenv.agents import gradient_check
from rlenv.agents.exact import World

HALF = """
from rlenv.agents import RLOO
from rlenv.agents.estimators import returns

class Half(RLOO):
    def advantages(self, rollout):
        gains = returns.episode_return(rollout.rewards, rollout.mask, self.gamma)
        return gains - gains.mean() / 2
"""


WRONG = """
class Wrong(GRPO):
    def surrogate(self, log_probs, batch):
        ratio, a = (log_probs - batch.log_probs).exp(), batch.advantages
        return torch.maximum(ratio * a, ratio.clamp(0.8, 1.2) * a)
"""


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Look at fewer rollouts than usual for what an update does."""
    monkeypatch.setattr(gradient_check, "LOOKED_AT", 2)
    monkeypatch.setattr(gradient_check, "WORLDS", (World(2, 2, end=0),))


def test_an_agent_of_the_users_beside_one_of_ours(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(HALF)
    lines = run("check-gradient", "rloo", "mine.py:Half", "--tokens", 2, "--steps", 1).stdout.splitlines()
    assert lines[0] == "rloo                 error 0.000   direction 1.000   noise 4.6   unbiased"
    assert lines[2].startswith("mine.Half            error 0.125   direction 1.000")
    assert lines[2].endswith("right direction, scaled by 0.875 (own reward in the baseline: dA/dR = 0.875)")
    assert lines[4].startswith("checked: every rollout of 2 prompts") and "both signs" in lines[4]
    assert lines[5].startswith("not checked: ratios other than 1")


def test_a_fault_ends_with_exit_code_1_and_is_in_the_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("import torch\nfrom rlenv.agents import GRPO\n" + WRONG)
    found = result_of(run("check-gradient", "mine.py:Wrong", "--tokens", 2, "--steps", 1, "--json"), code=1)
    assert found["mine.Wrong"]["faults"] == ["clips the wrong way"] and found["mine.Wrong"]["unchecked"]


def test_every_option_arrives():
    options = "--agent-arg baseline=batch-mean --episodes 2 --turns 2 --tokens 3 --steps 1 --gamma 0.5 --seed 3 --json"
    found = result_of(run("check-gradient", "reinforce-baseline", *options.split()))["reinforce-baseline"]
    assert (found["rollouts"], found["error"]) == (49, pytest.approx(0.479, abs=6e-4))
