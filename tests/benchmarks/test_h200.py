"""The script for a GPU, on a small model: on the CPU, and a captured step on the pretend device."""

import json
from types import SimpleNamespace

import pytest
import torch
from _rlenv_benchmarks import h200, h200_parts
from _rlenv_benchmarks.gpu import Bench, Floors, qwen
from _rlenv_benchmarks.h200_parts import OFF, PARTS, without
from _rlenv_scripts.main import main
from click.testing import CliRunner
from pretend_device import pretend_device

SIZES = {"batches": (2, 3), "prompt": 5, "tokens": 4, "groups": 2, "k": 2, "parts": 2, "replays": 2}


def bench_of(model, **sizes):
    return Bench(model, Floors(1e9, 1e9), 1, **SIZES | sizes)


def pretend_gpu(monkeypatch, parts):
    """Let `rlenv bench` measure these parts on nothing."""
    monkeypatch.setattr(h200, "require_gpu", lambda: None)
    monkeypatch.setattr(h200, "qwen", lambda: SimpleNamespace(cuda=lambda: SimpleNamespace(device="none")))
    monkeypatch.setattr(h200, "Floors", SimpleNamespace(of=lambda device: Floors(1e9, 1e9)))
    monkeypatch.setattr(h200, "PARTS", parts)


def test_parts_run_and_rows_are_written_as_they_are_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(h200_parts, "OF_A_STEP", h200_parts.OF_A_STEP[:2])
    parts = (h200_parts.steps, h200_parts.acting)
    rows = h200.measure(bench_of(qwen(0.07), batches=(2,)), parts, lambda: True, tmp_path / "h200.jsonl", "a command")
    written = [json.loads(line) for line in (tmp_path / "h200.jsonl").read_text().splitlines()]
    assert [row["name"] for row in written] == [row.name for row in rows]
    assert all(row["command"] == "a command" and row["device"]["bandwidth"] == 1e9 for row in written)
    names = " | ".join(row.name for row in rows)
    for words in ("chooses nothing", "greedy", *h200_parts.OF_A_STEP, "all of these"):
        assert words in names
    assert all(row.ours > 0 and row.peer > 0 for row in rows)
    assert len(capsys.readouterr().err.splitlines()) == len(rows), "a line for each, and nothing is skipped"


