"""The page of a report: everything that is in it, and how it is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlenv._json import read_table

from ..config.names import short_name
from ..config.options import TEXT_ONLY
from ..run.folder import CHECKPOINT, write_text
from .charts import charts_of
from .collect import Kind, kinds_of, read_runs, shown_value, stop_of, world_of
from .history import History, Row
from .rules import Finding, findings_of
from .statistics import outcome_of
from .templates import render

MARK = '<meta name="generator" content="rlenv report">'  # such a file may be replaced
HELD_OUT = 8  # problems shown before and after
MOST_TOKENS, MOST_CHARACTERS = 400, 1500  # of a completion and of a prompt are shown
STRONGEST = 75  # percent of the strongest shade


def write_report(paths: Sequence[Path], out: Path) -> dict[str, Any]:
    """Write the page about the runs in these folders; return how much is in it.

    Raises:
        ValueError: as `read_runs` says, or if `out` is not a report, or its folder is missing.
    """
    if not out.parent.is_dir():
        raise ValueError(f"--out {str(out)!r}: there is no folder {str(out.parent)!r}; make it, or name another file")
    if out.is_dir() or (out.exists() and MARK not in out.read_text(encoding="utf-8", errors="replace")[:2000]):
        raise ValueError(f"{str(out)!r} is not a report of rlenv; it is not overwritten: name another file with --out")
    runs = read_runs(paths)
    kinds = kinds_of(runs)
    findings = [(run, each) for run in runs for each in findings_of(run)]
    evaluations = [each for run in runs for name in ("initial_eval", "eval") if (each := run.result.get(name))]
    with_success = evaluations and all(each.get("success_rate") is not None for each in evaluations)
    figure, text = "success_rate" if with_success else "mean_reward", runs[0].is_text
    page = render(
        "page.html",
        title=_title(runs),
        runs=[(run.folder, stop_of(run)) for run in runs],
        kinds=kinds,
        text=text,
        figure=figure,
        outcomes=[_outcome(kind, figure) for kind in kinds],
        problems=_problems(evaluations),
        charts=charts_of(kinds),
        advice=_advice(runs, findings),
        held_out=held_out_cards(kinds) if text else [],
        training=[(kind.label, training_cards(kind)) for kind in kinds if text],
        settings=_settings(kinds),
        most_tokens=MOST_TOKENS,
        paths=[str(path) for path in paths],
    )
    write_text(out, page)
    return {"report": str(out), "runs": len(runs), "kinds": len(kinds), "findings": len(findings)}


def _title(runs: Sequence[History]) -> str:
    agents = {short_name(run.config["agent"]) for run in runs}
    who = agents.pop() if len(agents) == 1 else f"{len(agents)} agents"
    models = {str(run.config.get("model")) for run in runs if run.is_text}
    if len(models) == 1 and not models & {"None", "auto"}:
        who += f", {Path(models.pop()).name},"
    return f"{who} on {world_of(runs[0])}" + (f", {len(runs)} runs" if len(runs) > 1 else "")


def _outcome(kind: Kind, figure: str) -> dict[str, Any]:
    """Return the row of a kind in the table of results: its runs' figures before and after training."""
    ended = [str(run.result["eval"]["episodes"]) for run in kind.runs if run.result.get("eval")]
    row = {"label": kind.label, "seeds": _seeds(kind), "evaluated": len(ended), "episodes": ", ".join(sorted({*ended}))}
    return row | outcome_of([run.result for run in kind.runs], figure)


def _seeds(kind: Kind) -> str:
    return ", ".join(str(run.config.get("seed")) for run in kind.runs)


def _problems(evaluations: Sequence[Row]) -> str:
    """Return of how many problems the evaluations are, such as "4 held-out problems"; empty if they do not say."""
    counts = sorted({each["problems"] for each in evaluations if "problems" in each})
    if not counts:
        return ""
    count = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    kind = "training" if evaluations[0]["split"] == "train" else "held-out"
    return f"{count} {kind} problem{'s' * (count != '1')}"


def _advice(runs: Sequence[History], findings: Iterable[tuple[History, Finding]]) -> list[tuple[Finding, str]]:
    """Return the findings, errors first, each with the runs that it is about; one that several share is there once."""
    by_rule: dict[str, list[tuple[History, Finding]]] = {}
    for run, finding in findings:
        by_rule.setdefault(finding.rule, []).append((run, finding))
    where = "{} of {} runs, such as {}" if len(runs) > 1 else ""
    advice = [(own[0][1], where.format(len(own), len(runs), own[0][0].folder)) for own in by_rule.values()]
    return sorted(advice, key=lambda each: each[0].severity)


