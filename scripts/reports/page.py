"""The page of a report: everything that is in it, and how it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from rlenv.version import __version__

from ..agent_names import label
from ..options import TEXT_ONLY
from ..run import write_text
from .charts import charts_of
from .collect import Kind, Run, kinds_of, read_runs, shown_value
from .rules import Finding
from .statistics import interquartile_mean
from .stops import stops_of
from .tokens import held_out_cards, training_cards, visible

NAME = "report.html"
MARK = '<meta name="generator" content="rlenv report">'  # such a file may be replaced


@dataclass(frozen=True)
class Outcome:
    """A row of the table of results: what the runs of a kind reached."""

    label: str
    runs: int
    before: str
    after: str
    episodes: str
    worst_best: str
    updates: str
    steps: str
    seconds: str


@dataclass(frozen=True)
class Advice:
    """A finding of the doctor, with how many of the runs it is about."""

    finding: Finding
    where: str


def write_report(paths: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write the page about the runs in these folders; return how much is in it.

    Raises:
        ValueError: as `read_runs` says, or if `out` is another file than a report.
    """
    check_target(out)
    runs = read_runs(paths)
    kinds = kinds_of(runs)
    page = render(runs, kinds, [str(path) for path in paths])
    write_text(out, page)
    findings = sum(len(run.findings) for run in runs)
    return {"report": str(out), "runs": len(runs), "kinds": len(kinds), "findings": findings}


def check_target(out: Path) -> None:
    """Check that a report may be written here.

    Raises:
        ValueError: if there is a folder or another file, or its folder does not exist.
    """
    if not out.parent.is_dir():
        raise ValueError(f"--out {str(out)!r}: there is no folder {str(out.parent)!r}; make it, or name another file")
    if out.is_dir() or (out.exists() and MARK not in out.read_text(encoding="utf-8", errors="replace")[:2000]):
        raise ValueError(f"{str(out)!r} is not a report of rlenv; it is not overwritten: name another file with --out")


def render(runs: Sequence[Run], kinds: Sequence[Kind], paths: Sequence[str]) -> str:
    """Return the page. All that comes from runs is data: jinja2 escapes it, and `visible` shows its control characters.

    Args:
        runs: all of them.
        kinds: of the runs.
        paths: as given, for the command that makes the page again.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__name__.rsplit(".", 1)[0], "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["visible"] = visible
    first = runs[0]
    figure = _figure(runs)
    return environment.get_template("page.html").render(
        title=_title(runs, kinds),
        world=first.world,
        runs=runs,
        kinds=kinds,
        figure=figure.replace("_", " "),
        outcomes=[_outcome(kind, figure) for kind in kinds],
        stops=stops_of(runs),
        charts=charts_of(kinds),
        advice=_advice(runs),
        held_out=held_out_cards(kinds) if first.is_text else [],
        training=[(kind.label, training_cards(kind)) for kind in kinds if first.is_text],
        settings=_settings(kinds),
        paths=paths,
        version=__version__,
    )


def _title(runs: Sequence[Run], kinds: Sequence[Kind]) -> str:
    agents = list(dict.fromkeys(label(run.config["agent"]) for run in runs))
    who = agents[0] if len(agents) == 1 else f"{len(agents)} agents"
    models = {str(run.config.get("model")) for run in runs if run.is_text}
    if len(models) == 1 and not models & {"None", "auto"}:
        who += f", {Path(models.pop()).name},"
    return f"{who} on {runs[0].world}" + (f", {len(runs)} runs" if len(runs) > 1 else "")


def _figure(runs: Sequence[Run]) -> str:
    """Return what the runs are compared by."""
    evaluations = [run.result.get("eval") or run.result.get("initial_eval") or {} for run in runs]
    judged = [each for each in evaluations if each]
    with_success = judged and all(each.get("success_rate") is not None for each in judged)
    return "success_rate" if with_success else "mean_reward"


def _outcome(kind: Kind, figure: str) -> Outcome:
    results = [run.result for run in kind.runs]
    before = [each["initial_eval"][figure] for each in results if each.get("initial_eval")]
    after = [each["eval"][figure] for each in results if each.get("eval")]

    def shown(value: float) -> str:
        return f"{100 * value:.0f} %" if figure == "success_rate" else f"{value:.4g}"

    def middle(name: str, digits: str = ",.0f") -> str:
        values = [each[name] for each in results if each.get(name) is not None]
        return format(median(values), digits) if values else "–"

    return Outcome(
        kind.label,
        len(kind.runs),
        shown(mean(before)) if before else "–",
        shown(float(interquartile_mean(after))) if after else "–",
        ", ".join(sorted({str(each["eval"]["episodes"]) for each in results if each.get("eval")})),
        f"{shown(min(after))} to {shown(max(after))}" if len(after) > 1 else "",
        middle("updates"),
        middle("timesteps"),
        middle("seconds", ",.1f"),
    )


def _advice(runs: Sequence[Run]) -> list[Advice]:
    """Return the findings, errors first; one that several runs share is there once."""
    found: dict[str, list[tuple[Run, Finding]]] = {}
    for run in runs:
        for finding in run.findings:
            found.setdefault(finding.rule, []).append((run, finding))
    advice = []
    for own in found.values():
        folders = list(dict.fromkeys(str(run.folder) for run, _ in own))
        where = "" if len(runs) == 1 else f"{len(folders)} of {len(runs)} runs, such as {folders[0]}"
        advice.append(Advice(own[0][1], where))
    return sorted(advice, key=lambda each: each.finding.severity)


def _settings(kinds: Sequence[Kind]) -> list[tuple[str, list[str], bool]]:
    """Return name, values by kind and whether these differ, of all options and settings; what differs first."""
    tables = []
    for kind in kinds:
        first = kind.runs[0]
        table = {**first.settings, **first.config}
        table |= {name: value for name, value in first.settings.items() if table.get(name) is None}
        seeds = [run.config.get("seed") for run in kind.runs]
        tables.append(
            {name: shown_value(value) for name, value in table.items()} | {"seed": ", ".join(map(str, seeds))}
        )
    hidden = set() if kinds[0].runs[0].is_text else TEXT_ONLY
    names = sorted({name for table in tables for name in table} - {*hidden})
    rows = [(name, [table.get(name, "default") for table in tables]) for name in names]
    return sorted(((name, values, len({*values}) > 1) for name, values in rows), key=lambda row: not row[2])
