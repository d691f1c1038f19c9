"""`pytest tests/museum --score` ends with a table of the planted bugs: which test caught each, and how long it took."""

from pathlib import Path

import pytest
from museum import entry_of

SAMPLE = 10


def pytest_addoption(parser):
    parser.addoption("--score", action="store_true", help="show which planted bugs were caught, and by which test")


def pytest_collection_modifyitems(config, items):
    """Of a whole suite without --score, run a sample of the museum: every bug's own test is in the suite anyway."""
    entries = [item for item in items if Path(__file__).parent in item.path.parents and entry_of(item.function)]
    if config.getoption("--score") or len(items) == len(entries) or len(entries) <= SAMPLE:
        return
    left_out = set(entries) - set(entries[:: len(entries) // SAMPLE])
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(autouse=True)
def _entry(request, record_property):
    if entry := entry_of(request.function):
        first, *more = entry.reference.split(", ")
        reference = f"{first}, ..." if more else first
        record_property("bug", (entry.name, reference, entry.caught_by))


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--score", default=False):
        return
    entries = {}  # a test with parameters is one entry
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if report.when == "call" and (bug := dict(report.user_properties).get("bug")):
                seconds, caught = entries.get(tuple(bug), (0.0, True))
                entries[tuple(bug)] = (seconds + report.duration, caught and report.passed)
    lines = [("caught", "s", "bug", "reference", "caught by")]
    for (name, reference, test), (seconds, caught) in entries.items():
        lines.append(("yes" if caught else "NO", f"{seconds:.2f}", name, reference, test))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        terminalreporter.line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    total, caught = sum(s for s, _ in entries.values()), sum(caught for _, caught in entries.values())
    terminalreporter.line(f"{caught} of {len(entries)} caught in {total:.0f} s")
