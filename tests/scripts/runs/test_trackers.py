"""--track: what Weights & Biases and MLflow are sent, by fakes that record calls, and by the libraries if installed."""

import importlib.util
import json
import sys
import types
from importlib.machinery import ModuleSpec

import pytest
from _rlenv_scripts.main import main
from _rlenv_scripts.runs.trackers import MLflow, Wandb
from click.testing import CliRunner

TINY = ["--verifier-arg", "digits=1", "--episodes", 8, "--episodes-per-update", 4, "--num-envs", 4, "--device", "cpu"]
TINY += ["--sft-steps", 2, "--sft-examples", 4, "--sft-batch-size", 2, "--eval-episodes", 4, "--log-interval", 1]


class FakeWandb(types.ModuleType):
    """Records what wandb.init and the run that it returns are called with."""

    def __init__(self):
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)  # transformers asks for it
        self.inits, self.logged, self.exits, self.axes = [], [], [], []
        self.errors = types.SimpleNamespace(Error=type("Error", (Exception,), {}))
        self.summary = {}
        self.refuses = False

    def Settings(self, **settings):  # noqa: N802
        return settings

    def Table(self, columns, data):  # noqa: N802
        return ("table", columns, data)

    def Histogram(self, values):  # noqa: N802
        return ("histogram", len(values))

    def init(self, **settings):
        if self.refuses:
            raise self.errors.Error("No API key configured")
        self.inits.append(settings)
        return self

    def define_metric(self, name, step_metric):
        self.axes.append((name, step_metric))

    def log(self, row):
        self.logged.append(row)

    def finish(self, exit_code):
        self.exits.append(exit_code)


class FakeMLflow(types.ModuleType):
    """Records what the functions of MLflow are called with."""

    def __init__(self):
        super().__init__("mlflow")
        self.__spec__ = ModuleSpec("mlflow", None)  # transformers asks for it
        self.calls = []
        self.fails = ()
        self.exceptions = types.SimpleNamespace(MlflowException=type("MlflowException", (Exception,), {}))
        for name in ("set_experiment", "log_params", "log_metrics", "log_text", "log_dict", "end_run"):
            setattr(self, name, self._recorder(name))

    def _recorder(self, name):
        def record(*arguments, **options):
            self.calls.append((name, *arguments, *options.values()))
            if name in self.fails:
                raise self.exceptions.MlflowException("the server is away\nwith a long trace")

        return record

    def start_run(self, run_id, run_name):
        self.calls.append(("start_run", run_id, run_name))
        return types.SimpleNamespace(info=types.SimpleNamespace(run_id=run_id or "0123456789abcdef"))

    def of(self, name):
        return [call[1:] for call in self.calls if call[0] == name]


@pytest.fixture
def wandb(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb())
    return sys.modules["wandb"]


