"""--track: what Weights & Biases and MLflow are sent, by fakes that record calls."""

import sys
from importlib.machinery import ModuleSpec
from unittest.mock import Mock

import pytest
from _rlenv_scripts.trackers import MLflow, Wandb
from inprocess import error_of, result_of, run

TINY = ["train", "--verifier-arg", "digits=1", "--episodes", 8, "--episodes-per-update", 4, "--num-envs", 4]
TINY += ["--sft-steps", 2, "--sft-examples", 4, "--sft-batch-size", 2, "--eval-episodes", 4, "--log-interval", 1]
TINY += ["--device", "cpu", "--json"]


@pytest.fixture
def wandb(monkeypatch):
    library = Mock(__spec__=ModuleSpec("wandb", None))  # transformers asks for it
    library.errors.Error = type("Error", (Exception,), {})
    library.Table.side_effect = lambda columns, data: (columns, data)
    monkeypatch.setitem(sys.modules, "wandb", library)
    return library


@pytest.fixture
def mlflow(monkeypatch):
    library = Mock(__spec__=ModuleSpec("mlflow", None))
    library.exceptions.MlflowException = type("MlflowException", (Exception,), {})
    library.start_run.return_value.info.run_id = "0123456789abcdef"
    monkeypatch.setitem(sys.modules, "mlflow", library)
    return library


def first_of(mock):
    """Return the first argument of every call."""
    return [call.args[0] for call in mock.call_args_list]


def test_wandb_gets_configuration_metrics_samples_and_result_and_a_resumed_run_goes_on(wandb, tmp_path):
    folder, sent = tmp_path / "mine", wandb.init.return_value
    result = result_of(run(*TINY, "--track", "wandb", "--log-dir", folder))
    begun = wandb.init.call_args.kwargs
    assert (begun["name"], begun["dir"], begun["config"]["episodes"]) == ("mine", str(folder), 8)
    assert first_of(sent.summary.update)[0]["result"]["eval"] == result["eval"]
    sent.finish.assert_called_once_with(exit_code=0)
    logged = first_of(sent.log)
    names = {name for row in logged for name in row}
    assert {"sft/loss", "train/loss", "rollout/success_rate", "eval/success_rate"} <= names
    assert {"distributions/train/advantages", "distributions/rollout/ep_len"} <= names
    columns, rows = next(row["eval/samples"] for row in logged if "eval/samples" in row)
    assert columns == ["prompt", "completion", "answer", "reward", "note"] and len(rows) == 4
    assert all("time/total_timesteps" in row or "sft/step" in row for row in logged)

    result_of(run("train", "--resume", folder, "--episodes", 16, "--json"))
    assert [call.kwargs["id"] for call in wandb.init.call_args_list] == [begun["id"]] * 2
    later = first_of(sent.log)[len(logged) :]
    steps = [row["time/total_timesteps"] for row in later if "train/loss" in row]
    assert len(steps) == 2 and min(steps) > result["timesteps"]
    axes = {call.args[0]: call.kwargs["step_metric"] for call in sent.define_metric.call_args_list}
    assert axes == {"*": "time/total_timesteps", "sft/*": "sft/step"}


def test_mlflow_gets_configuration_metrics_samples_and_result_and_a_resumed_run_goes_on(mlflow, tmp_path):
    folder = tmp_path / "mine"
    result = result_of(run(*TINY, "--track", "mlflow", "--log-dir", folder))
    mlflow.start_run.assert_called_once_with(run_id=None, run_name="mine")
    mlflow.end_run.assert_called_once_with("FINISHED")
    assert first_of(mlflow.log_params)[0]["episodes"] == 8
    mlflow.log_dict.assert_called_once_with(result, "result.json")
    assert {"eval/success_rate", "sft/loss"} <= {name for figures in first_of(mlflow.log_metrics) for name in figures}
    text, path = mlflow.log_text.call_args_list[0].args
    assert text.startswith("| prompt | completion | answer |") and path == "eval/samples/000000000.md"
    result_of(run("train", "--resume", folder, "--episodes", 16, "--json"))
    mlflow.start_run.assert_called_with(run_id="0123456789abcdef", run_name=None)
    mlflow.log_params.assert_called_once()


def test_whatever_fails_in_a_tracker_does_not_end_the_training(wandb, mlflow, tmp_path, capsys):
    for method in (wandb.Table, wandb.Histogram, wandb.init.return_value.finish):
        method.side_effect = ConnectionResetError
    for method in (mlflow.log_metrics, mlflow.log_text, mlflow.end_run):
        method.side_effect = mlflow.exceptions.MlflowException("the server is away\nwith a long trace")
    for tracker in (Wandb(tmp_path, {}), MLflow(tmp_path, {})):
        tracker.write({"train/loss": 1.0, "rollout/parts/a/b?": 2.0}, {}, 1)
        tracker.add_table("eval/samples", ["prompt"], [["1+1="]], 1)
        tracker.add_histogram("train/advantages", [1.0], 1)
        tracker.close()
    mlflow.log_metrics.assert_called_once_with({"train/loss": 1.0, "rollout/parts.a.b_": 2.0}, step=1)
    said = "the training goes on, and figures may be missing there"
    wanted = [f"wandb: ConnectionResetError; {said}", f"mlflow: the server is away; {said}"]
    assert capsys.readouterr().err.splitlines() == wanted


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_library_is_one_line_before_any_work(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    line = error_of(run(*TINY, "--track", name, "--log-dir", tmp_path / "run"))
    assert line.startswith(f"Error: --track {name} needs {name}: pip install 'rlenv-lm[{name}]'")
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_refuses_is_one_line(wandb, tmp_path):
    wandb.init.side_effect = wandb.errors.Error("No API key configured")
    with pytest.raises(ValueError, match=r"^wandb: No API key configured; log in with: wandb login, or set WANDB"):
        Wandb(tmp_path, {})
