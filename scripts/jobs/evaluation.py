"""`rlenv evaluate` from its options to its figures; of text, also to a file of all completions, one JSON line each."""

from __future__ import annotations

import hashlib
import json
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import torch

from rlenv._checks import in_one_line
from rlenv.agents import Rollout, SampledPolicy, processes
from rlenv.agents.training.evaluation import evaluate as evaluate_policy
from rlenv.task import TextGenTask
from rlenv.tasks import find_lm_eval
from rlenv.verifiers import Problem, Verifier
from rlenv.verifiers.base import describe as fault_in
from rlenv.verifiers.base import extracted
from rlenv.version import __version__

from ..config.options import is_text, with_task
from ..config.other_configs import EvaluateConfig
from ..process.progress import counting, progress_bar, say
from ..process.torchrun import meet
from ..reports.evaluation_figures import describe, table
from ..reports.problem_figures import of_attempts, with_intervals
from ..reports.rules import EVAL_EPISODES, MOST_CUT
from ..run.folder import check_place, content_of, write_json, write_text
from ..run.samples import Row, outcome_rows, show_samples
from . import session
from .from_python import job
from .subject import Subject, find

MORE = ("success_interval", "truncated_share", "sampled", "completions")  # beside those of `Agent.evaluate`


@job
def evaluate(config: EvaluateConfig, print_samples: bool = False) -> dict[str, dict[str, Any]]:
    """Return the figures of runs, checkpoints and models by name, as `rlenv evaluate` does; of text, with completions.

    Args:
        config: of the evaluation, with its `runs`.
        print_samples: whether to print the first completions on stderr.

    Raises:
        ValueError: for a config that is wrong, in one line.
    """
    if config.lm_eval and config.task is not None:
        name, metric, *_ = find_lm_eval(config.task)
        say(f"prompts are those of lm-eval's {name} without examples; success is nearest to its {metric}")
    config = with_task(config)
    if not config.runs:
        raise ValueError("runs is empty: name a run folder, a checkpoint or a model")
    if wrong := [run for run in config.runs if not isinstance(run, (str, Path))]:
        raise ValueError(f"runs must be folders or names, got {in_one_line(wrong[0])}; name its folder: run.folder")
    if config.out is not None and len(config.runs) > 1:
        raise ValueError(
            f"--out is one file, but there are {len(config.runs)} runs; leave it out, and each gets its own"
        )
    config = config.but(device=meet(config.device, config.process_timeout))
    for run in config.runs[1:]:  # a wrong name is said before hours of work; in its turn a run may have newer weights
        find(Path(run), config)
    results = {str(run): _figures_of(Path(run), config, print_samples) for run in dict.fromkeys(config.runs)}
    for name, figures in results.items():
        if why := figures.get("failure"):
            episodes = f"{figures['failed']} episode{'s' * (figures['failed'] > 1)}"
            say(f"{name}: {episodes} without a verdict, the last reason: {why}")
        if figures.get("truncated_share", 0.0) > MOST_CUT:
            say(f"{name}: {figures['truncated_share']:.0%} of the answers are cut off; raise --max-new-tokens")
    return results


def show(results: Mapping[str, dict[str, Any]], config: EvaluateConfig) -> None:
    """Print the figures."""
    figures = next(iter(results.values()))
    if config.as_json:
        short = {name: value for name, value in figures.items() if config.samples or name not in MORE}
        click.echo(json.dumps(results if len(results) > 1 else short))
    else:
        several = len(results) > 1 or config.samples
        click.echo(table(results) if several else describe(figures))


