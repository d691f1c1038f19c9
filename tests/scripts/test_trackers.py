"""--track: what Weights & Biases and trackio are sent, by fakes that record calls."""

import sys
from importlib.machinery import ModuleSpec
from unittest.mock import Mock

import pytest
from inprocess import result_of, run

from rlenv._scripts.run.trackers import TRACKERS, Wandb

TINY = ["train", "--verifier-arg", "digits=1", "--episodes", 8, "--episodes-per-update", 4, "--num-envs", 4]
TINY += ["--sft-steps", 2, "--sft-examples", 4, "--sft-batch-size", 2, "--eval-episodes", 4, "--log-interval", 1]
TINY += ["--device", "cpu", "--json"]


@pytest.fixture
def libraries(monkeypatch):
    """Return a fake of every tracker's library."""
    found = {name: Mock(__spec__=ModuleSpec(name, None)) for name in TRACKERS}  # transformers asks for it
    for name, library in found.items():
        library.errors.Error = type("RefusedError", (Exception,), {})
        library.Table.side_effect = lambda columns, data: (columns, data)
        monkeypatch.setitem(sys.modules, name, library)
    return found


def first_of(mock):
    """Return the first argument of every call."""
    return [call.args[0] for call in mock.call_args_list]


@pytest.mark.parametrize("tracker", ["wandb", "trackio"])
def test_configuration_metrics_and_samples_are_sent_and_a_resumed_run_goes_on(tracker, libraries, tmp_path):
    library = libraries[tracker]
    sent = library.init.return_value
    result = result_of(run(*TINY, "--track", tracker, "--log-dir", tmp_path / "mine"))
    begun = library.init.call_args.kwargs
    assert begun["config"]["episodes"] == 8 and begun["resume"] == "allow"
    logged = first_of(sent.log)
    names = {name for row in logged for name in row}
    assert {"sft/loss", "train/loss", "eval/success_rate", "eval/samples"} <= names

    result_of(run("train", "--resume", tmp_path / "mine", "--episodes", 16, "--json"))
    identity = "id" if tracker == "wandb" else "name"
    assert [call.kwargs[identity] for call in library.init.call_args_list] == [begun[identity]] * 2
    later = [call for call in sent.log.call_args_list[len(logged) :] if "train/loss" in call.args[0]]
    steps = [call.kwargs.get("step") or call.args[0]["time/total_timesteps"] for call in later]
    assert len(steps) == 2 and min(steps) > result["timesteps"]
    if tracker == "trackio":
        assert library.finish.call_count == 2
    else:
        assert all(STEPS & {*row} for row in logged)
        assert first_of(sent.summary.update)[0]["result"]["eval"] == result["eval"]
        sent.finish.assert_called_with(exit_code=0)


STEPS = {"time/total_timesteps", "sft/step"}


@pytest.mark.parametrize("name", TRACKERS)
def test_whatever_fails_in_a_tracker_does_not_end_the_training(name, libraries, tmp_path, capsys):
    library = libraries[name]
    sent = library.init.return_value
    for method in (sent.log, sent.finish, library.Table, library.finish):
        method.side_effect = ConnectionResetError("the server is away\nwith a long trace")
    tracker = TRACKERS[name](tmp_path, {})
    tracker.write({"train/loss": 1.0}, {}, 1)
    tracker.add_table("eval/samples", ["prompt"], [["1+1="]], 1)
    tracker.close()
    said = "the server is away; the training goes on, and figures may be missing there"
    assert capsys.readouterr().err.splitlines() == [f"{name}: {said}"]


def test_a_tracker_that_refuses_is_one_line(libraries, tmp_path):
    libraries["wandb"].init.side_effect = libraries["wandb"].errors.Error("No API key configured")
    with pytest.raises(ValueError, match="wandb login"):
        Wandb(tmp_path, {})
