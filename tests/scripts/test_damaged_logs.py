"""A damaged line of a log costs its figures; the run goes on, and the others are shown."""

import pytest
from inprocess import done

from rlenv._scripts.reports.history import History
from rlenv._scripts.run.folder import RunFolder

HEADER = "time/iterations,rollout/ep_rew_mean,rollout/ep_len_mean\n"
ROWS = [f"{i},{i / 4},{10 * i}\n" for i in range(1, 7)]


def damage(file, line, byte):
    """Flip a bit of a byte in a line, counted from 1, so that the byte is not UTF-8."""
    content = bytearray(file.read_bytes())
    content[sum(map(len, content.splitlines(keepends=True)[: line - 1])) + byte] ^= 128
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("old", "new", "skipped"),
    [
        ("".join(ROWS[1:4]), "\udcff\n" * 3, 3),
        (ROWS[2], '3,"0.75,30\n', 1),
    ],
)
def test_damaged_lines_are_skipped_and_counted(old, new, skipped, tmp_path, capsys):
    table = (HEADER + "".join(ROWS)).replace(old, new) + "7,9"
    (tmp_path / "progress.csv").write_bytes(table.encode("utf-8", "surrogateescape"))
    read = History(RunFolder(tmp_path).log)["rollout/ep_rew_mean"]
    assert set(read.updates) >= {1, 6} and not {3, 7} & set(read.updates)
    assert set(zip(read.updates, read.values, strict=True)) <= {(i, i / 4) for i in range(1, 7)}
    assert f"skipped {skipped} damaged line" in capsys.readouterr().err


LEFT_OUT = {  # file: line and byte, and what is said of it
    "progress.csv": (3, 1, "skipped 1 damaged line of {}"),
    "samples.jsonl": (2, 9, "skipped 1 damaged line of {}"),
    "result.json": (1, 5, "{} is damaged"),
}


def test_what_is_damaged_is_left_out_and_said(text_copy):
    for name, (line, byte, _) in LEFT_OUT.items():
        damage(text_copy / name, line, byte)
    for command, read in (("report", [*LEFT_OUT]), ("doctor", ["progress.csv", "result.json"])):
        said = done(command, text_copy).stderr
        assert all(LEFT_OUT[name][-1].format(repr(str(text_copy / name))) in said for name in read)
