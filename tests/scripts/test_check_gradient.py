"""`rlenv check-gradient`: a golden run, and that every option arrives."""

import pytest
from inprocess import result_of, run

from rlenv.agents import gradient_check
from rlenv.agents.exact import World


@pytest.fixture(autouse=True)
def few(monkeypatch, tmp_path):
    """Look at fewer rollouts than usual for what an update does, from a folder with agents of the user's."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("from planted import ClipsTheWrongWay, OwnReward\n")
    monkeypatch.setattr(gradient_check, "LOOKED_AT", 2)
    monkeypatch.setattr(gradient_check, "WORLDS", (World(2, 2, end=0),))


def test_an_agent_of_the_users_beside_one_of_ours():
    lines = run("check-gradient", "rloo", "mine.py:OwnReward", "--tokens", 2, "--steps", 1).stdout.splitlines()
    assert lines[0] == "rloo                 error 0.000   direction 1.000   noise 4.6   unbiased"
    assert lines[2].startswith("mine.OwnReward       error 0.500   direction 1.000")
    assert lines[2].endswith("right direction, scaled by 0.5 (own reward in the baseline, or a factor: dA/dR = 0.5)")
    assert lines[4].startswith("checked: every rollout of 2 prompts") and "both signs" in lines[4]
    assert lines[5].startswith("not checked: ratios other than 1")


def test_a_fault_ends_with_exit_code_1_and_is_in_the_json():
    found = result_of(run("check-gradient", "mine.py:ClipsTheWrongWay", "--tokens", 2, "--steps", 1, "--json"), code=1)
    figures = found["mine.ClipsTheWrongWay"]
    assert figures["faults"] == ["clips the wrong way"] and figures["unchecked"]


def test_every_option_arrives():
    options = "--agent-arg baseline=batch-mean --episodes 2 --turns 2 --tokens 3 --steps 1 --gamma 0.5 --seed 3 --json"
    found = result_of(run("check-gradient", "reinforce-baseline", *options.split()))["reinforce-baseline"]
    assert (found["rollouts"], found["error"]) == (49, pytest.approx(0.479, abs=6e-4))
