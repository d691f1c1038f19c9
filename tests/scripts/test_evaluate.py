"""`rlenv evaluate`: what a checkpoint names is not run on its own word, and a save that was killed is no loss."""

import json
import sys

import pytest
from _rlenv_scripts import subject
from _rlenv_scripts.run import model_of
from inprocess import done, error_of, result_of, run

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Reinforce
from agents.files import seal

MODULE = "somebodys_reward"
SOURCE = """
from pathlib import Path

Path(__file__).with_name("imported").touch()

def shout(prompts, completions):
    return [1.0] * len(prompts)
"""
PROBLEMS = [{"prompt": "12+34=", "split": "train"}, {"prompt": "34+12=", "split": "test"}]


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Return a run folder whose agent.json names a reward function of a module of the user's."""
    kwargs = {"verifier": "length", "problems": PROBLEMS, "max_new_tokens": 4}
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=kwargs, episodes_per_update=4, device="cpu")
    folder = tmp_path / "run"
    agent.save(folder / "checkpoint")
    name(folder, env_kwargs={**kwargs, "verifier": f"{MODULE}:shout"})
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    sys.modules.pop(MODULE, None)


def name(folder, **facts):
    saved = json.loads((folder / "checkpoint" / "agent.json").read_text())
    (folder / "checkpoint" / "agent.json").write_text(json.dumps(saved | facts))
    seal(folder / "checkpoint")


@pytest.mark.parametrize("inner", ["", "checkpoint"])
def test_a_checkpoint_whose_save_was_killed_between_two_renames_is_found(inner, trained, tmp_path):
    (trained / "checkpoint").rename(trained / ".checkpoint-old")
    assert model_of(str(trained / inner)) == str(trained / ".checkpoint-old" / "policy" / "model")
    done("evaluate", trained / inner, "--episodes", 2, "--json", "--trust")


def test_training_from_a_checkpoint_reads_its_model_alone(trained, tmp_path):
    problems = tmp_path / "problems.json"
    problems.write_text(json.dumps(PROBLEMS))
    tiny = ["--sft-steps", 0, "--timesteps", 4, "--eval-episodes", 2, "--episodes-per-update", 4, "--max-new-tokens", 4]
    choice = ["--verifier", "length", "--problems", problems, "--log-dir", tmp_path / "next"]
    done("train", "--agent", "reinforce", "--model", trained, *tiny, *choice)
    assert not (tmp_path / "imported").exists()


def test_a_run_is_asked_all_of_a_file_that_it_was_not_trained_on(trained, tmp_path):
    """The hash that holds problems out is of the run's own file; a copy of that file is still split by it."""
    own, copied, other = (tmp_path / f"{name}.json" for name in ("own", "copied", "other"))
    for path, numbers in ((own, range(12)), (copied, range(12)), (other, range(20, 32))):
        path.write_text(json.dumps([{"prompt": f"{number}+1="} for number in numbers]))
    name(trained, env_kwargs={"verifier": f"{MODULE}:shout", "problems": str(own), "max_new_tokens": 4})

    def asked(path, *more):
        given = ["--problems", path, "--trust", "--samples", 1, *more, "--json"]
        return result_of(run("evaluate", trained, *given))["problems"]

    assert asked(own) == asked(copied) < 12 == asked(other)
    assert asked(other, "--test-fraction", 0.25) < 12


def test_answers_that_are_mostly_cut_off_are_told(trained):
    outcome = run("evaluate", trained, "--episodes", 2, "--max-new-tokens", 1, "--trust")
    assert "of the answers are cut off; raise --max-new-tokens" in outcome.stderr


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_not_evaluated(trained, monkeypatch):
    load = subject.Subject.load

    def replaced(self, given):
        loaded = load(self, given)
        name(trained, num_updates=7)
        return loaded

    monkeypatch.setattr(subject.Subject, "load", replaced)
    line = error_of(run("evaluate", trained, "--episodes", 2, "--trust"))
    assert f"'{trained}' has been replaced by a later checkpoint while it was read: evaluate again" in line
    assert not list(trained.glob("evaluations/*.json"))