def _settings(kinds: Sequence[Kind]) -> list[tuple[str, list[str], bool]]:
    """Return name, values by kind and whether these differ, of all options and settings; differing ones first."""
    tables, hidden = [], set() if kinds[0].runs[0].is_text else TEXT_ONLY
    for kind in kinds:
        first = kind.runs[0]
        facts = first.folder / CHECKPOINT / "agent.json" if first.folder else None
        settings = read_table(facts).get("settings", {}) if facts and facts.is_file() else {}
        chosen = {name: value for name, value in first.config.items() if value is not None}
        both = {**dict.fromkeys(first.config), **settings, **chosen, "seed": _seeds(kind)}
        tables.append({name: shown_value(value) for name, value in both.items() if name not in hidden})
    rows = [(name, [table.get(name, "default") for table in tables]) for name in sorted(set().union(*tables))]
    return sorted(((name, values, len({*values}) > 1) for name, values in rows), key=lambda row: not row[2])


def held_out_cards(kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    """Return problems of the evaluations, each with the completions before and after training, by kind.

    Kinds that start from one model have one answer before training.
    """
    shown, starts = [], set[Any]()
    for kind in kinds:
        model = kind.runs[0].config.get("model")
        for row in _rows_of(kind, "evaluation"):
            if row["when"] != "before" or model not in starts:
                shown.append(_sample(row, row["when"] if len(kinds) == 1 else f"{row['when']}, {kind.label}"))
        starts.add(model)
    return _cards(shown)[:HELD_OUT]


def training_cards(kind: Kind) -> list[tuple[int, list[dict[str, Any]]]]:
    """Return the first and the last update of which episodes were kept, each with its episodes by prompt."""
    rows = _rows_of(kind, "training")
    updates = list(dict.fromkeys(row["updates"] for row in rows))
    cards = []
    for update in dict.fromkeys([*updates[:1], *updates[-1:]]):
        own = [row for row in rows if row["updates"] == update]
        credits = [abs(credit or 0.0) for row in own for credit in (row["advantages"] or ())[:MOST_TOKENS]]
        cards.append((update, _cards(_sample(row, scale=max(credits, default=0.0)) for row in own)))
    return cards


def _sample(row: Row, name: str = "", scale: float | None = None) -> dict[str, Any]:
    return {"row": row, "name": name, "tokens": tokens_of(row, scale)}


def _cards(samples: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return prompt, reference answer and samples of each problem."""
    cards: dict[tuple[str, str], dict[str, Any]] = {}
    for sample in samples:
        texts = sample["row"]["prompt"], sample["row"]["answer"] or ""
        prompt, answer = map(shortened, texts)
        cards.setdefault(texts, {"prompt": prompt, "answer": answer, "samples": []})["samples"].append(sample)
    return list(cards.values())


def _rows_of(kind: Kind, what: str) -> list[Row]:
    """Return the samples of the first run of a kind that has any."""
    return next((rows for run in kind.runs if (rows := [row for row in run.samples if row["kind"] == what])), [])


@dataclass(frozen=True)
class Token:
    """A token as it is shown, or a reply of the environment.

    Attributes:
        text: of the token; a line break is visible.
        title: its figures, to read on hovering.
        shade: "doubt" for an unlikely token, "up" or "down" for its credit; "reply" for a reply.
        percent: how strong the shade is.
    """

    text: str
    title: str
    shade: str
    percent: int = 0


def shortened(text: str) -> str:
    """Return a prompt; of a very long one, its beginning and its end."""
    half = MOST_CHARACTERS // 2
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters ...]\n{text[-half:]}"


def tokens_of(row: Row, scale: float | None = None) -> list[Token]:
    """Return the tokens of an episode, and after each turn but the last its reply and its reward.

    Args:
        row: of samples.jsonl.
        scale: the advantage with the strongest shade; None to shade by probability.
    """
    credit = row["advantages"] or [None] * len(row["texts"])
    each = list(zip(row["texts"], row["log_probs"], credit, strict=True))
    return list(_with_replies([_token(*one, scale) for one in each[:MOST_TOKENS]], row.get("dialogue", ())))


def _with_replies(tokens: Sequence[Token], turns: Sequence[Row]) -> Iterator[Token]:
    begin = 0
    for turn in turns[:-1]:
        end = begin + turn["tokens"]
        if end > len(tokens):
            break  # the rest is left out
        yield from tokens[begin:end]
        paid = f" ({turn['reward']:+g})" if turn["reward"] else ""
        yield Token(f"{turn['reply'].strip() or '·'}{paid}", "reply of the environment", "reply")
        begin = end
    yield from tokens[begin:]


def _token(text: str, log_prob: float | None, credit: float | None, scale: float | None) -> Token:
    probability = 0.0 if log_prob is None else math.exp(min(log_prob, 0.0))
    title = "not finite" if log_prob is None else f"probability {100 * probability:.3g} %"
    shade, strength = "doubt", 1.0 - probability
    if scale is not None:
        shade, strength = "down" if (credit or 0.0) < 0 else "up", abs(credit or 0.0) / (scale or 1.0)
    shown = text.replace("\n", "⏎\n") or "·"  # a part of a character
    title += "" if credit is None else f", credit {credit:+.2f}"
    return Token(shown, title, shade, round(STRONGEST * strength))