def _figures_of(run: Path, config: EvaluateConfig, print_samples: bool) -> dict[str, Any]:
    """Return the figures of a run or model; of text, write all completions, too, and print some."""
    subject = find(run, config)
    text, seed, samples = is_text(subject.env_id), config.seed, config.samples
    split = config.split if text else None
    _check(text, subject.env_id, config)
    with processes.alone():  # the updates of the agent may not be for so many processes
        policy, device, env = subject.load(config)
    processes.check_equal(content_of(subject.path), "checkpoint", session.SAME_FILES)
    env_kwargs = subject.env_kwargs
    count = config.episodes or (200 if samples else EVAL_EPISODES if text else session.CONTROL_EPISODES)
    if text:
        policy, task = SampledPolicy(policy, config.temperature, config.top_p), session.task_of(env)
        session.check_problems(task)
        count = min(count, len(task.stream.listed) or count)  # a greedy answer is the same the second time
        settings = _settings(subject, config) | {"device": device.type, "problems": count}
        path = processes.on_main(lambda: _file(subject, config, settings))
        env_kwargs = env_kwargs | {"tokenizer": task.encoding.tokenizer}
    env.close()
    session.check_dealt_out(count, split, "raise --episodes, add problems")

    def played(greedy: bool, samples: int | None = None) -> tuple[dict[str, Any], list[Row]]:
        each, unit = samples or 1, "tokens" if text else "steps"
        total = count * each
        envs = session.evaluation_envs(subject.env_id, env_kwargs, device, total, split, each)
        with closing(envs), progress_bar("evaluate" if greedy else "sample", total) as show:
            on_step, generator = counting(show, total, unit), torch.Generator(device)
            figures, rollout = evaluate_policy(policy, envs, total, greedy, seed, generator, on_step)
            if not text:
                return figures, []
            posed = session.task_of(envs)
            rows, equal = _rows(posed, rollout, greedy, each), posed.stream.first_equals(count)
        figures = with_intervals(figures | {"problems": len({*equal})}, rows, equal, seed)
        return figures if samples is None else figures | of_attempts(rows, samples, equal, seed), rows

    figures, rows = played(config.deterministic)
    figures["split"] = split
    if not text:
        return figures
    if processes.is_main() and print_samples:
        show_samples(rows[:10], split)
    if samples:
        sampled, more = played(False, samples)
        how = {"samples": samples, "temperature": policy.temperature, "top_p": config.top_p}
        figures["sampled"] = how | sampled
        rows += more
    if processes.is_main():
        write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        write_json(path.with_suffix(".json"), {"settings": settings, "figures": figures})
    return figures | {"completions": str(path)}


def _check(text: bool, env_id: str, config: EvaluateConfig) -> None:
    """Check the options that say how actions are chosen.

    Raises:
        ValueError: for one that has no meaning or no effect.
    """
    for name in ("samples", "temperature", "top_p", "out"):
        if name in config.chosen and not text:
            raise ValueError(f"{config.flag(name)} has no meaning for {env_id}")
    if not config.deterministic and config.samples:
        raise ValueError("--stochastic takes one sample per problem, --samples N takes N; pass one of the two")
    for name in ("temperature", "top_p"):
        if config.deterministic and not config.samples and name in config.chosen:
            raise ValueError(f"{config.flag(name)} has no effect on greedy completions; add --samples N")


def _settings(subject: Subject, config: EvaluateConfig) -> dict[str, Any]:
    """Return the settings that decide the figures of an evaluation of text."""
    return {
        "version": __version__,
        "subject": subject.path.name.lstrip("."),
        "content": content_of(subject.path),
        "policy_kwargs": subject.model_args(config),
        "env_kwargs": subject.env_kwargs,
        **{
            name: getattr(config, name)
            for name in ("split", "seed", "deterministic", "samples", "temperature", "top_p")
        },
    }


def _rows(task: TextGenTask, rollout: Rollout, greedy: bool, samples: int) -> list[Row]:
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
            "extracted": _extracted(task.verifier, problem, outcome["completion"]),
            "tokens": lengths[i],
            "level": None if levels is None or levels[i].isnan() else int(levels[i]),
        }
        rows.append(row | ({"turns": len(row["dialogue"])} if "dialogue" in row else {}))
    return rows


def _extracted(verifier: Verifier, problem: Problem, completion: str) -> str | None:
    """Return the answer that a completion gives; None, and a warning, if the verifier fails to read it."""
    try:
        return extracted(verifier, problem, completion)
    except Exception as error:  # whatever a plugin raises
        warnings.warn(f"extract failed, so majority votes count no answer: {fault_in(error)}", stacklevel=2)
        return None


def _file(subject: Subject, config: EvaluateConfig, settings: Mapping[str, Any]) -> Path:
    """Return the path of an evaluation's file, after making its folder: --out, or one that these settings name.

    Raises:
        ValueError: if --out exists or has another suffix than .jsonl, or a part of its path is a file.
        OSError: if it cannot be written.
    """
    out = config.out
    if out is not None and out.suffix != ".jsonl":
        raise ValueError(f"--out {str(out)!r} must end in .jsonl; settings and figures go into a .json file beside it")
    if out is not None and out.exists() and not config.overwrite:
        raise ValueError(f"--out {str(out)!r} exists; pass --overwrite to replace it")
    how = [
        "greedy" if config.deterministic else "sampled",
        f"{config.samples}x" if config.samples else "",
        f"t{config.temperature:g}" if config.temperature else "",
        f"p{config.top_p:g}" if config.top_p != 1 else "",
    ]
    digest = hashlib.blake2b(json.dumps(settings, default=str, sort_keys=True).encode(), digest_size=4).hexdigest()
    name = "-".join([settings["subject"], config.split, *filter(None, how), digest])
    path = out or subject.home / f"{name}.jsonl"
    check_place(path.parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=path.parent).close()  # a folder that cannot be written is an error before the work
    return path
