"""rlenv evaluate: measure runs, checkpoints and models."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command import Command
from .options import COUNT, common, processes, text
from .parameters import KeyValue, flag_of, given_by_user, group, option

if TYPE_CHECKING:
    from .subject import Subject

MORE = ("success_interval", "truncated_share", "problems", "sampled", "completions")  # beside those of `Agent.evaluate`

of_a_policy = group(  # that is evaluated, or played with
    "Options",
    option("--split", str, "Split of the problems: train, test. Text only.", "test"),
    option("--deterministic/--stochastic", bool, "Take the likeliest action, or draw one.", True),
    option(
        "--temperature",
        float,
        "Of the probabilities that are drawn with; the policy itself keeps its own. Text only.",
        shown="of the training; 1 for a model",
    ),
    option("--top-p", float, "Draw from the likeliest tokens of this probability.", 1.0),
    option("--policy-arg policy_args", KeyValue(), "Argument of a model, such as dtype=bfloat16.", multiple=True),
    option("--trust", bool, "Import the modules of yours that the checkpoint names; this runs their code.", False),
)


@click.command(
    cls=Command,
    examples={
        "rlenv evaluate runs/NAME": "Greedy success on the held-out problems of a run",
        "rlenv evaluate runs/A runs/B --samples 16": "Two runs side by side, with pass@k and maj@k",
        "rlenv evaluate runs/NAME --problems other.csv --json": "The same model on other problems",
        "rlenv evaluate FOLDER_OR_ID --verifier numeric --problems FILE": "Any language model",
    },
    often={
        "What is asked": ("verifier", "problems", "column_args", "split", "episodes"),
        "How it answers": ("samples", "temperature", "chat", "max_new_tokens"),
        "What comes of it": ("out", "as_json", "trust"),
        "The run": ("config", "seed", "device"),
    },
)
@click.argument("runs", type=click.Path(path_type=Path), nargs=-1, required=True)
@group(
    "Evaluation",
    option(
        "--episodes",
        COUNT,
        "Episodes to play; for text: problems.",
        shown="2000 for text (200 problems with --samples), 100 for control",
    ),
    option("--samples", click.IntRange(1, 1000), "Also sample so many completions per problem, for pass@k and maj@k."),
    option("--out", click.Path(dir_okay=False, path_type=Path), "Of all completions.", shown="RUN/evaluations/..."),
)
@click.option("--overwrite", is_flag=True, help="Replace the file of --out.")
@of_a_policy
@text.without("temperature", "curriculum", "prompt_choice")
@processes
@common
def evaluate(runs: tuple[Path, ...], **given: Any) -> None:
    """Evaluate RUNS: run folders, checkpoints, or with --verifier any language model (a folder or id).

    A run is evaluated on the problems it was trained for. The options from --verifier to --max-context-tokens replace
    what it says about them; their defaults are those for a model.
    """
    from . import session
    from .evaluation_figures import table
    from .progress import say
    from .reports.rules import MOST_CUT
    from .torchrun import join

    if given["out"] is not None and len(runs) > 1:
        raise ValueError(f"--out is one file, but there are {len(runs)} runs; leave it out, and each gets its own")
    given["device"] = join(given["device"], given["process_timeout"])
    results = {str(run): _figures_of(run, given) for run in dict.fromkeys(runs)}
    for name, found in results.items():
        if found.get("truncated_share", 0.0) > MOST_CUT:
            say(f"{name}: {found['truncated_share']:.0%} of the answers are cut off; raise --max-new-tokens")
    figures = next(iter(results.values()))
    if given["as_json"]:
        short = {name: value for name, value in figures.items() if given["samples"] or name not in MORE}
        click.echo(json.dumps(results if len(runs) > 1 else short))
    else:
        click.echo(table(results) if len(runs) > 1 or given["samples"] else session.describe(figures))


def _figures_of(run: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a run or model; of text, write all completions, too, and print some."""
    import torch

    from agents import SampledPolicy, processes
    from agents.checks import check_count
    from agents.training.evaluation import evaluate as play
    from verifiers.conversation import text_of

    from . import session
    from .evaluation import completion_rows, file_of, write
    from .evaluation_figures import of_attempts, with_intervals
    from .progress import progress_bar
    from .run import said
    from .settings import is_text
    from .subject import content_of, find

    subject = find(run, given)
    text, seed, samples, split = is_text(subject.env_id), given["seed"], given["samples"], given["split"]
    _check(text, subject.env_id, given)
    with processes.alone():  # the updates of the agent may not be for so many processes
        loaded = subject.load(given)
    processes.check_equal(str(content_of(subject.path)))
    policy, env_kwargs = loaded.policy, subject.env_kwargs
    count = given["episodes"] or (200 if samples else session.evaluation_episodes(text))
    if text:
        policy, task = SampledPolicy(policy, given["temperature"], given["top_p"]), session.task_of(loaded.env)
        count = min(count, len(task.stream.listed) or count)  # the same problem twice would narrow the intervals
        settings = _settings(subject, given) | {"device": loaded.device.type, "problems": count}
        path = processes.on_main(lambda: file_of(given["out"], subject.home, settings, given["overwrite"]))
        env_kwargs = env_kwargs | {"tokenizer": task.tokenizer}
    loaded.env.close()
    check_count("episodes", count, low=processes.size())

    def played(greedy: bool, samples: int = 1) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        total, unit = count * samples, "tokens" if text else "steps"
        envs = session.evaluation_envs(subject.env_id, env_kwargs, loaded.device, total, split, samples)
        with closing(envs), progress_bar("evaluate" if greedy else "sample", total) as show:
            on_step, generator = session.counting(show, total, unit), torch.Generator(loaded.device)
            figures, rollout = play(policy, envs, total, greedy, seed, generator, on_step)
            rows = completion_rows(session.task_of(envs), rollout, greedy, samples) if text else []
        return with_intervals(figures, rows, seed) if text else figures, rows

    figures, rows = played(given["deterministic"])
    figures["split"] = split if text else None
    if not text:
        return figures
    figures["problems"] = count
    if processes.is_main() and not given["as_json"]:
        session.print_samples([(text_of(row["prompt"]), said(row), row["reward"]) for row in rows[:10]], split)
    if samples:
        sampled, more = played(False, samples)
        how = {"samples": samples, "temperature": policy.temperature, "top_p": given["top_p"]}
        figures["sampled"] = how | sampled | of_attempts(more, samples, seed)
        rows += more
    processes.on_main(lambda: write(path, rows, settings, figures))
    return figures | {"completions": str(path)}


