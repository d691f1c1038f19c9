"""`pytest tests/museum --score` ends with a table of the planted bugs: which test caught each, and how long it took."""

import pytest


def pytest_addoption(parser):
    parser.addoption("--score", action="store_true", help="show which planted bugs were caught, and by which test")


@pytest.fixture(autouse=True)
def _entry(request, record_property):
    if marker := request.node.get_closest_marker("bug"):
        title = request.function.__name__.removeprefix("test_").replace("_", " ")
        record_property("bug", (title, marker.kwargs["reference"], marker.kwargs["caught_by"]))


def pytest_terminal_summary(terminalreporter, config):
    if not config.getoption("--score", default=False):
        return
    entries = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            if report.when == "call" and (bug := dict(report.user_properties).get("bug")):
                seconds, caught = entries.get(bug, (0.0, True))
                entries[bug] = (seconds + report.duration, caught and report.passed)
    lines = [
        (title, reference, test, f"{seconds:.2f}", "yes" if caught else "NO")
        for (title, reference, test), (seconds, caught) in entries.items()
    ]
    lines.insert(0, ("what goes wrong", "reference", "caught by", "s", "caught"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        terminalreporter.line("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    total, caught = sum(s for s, _ in entries.values()), sum(caught for _, caught in entries.values())
    terminalreporter.line(f"{caught} of {len(entries)} caught in {total:.0f} s")
