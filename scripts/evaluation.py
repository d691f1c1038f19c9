"""The file of an evaluation: every completion as one JSON line, and beside it the settings and the figures."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents import Rollout
from rlenv.task import TextGenTask

from .run import check_place, write_json, write_text
from .samples import Row, outcome_rows


def completion_rows(task: TextGenTask, rollout: Rollout, greedy: bool, samples: int) -> list[Row]:
    """Return the completions of an evaluation as they are written, in the order of problems and samples.

    Args:
        task: that posed each problem so many times.
        rollout: the whole evaluation.
        greedy: whether they are greedy.
        samples: per problem.
    """
    rows = []
    lengths, levels = rollout.lengths.tolist(), rollout.extras.get("level")
    for i, outcome in enumerate(outcome_rows(task, rollout)):
        number, sample = divmod(i, samples)
        problem = task.stream[number]
        row = outcome | {
            "problem": number,
            "mode": "greedy" if greedy else "sampled",
            "sample": sample,
            "prompt": problem.prompt,
            "extracted": task.verifier.extract(problem, outcome["completion"]),
            "tokens": lengths[i],
            "level": None if levels is None or levels[i].isnan() else int(levels[i]),
        }
        rows.append(row | ({"turns": len(row["dialogue"])} if "dialogue" in row else {}))
    return rows


def file_of(out: Path | None, home: Path, settings: Mapping[str, Any], overwrite: bool) -> Path:
    """Return the path of an evaluation's file, whose folder is made.

    Args:
        out: the user's choice; None for a file in `home`, which replaces one of the same settings.
        home: the folder of the evaluations of a run.
        settings: of the evaluation.
        overwrite: whether `out` may be replaced.

    Raises:
        ValueError: if there is no place for the file.
        OSError: if it cannot be written.
    """
    if out is not None and out.suffix != ".jsonl":
        raise ValueError(f"--out {str(out)!r} must end in .jsonl; settings and figures go into a .json file beside it")
    if out is not None and out.exists() and not overwrite:
        raise ValueError(f"--out {str(out)!r} exists; pass --overwrite to replace it")
    how = [
        "greedy" if settings["deterministic"] else "sampled",
        settings["samples"] and f"{settings['samples']}x",
        settings["temperature"] and f"t{settings['temperature']:g}",
        settings["top_p"] != 1 and f"p{settings['top_p']:g}",
    ]
    digest = hashlib.blake2b(json.dumps(settings, default=str, sort_keys=True).encode(), digest_size=4).hexdigest()
    name = "-".join([settings["subject"], settings["split"], *filter(None, how), digest])
    path = out or home / f"{name}.jsonl"
    check_place(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=path.parent).close()  # a folder that cannot be written is an error before the work
    return path


def write(path: Path, rows: Sequence[Row], settings: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
    """Write the completions, and beside them, in a .json file, the settings and the figures."""
    write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write_json(path.with_suffix(".json"), {"settings": settings, "figures": figures})
