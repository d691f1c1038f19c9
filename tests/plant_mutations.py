"""Plant each bug of `mutations.toml` in a copy of the tree, and run the test that must fail: `make mutations`.

    python tests/plant_mutations.py kl "end token"   # only rows whose text has one of these

A bug is caught if its test passes without it and fails with it: in the test itself, not at import, at collection or in
a fixture, with an AssertionError, an error that did not come (pytest's Failed), or the row's `error`. Each row runs in
a child process that is forked before anything of ours is imported, so that torch need not be imported again.
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
QUIET = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
SLACK = 100  # times the tolerance of an identity: by so much a bug has to miss it


def main() -> None:
    """Print which bugs were caught; exit with 1 if some were not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="rows whose text has one of them; default: all")
    given = parser.parse_args()
    table = tomllib.loads((ROOT / "tests/mutations.toml").read_text(encoding="utf-8"))
    rows = [row for row in table["bug"] if not given.words or any(word in json.dumps(row) for word in given.words)]
    for row in rows:
        row["edits"] = [row, *row.get("also", ()), *([table["unchecked"]] if row.get("unchecked") else ())]
    import_others()
    started, jobs, caught, healthy = time.monotonic(), os.cpu_count(), 0, []
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        copies = [Path(folder) / str(job) for job in range(jobs)]
        for copy in copies:
            shutil.copytree(ROOT, copy / "tree", symlinks=True, ignore=left_out)
        fast, slow = (sorted({row["test"] for row in rows if row.get("slow", False) == which}) for which in (0, 1))
        parts = [*(fast[job::jobs] for job in range(jobs)), ["-m", "", *slow] if slow else []]
        for _, reports in run([({}, part) for part in parts if part], copies):
            healthy += reports
        for row, reports in run([(row, [*["-m", ""] * row.get("slow", 0), row["test"]]) for row in rows], copies):
            fault = fault_of(row, healthy, reports)
            caught += not fault
            print("NO " if fault else "yes", row["what"], f"[{row['test']}] {fault}" if fault else "", flush=True)
    print(f"{caught} of {len(rows)} caught in {time.monotonic() - started:.0f} s")
    sys.exit(caught < len(rows))


def import_others() -> None:
    """Import what the children need of other packages, and nothing of ours."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != ROOT / "tests"]
    import gymnasium.wrappers  # noqa: F401
    import stable_baselines3  # noqa: F401
    import torch
    import transformers.models.gpt2.modeling_gpt2
    import transformers.models.llama.modeling_llama  # noqa: F401

    torch.set_num_threads(1)


def left_out(folder: str, names: list[str]) -> set[str]:
    """What a copy of the tree lacks."""
    environments = [name for name in names if name.startswith(".venv")]
    return {"__pycache__", *((*environments, ".git", "build", "runs") if Path(folder) == ROOT else ())} & {*names}


def run(work: list[tuple[dict, list[str]]], copies: list[Path]):
    """Run pytest with the bug and the arguments of each item, one item per copy at a time; yield rows and reports."""
    free, busy, waiting = list(copies), {}, list(work)
    while waiting or busy:
        while waiting and free:
            item, copy = waiting.pop(0), free.pop()
            (copy / "reports").write_text("null")
            (copy / "output").write_text("")
            if pid := os.fork():
                busy[pid] = item, copy
                continue
            try:
                child(*item, copy)
            finally:  # nothing of the parent's is cleaned up
                os._exit(0)
        (row, _), copy = busy.pop(os.wait()[0])
        free.append(copy)
        for edit in row.get("edits", ()):
            shutil.copy2(ROOT / edit["file"], copy / "tree" / edit["file"])
        died = [{"fault": f"the process died: {(copy / 'output').read_text(errors='replace')[-300:]}"}]
        yield row, json.loads((copy / "reports").read_text()) or died


def child(row: dict, arguments: list[str], copy: Path) -> None:
    """Plant a bug, run tests and write their reports."""
    import pytest

    for stream in (1, 2):
        os.dup2(os.open(copy / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.chdir(copy / "tree")
    os.environ["PYTHONPATH"] = str(copy / "tree/src")
    sys.path.insert(0, os.environ["PYTHONPATH"])
    sys.dont_write_bytecode = bool(row)  # what the tests without bugs compile serves those with bugs
    reports: list[dict] = []
    for edit in row.get("edits", ()):
        text, find = Path(edit["file"]).read_text(encoding="utf-8"), edit.get("find", "")
        if find and text.count(find) != 1:
            reports.append({"fault": f"{edit['file']} has {text.count(find)} times: {find}"})
        text = text.replace(find, edit["replace"]) if find else f"{text}\n\n{edit['replace']}"
        Path(edit["file"]).write_text(text, encoding="utf-8")

    class Reporter:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_makereport(self, item, call):
            report = yield
            kinds = [kind.__name__ for kind in call.excinfo.type.__mro__] if call.excinfo and report.failed else []
            said = f"{call.excinfo.value} "[:200] if kinds else ""
            reports.append({"test": item.nodeid, "when": call.when, "kinds": kinds, "said": said})
            return report

    if row:
        os.environ["RLENV_TEST_SLACK"] = str(SLACK)
    arguments = [*QUIET, *["-x", "--timeout=120"] * bool(row), *arguments]
    if not reports and pytest.main(arguments, [Reporter()]) == pytest.ExitCode.USAGE_ERROR:  # a test is gone
        gone = [line for line in (copy / "output").read_text().splitlines() if "not found: " in line]
        left = [each for each in arguments if not any(line.endswith(each) for line in gone)]
        if "::" in left[-1]:
            pytest.main(left, [Reporter()])
    (copy / "reports").write_text(json.dumps(reports))


def fault_of(row: dict, healthy: list[dict], planted: list[dict]) -> str:
    """Why a bug does not count as caught; empty if it does."""
    if faults := [report["fault"] for report in planted if "fault" in report]:
        return faults[0]
    before = [report["said"] for report in healthy if report.get("test", "").startswith(row["test"])]
    if not before or any(before):
        return f"the test does not pass without it: {''.join(before)}"
    none = {"when": "no test failed", "kinds": [""], "said": ""}
    first = next((report for report in planted if report["kinds"]), none)
    expected = {"AssertionError", "Failed", row.get("error", "Failed")} & {*first["kinds"]}
    if first["when"] == "call" and expected and not first["said"].startswith("Timeout"):
        return ""
    return f"{first['when']}: {first['kinds'][0]}: {first['said']}"


if __name__ == "__main__":
    main()