@pytest.mark.slow  # some of them: test_parts_run_and_rows_are_written_as_they_are_made
def test_every_part_runs_and_rows_are_written_as_they_are_made(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(h200_parts.subprocess, "run", lambda *args, **kwargs: type("Done", (), {"stdout": "1 passed"}))
    bench = bench_of(qwen(0.07), batches=(2,))
    rows = h200.measure(bench, PARTS["h200"], lambda: True, tmp_path / "h200.jsonl", "a command")
    written = [json.loads(line) for line in (tmp_path / "h200.jsonl").read_text().splitlines()]
    assert [row["name"] for row in written] == [row.name for row in rows]
    assert all(row["command"] == "a command" and row["device"]["bandwidth"] == 1e9 for row in written)
    names = " | ".join(row.name for row in rows)
    for words in ("tests/gpu", "new shape", "chooses nothing", "greedy", "all of these", "prompts of 5", "GRPO, 2 x 2"):
        assert words in names
    assert all(technique in names for technique in OFF if technique != "prompts read in parts")
    assert all(row.ours > 0 and row.peer > 0 for row in rows)
    assert len(capsys.readouterr().err.splitlines()) == len(rows), "a line for each, and nothing is skipped"


def test_rows_as_they_are_made_go_to_the_folder_that_was_asked_for(tmp_path, monkeypatch):
    def part(bench):
        yield h200_parts.Row.of("only row", [1.0], [2.0], "s", "fine")

    monkeypatch.chdir(tmp_path)
    pretend_gpu(monkeypatch, {"h200": (part,)})
    outcome = CliRunner().invoke(main, ["bench", "h200", "--pairs", "1", "--out", "asked/for"])
    assert outcome.exit_code == 0, outcome.output
    assert {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.*")} == {
        "asked/for/h200.json", "asked/for/h200.jsonl",
    }  # fmt: skip
    [row] = (tmp_path / "asked" / "for" / "h200.jsonl").read_text().splitlines()
    assert json.loads(row)["name"] == "only row" and json.loads(row)["command"] == "rlenv bench h200 --pairs 1"


def test_without_time_nothing_new_is_begun_and_the_rest_is_named(tmp_path, capsys):
    asked, began = [], []

    def part(bench):
        began.append(1)
        for number in range(3):
            yield h200_parts.Row.of(f"row {number}", [1.0], [2.0], "s", "fine")

    has_time = lambda: asked.append(1) or len(asked) < 3  # noqa: E731
    rows = h200.measure(bench_of(None), (part, part), has_time, tmp_path / "new" / "rows", "a command")
    assert [row.name for row in rows] == ["row 0", "row 1"] and began == [1]
    assert json.loads((tmp_path / "new" / "rows").read_text().splitlines()[-1]) == {"skipped": ["part", "part"]}
    assert "the time is used up" in capsys.readouterr().err.splitlines()[-1]


def test_a_part_that_fails_is_named_and_the_others_go_on(tmp_path):
    def failing(bench):
        yield h200_parts.Row.of("before", [1.0], [2.0], "s", "fine")
        raise RuntimeError("no memory\nfor this")

    def other(bench):
        yield h200_parts.Row.of("after", [1.0], [2.0], "s", "fine")

    rows = h200.measure(bench_of(None), (failing, other), lambda: True, tmp_path / "rows", "a command")
    assert [row.name for row in rows] == ["before", "after"]
    written = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert written[1] == {"failed": "failing", "why": "no memory\nfor this"} and written[2]["name"] == "after"


def test_updates_beside_trl_are_timed_in_parts(monkeypatch):
    asked = {}

    def train_beside(trainer, agent, model, reward, steps, turns, **settings):
        asked.update(settings)
        for _ in range(turns):
            agent.learn(total_episodes=agent.episodes_per_update * steps, reset_num_timesteps=False)
        return SimpleNamespace(ours=[9.0] * turns, theirs=[18.0] * turns), None, None

    monkeypatch.setattr(h200_parts, "train_beside", train_beside)
    [row] = h200_parts.train(bench_of(qwen(0.07)))
    assert (row.name, row.ratio["median"], row.unit) == ("GRPO, 2 x 2, 4 tokens", 2, "s/update")
    assert asked["per_device_train_batch_size"] == asked["gradient_accumulation_steps"] == 2 and asked["use_cpu"]
    acting, training = (float(part.split()[1]) for part in row.quality.split(", ")[:2])
    assert acting + training == pytest.approx(9, abs=0.02) and acting > 0


def test_a_benchmark_without_a_row_is_an_error(tmp_path, monkeypatch):
    def failing(bench):
        raise RuntimeError("no memory")
        yield

    pretend_gpu(monkeypatch, {"h200-decode": (failing,)})
    outcome = CliRunner().invoke(main, ["bench", "h200-decode", "--out", str(tmp_path)])
    assert outcome.exit_code == 2 and "Error: nothing was measured; " in outcome.stderr
    assert json.loads((tmp_path / "h200-decode.jsonl").read_text()) == {"failed": "failing", "why": "no memory"}


def test_techniques_are_switched_off_for_a_while():
    before = [getattr(module, name) for switches in OFF.values() for module, name, _ in switches]
    with without(*OFF):
        switched = [(getattr(module, name), value) for switches in OFF.values() for module, name, value in switches]
        assert all(now is value for now, value in switched)
    assert [getattr(module, name) for switches in OFF.values() for module, name, _ in switches] == before


def test_floors_are_the_speeds_of_the_device():
    floors = Floors.of(torch.device("cpu"), square=64, copied=2**16, repeats=1)
    assert 1e6 < floors.operations < 1e14 and 1e6 < floors.bandwidth < 1e14
    model, more = qwen(0.07), Floors(1e9, 1e30)
    size = sum(p.numel() for p in model.parameters())
    assert more.step(model, 10, 100) == 2 * 10 * size / 1e9
    kept = 2 * 2 * 64 * 2  # keys and values of two layers with one head of 64, in 16 bits
    assert Floors(1e30, 1e9).step(model, 10, 100) == pytest.approx((2 * size + 10 * 100 * kept) / 1e9)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="a real device has its own")
def test_every_part_runs_on_the_pretend_device_and_each_way_is_captured_once():
    with pretend_device() as device:
        bench = bench_of(qwen(0.07).cuda(), batches=(2,))
        assert len(list(h200_parts.steps(bench))) == 6 and device.captures == 1 + 6
        for part in PARTS["h200"][1:]:
            assert all(row.ours > 0 for row in part(bench))
