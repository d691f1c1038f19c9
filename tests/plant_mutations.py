"""Plant each bug of `mutations.toml` in a copy of the tree, and run the test that must fail: `make mutations`.

    python tests/plant_mutations.py                  # all rows
    python tests/plant_mutations.py kl "end token"   # those whose text has one of these words

A bug is caught if its test passes without it, and with it fails in the test itself, with an AssertionError, an error
that did not come (pytest's Failed), or the row's `error`: not at import, at collection or in a fixture. Each row runs
in a child process, forked before anything of ours is imported, so that torch need not be imported again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = {".venv", ".git", "build", "runs"}
SLACK = 100  # times the tolerance of an identity: by so much a planted bug has to miss it
SECONDS = 120  # for a test with a bug
SELF_CHECK = {
    "file": "agents/policies/language/policy.py",
    "find": "        try_out(self.model, self._step, logits_of, self.vocab_size, self.max_length)\n",
    "replace": "",
}
Row = dict[str, Any]


def main() -> None:
    """Print which bugs were caught; exit with 1 if some were not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="rows whose text has one of them; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests at the same time")
    given = parser.parse_args()
    rows = [row for row in rows_of() if not given.words or any(word in json.dumps(row) for word in given.words)]
    prepare()
    started, missed = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies = [Path(folder) / str(job) for job in range(given.jobs)]
        for copy in copies:
            shutil.copytree(ROOT, copy / "tree", symlinks=True, ignore=left_out)
        names = sorted({row["test"] for row in rows})
        parts = [names[job :: given.jobs] for job in range(given.jobs)]
        healthy = [report for _, reports in run([(None, part) for part in parts if part], copies) for report in reports]
        print(*(report["fault"] for report in healthy if "fault" in report), flush=True)
        for row, reports in run([(row, [row["test"]]) for row in rows], copies):
            fault = fault_of(row, healthy, reports)
            missed += [row] if fault else []
            print("NO " if fault else "yes", f"{time.monotonic() - started:4.0f} s", row["what"], f"[{row['test']}] {fault}" if fault else "", flush=True)
    print(f"{len(rows) - len(missed)} of {len(rows)} caught in {time.monotonic() - started:.0f} s")
    sys.exit(bool(missed))


def rows_of() -> list[Row]:
    """The rows of the table."""
    return tomllib.loads((ROOT / "tests/mutations.toml").read_text(encoding="utf-8"))["bug"]


def left_out(folder: str, names: list[str]) -> set[str]:
    """What a copy of the tree lacks."""
    return {name for name in names if name == "__pycache__" or (Path(folder) == ROOT and name in LEFT_OUT)}


def prepare() -> None:
    """Import what the children need of other packages, and nothing of ours."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != ROOT / "tests"]
    import gymnasium.wrappers  # noqa: F401
    import pytest  # noqa: F401
    import stable_baselines3  # noqa: F401
    import torch
    import transformers.models.gpt2.modeling_gpt2
    import transformers.models.llama.modeling_llama  # noqa: F401

    torch.set_num_threads(1)
    assert "agents" not in sys.modules


def run(work: list[tuple[Row | None, list[str]]], copies: list[Path]) -> Iterator[tuple[Row | None, list[Row]]]:
    """Run the tests of each item, with its bug, one item per copy at a time; yield the items and their reports."""
    free, busy, waiting = list(copies), {}, list(work)
    while waiting or busy:
        while waiting and free:
            item, copy = waiting.pop(0), free.pop()
            (copy / "reports").unlink(missing_ok=True)
            pid = os.fork()
            if not pid:
                try:
                    child(*item, copy)
                except BaseException:
                    traceback.print_exc()
                finally:  # nothing of the parent's is cleaned up
                    os._exit(0)
            busy[pid] = item, copy
        pid, _ = os.wait()
        (row, _), copy = busy.pop(pid)
        if row is not None:
            for file, *_ in edits(row):
                shutil.copy2(ROOT / file, copy / "tree" / file)
        free.append(copy)
        found, said = copy / "reports", (copy / "output").read_text(errors="replace")
        yield row, json.loads(found.read_text()) if found.exists() else [{"fault": f"the process died: {said[-300:]}"}]


def edits(row: Row) -> list[tuple[str, str, str]]:
    """The file, the text to find and its replacement, of each edit of a row."""
    every = (row, *row.get("also", ()), *([SELF_CHECK] if row.get("unchecked") else []))
    return [(edit["file"], edit.get("find", ""), edit["replace"]) for edit in every]


def child(row: Row | None, tests: list[str], copy: Path) -> None:
    """Plant a bug, run tests and write their reports."""
    import pytest

    output = os.open(copy / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(copy / "tree")
    os.environ["PYTHONPATH"] = str(copy / "tree/src")
    sys.dont_write_bytecode = row is not None  # what the healthy tests compile serves those with bugs
    sys.path.insert(0, os.environ["PYTHONPATH"])
    reports: list[Row] = []
    for file, find, replace in edits(row) if row else ():
        text = (copy / "tree" / file).read_text(encoding="utf-8")
        if find and text.count(find) != 1:
            reports.append({"fault": f"{file} has {text.count(find)} times: {find}"})
        text = text.replace(find, replace) if find else f"{text}\n\n{replace}"  # without a text to find: at the end
        (copy / "tree" / file).write_text(text, encoding="utf-8")

    class Reporter:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
            report = yield
            error = call.excinfo
            kinds = [kind.__name__ for kind in error.type.__mro__] if error and report.failed else []
            said = str(error.value)[:200] if error else ""
            reports.append({"test": item.nodeid, "when": call.when, "failed": report.failed, "kinds": kinds, "said": said})
            return report

    if row:
        os.environ["RLENV_TEST_SLACK"] = str(SLACK)
    if not any("fault" in report for report in reports):
        quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        pytest.main([*quiet, f"--timeout={SECONDS}", *(["-x"] if row else []), *tests], [Reporter()])
    (copy / "reports").write_text(json.dumps(reports))


def fault_of(row: Row, healthy: list[Row], planted: list[Row]) -> str:
    """Why a bug does not count as caught; empty if it does."""
    if faults := [report["fault"] for report in planted if "fault" in report]:
        return faults[0]
    before = [report for report in healthy if report.get("test", "").partition("[")[0] == row["test"].partition("[")[0]]
    before = [report for report in before if report["test"].startswith(row["test"])]
    if not before or any(report["failed"] for report in before):
        return f"the test does not pass without it: {[report['said'] for report in before if report['failed']]}"
    failed = [report for report in planted if report["failed"]]
    if not failed:
        return "no test failed" if planted else "no test ran"
    own = {"AssertionError", "Failed", row.get("error", "AssertionError")} & {*failed[0]["kinds"]}
    if failed[0]["when"] == "call" and own and "Timeout" not in failed[0]["said"][:8]:
        return ""
    return f"{failed[0]['when']}: {failed[0]['kinds'][0]}: {failed[0]['said']}"


if __name__ == "__main__":
    main()
