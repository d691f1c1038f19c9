"""One flipped bit in a log costs its line; the run goes on, and the other figures are shown."""

import json
from pathlib import Path

import pytest
from _rlenv_scripts.reports.history import History, read_columns
from _rlenv_scripts.run import Run
from inprocess import done, result_of, run

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


@pytest.mark.parametrize(
    ("change", "skipped"),
    [
        ((ROWS[2], "3,0.7530\n"), 1),
        ((ROWS[2] + ROWS[3], ROWS[2].strip() + "*" + ROWS[3]), 1),
        (("".join(ROWS[1:4]), "\udcff\n" * 3), 3),
    ],
)
def test_damaged_lines_are_skipped_and_counted(change, skipped, table, capsys):
    text = table.read_text().replace(*change)
    table.write_bytes(text.encode("utf-8", "surrogateescape"))
    read = History(read_columns(table))["rollout/ep_rew_mean"]
    assert set(read.updates) >= {1, 6} and 3 not in read.updates
    assert set(zip(read.updates, read.values, strict=True)) <= {(i, i / 4) for i in range(1, 7)}
    assert f"skipped {skipped} damaged line" in capsys.readouterr().err


def test_a_resumed_table_ends_at_the_checkpoint(table, tmp_path):
    flip(table, line_start(table, 4), 128)
    Run(tmp_path).cut_log({"rows": 4, "events": {}, "samples": 0})
    lines = table.read_text().splitlines(keepends=True)
    assert len(lines) == 5 and lines[:3] == [HEADER, *ROWS[:2]] and lines[4] == ROWS[3]


# The commands.


LEFT_OUT = {  # file: line, byte of the line, what is said of it
    "progress.csv": (3, 1, "skipped 1 damaged line of {}"),
    "samples.jsonl": (2, 9, "skipped 1 damaged line of {}"),
    "result.json": (1, 5, "{} is damaged"),
}
READ = [("doctor", "progress.csv"), ("doctor", "result.json"), *(("report", name) for name in LEFT_OUT)]


@pytest.mark.parametrize(("command", "name"), READ)
def test_what_is_damaged_is_left_out_and_said(command, name, text_copy, undrawn):
    file, (line, byte, said) = text_copy / name, LEFT_OUT[name]
    flip(file, line_start(file, line) + byte, 128)
    assert said.format(repr(str(file))) in done(command, text_copy).stderr


def test_a_run_goes_on_beside_a_damaged_line_of_its_table(text_copy):
    table = text_copy / "progress.csv"
    flip(table, line_start(table, 3) + 2, 128)
    done("train", "--resume", text_copy, "--json", "--episodes", 28)
    assert len(table.read_text().splitlines()) > 4


def test_damaged_completions_are_judged_again(text_copy):
    asked = ["evaluate", text_copy, "--samples", 2, "--episodes", 4, "--json"]
    file = Path(result_of(run(*asked))["completions"])
    whole = file.read_bytes()
    facts = file.with_suffix(".json")
    facts.write_text(json.dumps({"settings": json.loads(facts.read_text())["settings"]}))  # not finished
    flip(file, line_start(file, 3) + 1, 128)
    assert f"line 3 of {str(file)!r} is damaged" in done(*asked).stderr
    assert file.read_bytes() == whole