@pytest.fixture
def mlflow(monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", FakeMLflow())
    return sys.modules["mlflow"]


def train(*arguments, code=0):
    outcome = CliRunner().invoke(main, ["train", *map(str, arguments), "--json"])
    assert outcome.exit_code == code, outcome.output
    return outcome


def test_wandb_gets_configuration_metrics_samples_and_result_and_a_resumed_run_goes_on(wandb, tmp_path):
    run = tmp_path / "mine"
    result = json.loads(train(*TINY, "--track", "wandb", "--log-dir", run).stdout.splitlines()[-1])
    (begun,) = wandb.inits
    assert (begun["name"], begun["dir"], begun["config"]["episodes"]) == ("mine", str(run), 8)
    assert wandb.summary["result"]["eval"] == result["eval"] and wandb.exits == [0]
    names = {name for row in wandb.logged for name in row}
    assert {"sft/loss", "train/loss", "rollout/success_rate", "eval/success_rate"} <= names
    assert {"distributions/train/advantages", "distributions/rollout/ep_len"} <= names
    tables = [row["eval/samples"] for row in wandb.logged if "eval/samples" in row]
    assert tables[0][1] == ["prompt", "completion", "answer", "reward", "note"] and len(tables[0][2]) == 4
    assert all("time/total_timesteps" in row or "sft/step" in row for row in wandb.logged)

    before = len(wandb.logged)
    train("--resume", run, "--episodes", 16)
    assert [settings["id"] for settings in wandb.inits] == [begun["id"]] * 2
    steps = [row["time/total_timesteps"] for row in wandb.logged[before:] if "train/loss" in row]
    assert len(steps) == 2 and min(steps) > result["timesteps"]
    assert wandb.axes[:2] == [("*", "time/total_timesteps"), ("sft/*", "sft/step")]


def test_mlflow_gets_configuration_metrics_samples_and_result_and_a_resumed_run_goes_on(mlflow, tmp_path):
    run = tmp_path / "mine"
    result = json.loads(train(*TINY, "--track", "mlflow", "--log-dir", run).stdout.splitlines()[-1])
    assert mlflow.of("start_run") == [(None, "mine")] and mlflow.of("end_run") == [("FINISHED",)]
    assert mlflow.of("log_params")[0][0]["episodes"] == 8
    assert mlflow.of("log_dict") == [(result, "result.json")]
    assert {"eval/success_rate", "sft/loss"} <= {name for figures, _ in mlflow.of("log_metrics") for name in figures}
    text, path = mlflow.of("log_text")[0]
    assert text.startswith("| prompt | completion | answer |") and path == "eval/samples/000000000.md"
    train("--resume", run, "--episodes", 16)
    assert mlflow.of("start_run")[1:] == [("0123456789abcdef", None)] and len(mlflow.of("log_params")) == 1


def test_a_server_that_is_away_does_not_end_the_training(mlflow, tmp_path, capsys):
    mlflow.fails = ("log_metrics", "log_dict")
    tracker = MLflow(tmp_path, {})
    for step in (1, 2):
        tracker.write({"train/loss": 1.0, "rollout/parts/a/b?": 2.0}, {}, step)
    tracker.conclude({})
    assert mlflow.of("log_metrics")[1] == ({"train/loss": 1.0, "rollout/parts.a.b_": 2.0}, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "mlflow: the server is away; the training goes on, and figures may be missing there"


def test_whatever_fails_in_a_tracker_does_not_end_the_training(wandb, mlflow, tmp_path, capsys, monkeypatch):
    def fails(*arguments, **options):
        raise ConnectionResetError

    for library, names in ((wandb, ("Table", "Histogram", "finish")), (mlflow, ("log_text", "end_run"))):
        for name in names:
            monkeypatch.setattr(library, name, fails)
    for tracker in (Wandb(tmp_path, {}), MLflow(tmp_path, {})):
        tracker.write({"train/loss": 1.0}, {}, 1)
        tracker.add_table("eval/samples", ["prompt"], [["1+1="]], 1)
        tracker.add_histogram("train/advantages", [1.0], 1)
        tracker.close()
    said = "ConnectionResetError; the training goes on, and figures may be missing there"
    assert capsys.readouterr().err.splitlines() == [f"wandb: {said}", f"mlflow: {said}"]


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_library_is_one_line_before_any_work(name, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    outcome = train(*TINY, "--track", name, "--log-dir", tmp_path / "run", code=2)
    (line,) = outcome.stderr.splitlines()
    assert line.startswith(f"Error: --track {name} needs {name}: pip install 'rlenv-lm[{name}]'")
    assert not (tmp_path / "run").exists()


def test_a_tracker_that_refuses_is_one_line(wandb, tmp_path):
    wandb.refuses = True
    with pytest.raises(ValueError, match=r"^wandb: No API key configured; log in with: wandb login, or set WANDB"):
        Wandb(tmp_path, {})


@pytest.mark.skipif(importlib.util.find_spec("wandb") is None, reason="needs wandb: pip install 'rlenv-lm[wandb]'")
def test_wandb_itself_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    train(*TINY, "--track", "wandb", "--log-dir", tmp_path / "run")
    train("--resume", tmp_path / "run", "--episodes", 16)
    name = json.loads((tmp_path / "run" / "tracking.json").read_text())["id"]
    written = list((tmp_path / "run" / "wandb").glob(f"offline-run-*-{name}/run-{name}.wandb"))
    assert len(written) == 2 and all(path.stat().st_size for path in written)


@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs mlflow: pip install 'rlenv-lm[mlflow]'")
def test_mlflow_itself_in_a_folder(tmp_path, monkeypatch):
    import mlflow

    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    train(*TINY, "--track", "mlflow", "--log-dir", tmp_path / "run")
    train("--resume", tmp_path / "run", "--episodes", 16)
    client = mlflow.MlflowClient()
    (run,) = client.search_runs([client.get_experiment_by_name("rlenv").experiment_id])
    assert (run.info.run_name, run.info.status, run.data.params["episodes"]) == ("run", "FINISHED", "8")
    losses = client.get_metric_history(run.info.run_id, "train/loss")
    assert len(losses) == len({metric.step for metric in losses}) == 4
    assert {path.path for path in client.list_artifacts(run.info.run_id)} == {"eval", "result.json"}
