"""Verdicts on public data: references, own solutions, wrong answers made from them, and other people's labels.

    python -m rlenv._benchmarks.judged FOLDER --fetch | sh  # downloads the files, about 21 MB
    python -m rlenv._benchmarks.judged FOLDER --json now.json --before then.json --rows rows.jsonl

A file of OWNER/NAME is FOLDER/OWNER/NAME/PATH, as in a clone. docs/appendix/verdicts.md has the table.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from rlenv.verifiers import Isolated, Verdict, Verifier, isolate, make_verifier
from rlenv.verifiers.answer import document_in
from rlenv.verifiers.code.cases import read_tests
from rlenv.verifiers.sandbox.run import ProgramLimits, run

from .public_data import DATA, Row

KINDS = {  # of completions: whether the verifier should pay
    "reference": True, "stated": True, "own": True, "wrong": False, "echo": False,
    "labelled right": True, "labelled wrong": False,
}  # fmt: skip
COLUMNS = {  # of the table: what is counted
    "reference": "references read", "stated": "stated, paid", "own": "own solutions paid",
    "wrong": "wrong answers paid", "echo": "question echoed, paid",
    "labelled right": "labelled right, paid", "labelled wrong": "labelled wrong, paid",
}  # fmt: skip
_BATCH = 500


class Item(NamedTuple):
    """A completion of a row, and its kind."""

    number: int
    row: Row
    kind: str
    completion: str


def items_of(rows: Sequence[Row]) -> Iterator[Item]:
    """Yield the completions of the rows that can be judged, numbered among all of them."""
    for number, row in enumerate(rows):
        if not _is_readable(row):
            continue
        completions = [("reference", row.reference), ("stated", row.stated), ("echo", row.echo)]
        completions += [("own", each) for each in row.own] + [("wrong", each) for each in row.wrong]
        completions += [("labelled right" if right else "labelled wrong", each) for each, right in row.labelled]
        for kind, completion in completions:
            if completion is not None:
                yield Item(number, row, kind, completion)


def judge(
    name: str,
    verifier: Verifier,
    rows: Sequence[Row],
    found: TextIO | None = None,
    pool: Isolated | None = None,
) -> dict[str, Any]:
    """Return what a verifier paid of the rows of a data set: {kind: [paid, all]} and the milliseconds of a verdict.

    A wrong program that is paid and passes the data set's own tests is none, and not counted.

    Args:
        name: of the data set.
        verifier: judges in batches of 500, as it does for an environment.
        pool: its worker processes, if it is run in them.
        rows: of the data set; those whose tests cannot be read count as references that were not read.
        found: gets a line of JSON for every verdict that differs from what should be paid.
    """
    paid, total, seconds = Counter[str](), Counter[str](), 0.0
    if any(row.official for row in rows):
        paid["reference"], total["reference"] = sum(map(_is_readable, rows)), len(rows)
    items = [*items_of(rows)]
    for start in range(0, len(items), _BATCH):
        batch = items[start : start + _BATCH]
        begun = time.perf_counter()
        verdicts = (pool or verifier).verify_batch(
            [item.row.problem for item in batch], [item.completion for item in batch]
        )
        seconds += time.perf_counter() - begun
        for item, verdict in zip(batch, verdicts, strict=True):
            is_paid = verdict.reward >= verifier.success_reward and verdict.status == "ok"
            if item.kind == "wrong" and is_paid and _passes(item):
                continue
            paid[item.kind] += is_paid
            total[item.kind] += 1
            if found is not None and is_paid != KINDS[item.kind]:
                found.write(json.dumps(_as_line(name, item, verdict)) + "\n")
    counts = {kind: [paid[kind], total[kind]] for kind in KINDS if total[kind]}
    return {"rows": len(rows), "counts": counts, "ms": round(1000 * seconds / max(len(items), 1), 3)}


def _is_readable(row: Row) -> bool:
    if not {"test", "tests"} & row.problem.metadata.keys():
        return True
    try:
        return bool(read_tests(row.problem))
    except ValueError:
        return False


def _passes(item: Item) -> bool:
    """Tell whether a program passes the data set's own tests, which run beside it in the sandbox."""
    if not item.row.official:
        return False
    script = f"{document_in(item.completion)}\n{item.row.official}\nprint('passed all')"
    return run({"main.py": script}, limits=ProgramLimits(seconds=10)).output.endswith(b"passed all\n")


def _as_line(name: str, item: Item, verdict: Verdict) -> dict[str, Any]:
    problem = item.row.problem
    return {
        "data": name, "row": item.number, "kind": item.kind, "reward": verdict.reward, "status": verdict.status,
        "reason": verdict.reason, "prompt": problem.text, "answer": problem.answer, "completion": item.completion,
    }  # fmt: skip


def table(now: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> str:
    """Return results as a Markdown table; where those of `before` differ, "before → now"."""
    lines = ["data|rows|" + "|".join(COLUMNS.values()) + "|ms"]
    lines.append("|".join(["---"] + ["--:"] * (len(COLUMNS) + 2)))
    for name, result in now.items():
        old = (before or {}).get(name, result)
        cells = [_both(*(_share(each["counts"].get(kind)) for each in (old, result))) for kind in COLUMNS]
        lines.append("|".join([name, f"{result['rows']:,}", *cells, _both(f"{old['ms']:.3g}", f"{result['ms']:.3g}")]))
    return "\n".join(f"| {' | '.join(line.split('|'))} |" for line in lines)


def _share(counted: Sequence[int] | None) -> str:
    return f"{counted[0]:,} of {counted[1]:,}" if counted else ""


def _both(old: str, new: str) -> str:
    if old == new:
        return new
    first, of, total = old.partition(" of ")
    return f"{first if new.endswith(of + total) else old} → {new}"


def main() -> None:
    """Judge the data sets of a folder and print the table."""
    parser = argparse.ArgumentParser(prog="python -m rlenv._benchmarks.judged", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="has the files as FOLDER/OWNER/NAME/PATH")
    parser.add_argument("--only", action="append", choices=DATA, metavar="DATA", help="this data set; several times")
    parser.add_argument("--fetch", action="store_true", help="print the commands that download the files, and end")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    parser.add_argument("--before", type=Path, metavar="FILE", help="figures of another commit, to stand beside these")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write every verdict that should be another one")
    given = parser.parse_args()
    chosen = {name: DATA[name] for name in given.only or DATA}
    if given.fetch:
        for source in dict.fromkeys(source for data in chosen.values() for source in data.sources):
            place = str(given.folder / source.repository / source.path)
            print(shlex.join(["curl", "-sSfL", "--create-dirs", "-o", place, source.url]))
        return
    for place in filter(None, (given.folder, given.before)):
        if not place.exists():
            parser.error(f"{place} does not exist; --fetch prints the commands that download the files")
    before = json.loads(given.before.read_text("utf-8"))["data"] if given.before else None
    results: dict[str, Any] = {}
    with given.rows.open("w", encoding="utf-8") if given.rows else nullcontext() as found:
        for name, data in chosen.items():
            try:
                rows = data.read(given.folder)
            except ValueError as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
                continue
            verifier = make_verifier(data.verifier)
            pool = isolate(verifier)
            try:
                results[name] = judge(name, verifier, rows, found, pool)
            finally:
                (pool or verifier).close()
            print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
    if given.json:
        told = {"date": datetime.date.today().isoformat(), "data": results}
        given.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(table(results, before))


if __name__ == "__main__":
    main()