def _check(text: bool, env_id: str, given: dict[str, Any]) -> None:
    """Check the options that say how actions are chosen.

    Raises:
        ValueError: for one that has no meaning or no effect.
    """
    for name in ("samples", "temperature", "top_p", "out"):
        if given_by_user(name) and not text:
            raise ValueError(f"{flag_of(name)} has no meaning for {env_id}")
    if given_by_user("activation_checkpointing"):
        raise ValueError("--activation-checkpointing has no effect without training; leave it out")
    if not given["deterministic"] and given["samples"]:
        raise ValueError("--stochastic takes one sample per problem, --samples N takes N; pass one of the two")
    for name in ("temperature", "top_p"):
        if given["deterministic"] and not given["samples"] and given_by_user(name):
            raise ValueError(f"{flag_of(name)} has no effect on greedy completions; add --samples N")


def _settings(subject: Subject, given: dict[str, Any]) -> dict[str, Any]:
    """Return what decides what an evaluation of text finds."""
    from rlenv.version import __version__

    from .subject import content_of, policy_arguments

    return {
        "version": __version__,
        "subject": subject.path.name.lstrip("."),
        "content": content_of(subject.path),
        "policy_args": policy_arguments(given),
        "env_kwargs": subject.env_kwargs,
        **{name: given[name] for name in ("split", "seed", "deterministic", "samples", "temperature", "top_p")},
    }
