"""One flipped bit in a log costs its line, which is named; the run goes on, and the other figures are shown."""

import csv
import json
from pathlib import Path

import pytest
from _rlenv_scripts.compare import study
from _rlenv_scripts.reports.doctor.history import read_metrics
from _rlenv_scripts.reports.figures.curves import read_curves
from _rlenv_scripts.runs import logged
from _rlenv_scripts.runs.run_log import cut_log, open_log
from inprocess import run
from undrawn import not_drawn

HEADER = "time/iterations,rollout/ep_rew_mean,rollout/ep_len_mean\n"
ROWS = [f"{i},{i / 4},{10 * i}\n" for i in range(1, 7)]


def flip(file, place, bit):
    content = bytearray(file.read_bytes())
    content[place] ^= bit
    file.write_bytes(content)


def line_start(file, number):
    return sum(map(len, file.read_bytes().splitlines(keepends=True)[: number - 1]))


# Reading.


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "progress.csv"
    path.write_text(HEADER + "".join(ROWS))
    return path


@pytest.mark.parametrize("bit", [1, 32, 128, *(pytest.param(bit, marks=pytest.mark.slow) for bit in (2, 4, 8, 16, 64))])
def test_any_flipped_bit_costs_at_most_its_line_and_the_next(bit, table):
    whole = table.read_bytes()
    for place in range(len(HEADER), len(whole)):
        table.write_bytes(whole)
        flip(table, place, bit)
        values = read_metrics(table)["rollout/ep_rew_mean"]
        assert len(values) >= len(ROWS) - 2
        lines = logged.mended_lines(table)
        assert len(lines) in (len(ROWS), len(ROWS) + 1)  # the last line break may be lost
        list(csv.reader(lines, strict=True))


@pytest.mark.parametrize(
    ("change", "damaged"),
    [
        ((ROWS[2], "3,0.75,\udcb00\n"), "line 4"),
        ((ROWS[2], "3,0.w5,30\n"), "line 4"),
        ((ROWS[2], "3,0.7530\n"), "line 4"),
        ((ROWS[2] + ROWS[3], ROWS[2].strip() + "*" + ROWS[3]), "line 4"),
        ((ROWS[2], "\0" * 9 + "\n"), "line 4"),
        (("".join(ROWS[1:4]), "\udcff\n" * 3), "lines 3, 4, 5"),
    ],
)
def test_damaged_lines_are_named_and_left_out(change, damaged, table, capsys):
    text = table.read_text().replace(*change)
    table.write_bytes(text.encode("utf-8", "surrogateescape"))
    read = read_metrics(table)["rollout/ep_rew_mean"]
    assert set(read.updates) >= {1, 6} and 3 not in read.updates
    assert set(zip(read.updates, read.values, strict=True)) <= {(i, i / 4) for i in range(1, 7)}
    assert capsys.readouterr().err == f"{damaged} of {str(table)!r} {'is' if 's' not in damaged else 'are'} damaged " \
        "and left out\n"  # fmt: skip
    lines = logged.mended_lines(table)
    assert len(lines) == 7 and lines[1] == ROWS[0] and lines[6] == ROWS[5] and lines[3] == ",,\n"


def test_texts_and_half_written_lines_are_no_damage(table, capsys):
    with table.open("a") as file:
        file.write("7,PPO-2,yes\n8,1")
    assert read_metrics(table)["time/iterations"].last == 7
    assert read_curves(table, "time/iterations")[0].shape == (2, 6)
    assert capsys.readouterr().err == ""


def test_a_resumed_table_has_empty_cells_where_it_was_damaged(table, tmp_path):
    flip(table, line_start(table, 4), 128)
    cut_log(tmp_path, {"rows": 4, "events": {}, "samples": 0})
    assert table.read_text() == HEADER + ROWS[0] + ROWS[1] + ",,\n" + ROWS[3]


def test_a_table_whose_names_are_damaged_is_put_aside(table, tmp_path, capsys):
    flip(table, HEADER.index(","), 1)
    damaged = table.read_bytes()
    log = open_log(tmp_path, {"rows": 4, "events": {}, "samples": 0})
    log.record("time/iterations", 5)
    log.dump(5)
    log.close()
    assert table.read_text() == "time/iterations\n5\n"
    assert (tmp_path / "damaged-progress.csv").read_bytes() == damaged
    assert "damaged-progress.csv" in capsys.readouterr().err


# The commands.


@pytest.fixture
def undrawn(monkeypatch):
    not_drawn(monkeypatch)


def test_commands_name_a_damaged_line_of_the_table_and_go_on(text_copy, undrawn):
    table = text_copy / "progress.csv"
    flip(table, line_start(table, 3) + 2, 128)
    for command in (
        ["doctor", text_copy],
        ["report", text_copy],
        ["train", "--resume", text_copy, "--json", "--episodes", 28],
    ):
        outcome = run(*command)
        assert outcome.exit_code == 0, outcome.output
        assert outcome.stderr.count(f"line 3 of {str(table)!r} is damaged and left out") == 1
    lines = table.read_text().splitlines()
    assert set(lines[2]) == {","} and len(lines) > 4
    assert "damaged" not in run("doctor", text_copy).stderr


def test_a_damaged_sample_is_left_out_of_the_report(text_copy, undrawn):
    samples = text_copy / "samples.jsonl"
    flip(samples, line_start(samples, 2) + 9, 128)
    outcome = run("report", text_copy)
    assert outcome.exit_code == 0, outcome.output
    assert f"line 2 of {str(samples)!r} is damaged and left out" in outcome.stderr


@pytest.mark.parametrize("command", ["doctor", "report"])
def test_a_damaged_result_is_left_out(command, text_copy, undrawn):
    flip(text_copy / "result.json", 5, 128)
    outcome = run(command, text_copy)
    assert outcome.exit_code == 0, outcome.output
    assert f"'{text_copy / 'result.json'}' is damaged" in outcome.stderr and "left out" in outcome.stderr


def test_damaged_completions_are_judged_again(text_copy):
    first = run("evaluate", text_copy, "--samples", 2, "--episodes", 4, "--json")
    assert first.exit_code == 0, first.output
    file = Path(json.loads(first.stdout.splitlines()[-1])["completions"])
    whole = file.read_bytes()
    facts = file.with_suffix(".json")
    facts.write_text(json.dumps({"settings": json.loads(facts.read_text())["settings"]}))  # not finished
    flip(file, line_start(file, 3) + 1, 128)
    again = run("evaluate", text_copy, "--samples", 2, "--episodes", 4, "--json")
    assert again.exit_code == 0, again.output
    assert f"line 3 of {str(file)!r} is damaged" in again.stderr
    assert file.read_bytes() == whole


def test_a_comparison_runs_again_what_has_a_damaged_result(text_copy):
    flip(text_copy / "result.json", 5, 128)
    assert study.finished(text_copy) is None
