"""Pairs, ratios, rows, and the command that runs them."""

import json
import sys
from types import SimpleNamespace

import _rlenv_benchmarks
import pytest
from _rlenv_benchmarks.measure import Row, alternate
from _rlenv_benchmarks.peers import Turns, require_trl
from _rlenv_scripts.main import main
from click.testing import CliRunner

KEYS = {
    "name",
    "ratio",
    "ours",
    "peer",
    "unit",
    "pairs",
    "quality",
    "details",
    "machine",
    "versions",
    "command",
    "date",
}


def test_the_ratio_is_of_pairs_and_above_one_where_ours_is_better():
    row = Row.of("x", [1.0, 2.0, 4.0], [4.0, 4.0, 4.0], "s", "fine")
    assert (row.ratio, row.ours, row.peer, row.pairs) == ({"median": 2.0, "min": 1.0, "max": 4.0}, 2.0, 4.0, 3)
    row = Row.of("x", [10.0, 30.0], [10.0, 10.0], "tokens/s", "fine", less_is_better=False, note=1)
    assert (row.ratio, row.details) == ({"median": 2.0, "min": 1.0, "max": 3.0}, {"note": 1})


def test_measurements_are_taken_in_turn_and_the_first_pair_is_dropped():
    order = []

    def take(who):
        order.append(who)
        return float(len(order))

    ours, peer = alternate(lambda: take("A"), lambda: take("B"), pairs=3)
    assert order == list("ABABABAB")
    assert (ours, peer) == ([3.0, 5.0, 7.0], [4.0, 6.0, 8.0])


def test_ours_takes_its_turn_after_every_block_of_the_peers_steps():
    turns = []
    callback = Turns(lambda: turns.append(callback.done) or 0.5, steps=3, turns=2)
    callback.done = 0
    control = SimpleNamespace(should_training_stop=False)
    callback.on_train_begin(None, None, control)
    for step in range(1, 7):
        assert not control.should_training_stop
        callback.done = step
        callback.on_step_end(None, SimpleNamespace(global_step=step), control)
    assert turns == [3, 6] and callback.ours == [0.5, 0.5] and len(callback.theirs) == 2
    assert control.should_training_stop


@pytest.fixture
def fake(monkeypatch):
    """Register a benchmark that measures nothing."""
    module = SimpleNamespace(run=lambda name, pairs, **more: [Row.of(name, [1.0] * pairs, [2.0] * pairs, "s", "same")])
    monkeypatch.setattr(_rlenv_benchmarks, "find_benchmark", lambda name: module)


def test_the_command_writes_rows_with_machine_versions_and_command(fake, tmp_path):
    outcome = CliRunner().invoke(main, ["bench", "generate", "--pairs", "7", "--out", str(tmp_path / "new"), "--json"])
    assert outcome.exit_code == 0, outcome.output
    [row] = json.loads((tmp_path / "new" / "generate.json").read_text())
    assert set(row) == KEYS
    assert row["pairs"] == 7 and row["command"] == "rlenv bench generate --pairs 7"
    assert row["machine"]["cores"] >= 1 and {"processor", "gpu"} <= set(row["machine"]) and "torch" in row["versions"]
    assert json.loads(outcome.stdout.splitlines()[-1]) == {"generate": [row]}


def test_updates_are_in_the_command_of_what_is_measured_by_seed(fake, tmp_path):
    options = ["--updates", "8", "--resume", "--out", str(tmp_path)]
    assert CliRunner().invoke(main, ["bench", "trl-smollm2", *options]).exit_code == 0
    [row] = json.loads((tmp_path / "trl-smollm2.json").read_text())
    assert row["command"] == "rlenv bench trl-smollm2 --updates 8"


def test_without_a_name_everything_that_this_machine_can_run_is_run(fake, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert CliRunner().invoke(main, ["bench", "--out", str(tmp_path)]).exit_code == 0
    written = {path.stem for path in tmp_path.glob("*.json")}
    assert written == set(_rlenv_benchmarks.BENCHMARKS) - set(_rlenv_benchmarks.NEEDS_GPU)


def test_an_empty_name_is_unknown(fake, tmp_path):
    outcome = CliRunner().invoke(main, ["bench", "", "--out", str(tmp_path)])
    assert outcome.exit_code != 0 and not list(tmp_path.iterdir())


def test_the_list_names_them_all():
    outcome = CliRunner().invoke(main, ["bench", "--list"])
    assert [line.split()[0] for line in outcome.stdout.splitlines()] == list(_rlenv_benchmarks.BENCHMARKS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generat"], "unknown benchmark 'generat'; did you mean 'generate'?"),
        (["h200"], "this benchmark needs a CUDA device"),
        (["h200-decode"], "this benchmark needs a CUDA device"),
        (["trl-grpo"], "pip install 'rlenv-lm[peers]'"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "trl", None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["rlenv", "bench", *arguments, "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as stop:
        main()
    error = capsys.readouterr().err.splitlines()[-1]
    assert stop.value.code == 2 and error.startswith("Error: ") and message in error
    assert not list(tmp_path.iterdir())


def test_a_missing_peer_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "trl", None)
    with pytest.raises(ValueError, match="peers"):
        require_trl()
