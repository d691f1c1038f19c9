"""rlenv evaluate: measure runs, checkpoints and models."""

from __future__ import annotations

import json
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .command import Command
from .options import common, processes, text
from .parameters import KeyValue, flag_of, given_by_user, options, without

if TYPE_CHECKING:
    from .completions import CompletionFile
    from .subject import Loaded, Subject

MORE = ("success_interval", "truncated_share", "problems", "sampled", "completions")  # beside those of `Agent.evaluate`

of_a_policy = options(  # that is evaluated, or played with
    click.option("--split", default="test", help="Split of the problems: train, test. Text only."),
    click.option("--deterministic/--stochastic", default=True, help="Take the likeliest action, or draw one."),
    click.option(
        "--temperature", type=float, default=None, show_default="of the training; 1 for a model",
        help="Of the probabilities that are drawn with; the policy itself keeps its own. Text only.",
    ),
    click.option("--top-p", type=float, default=1.0, help="Draw from the likeliest tokens of this probability."),
    click.option(
        "--policy-arg", "policy_args", type=KeyValue(), multiple=True,
        help="Argument of a model, such as dtype=bfloat16.",
    ),
    click.option(
        "--trust", is_flag=True,
        help="Import the agent, environment, verifier or tools that the checkpoint names; this runs their code.",
    ),
)  # fmt: skip


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
@click.option(
    "--episodes",
    type=click.IntRange(min=1),
    default=None,
    show_default="2000 for text (200 problems with --samples), 100 for control",
    help="Episodes to play; for text: problems.",
)
@click.option(
    "--samples",
    type=click.IntRange(1, 1000),
    default=None,
    show_default="greedy only",
    help="Also sample so many completions per problem, for pass@k and maj@k.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    show_default="RUN/evaluations/...",
    help="The .jsonl file of all completions; text only.",
)
@click.option("--overwrite", is_flag=True, help="Evaluate again, whatever has been evaluated before.")
@of_a_policy
@without(text, "temperature", "curriculum", "prompt_choice")
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
    from agents import processes

    from . import session
    from .progress import progress_bar
    from .settings import is_text
    from .subject import find

    subject = find(run, given)
    if is_text(subject.env_id):
        return _on_text(subject, given)
    for name in ("samples", "temperature", "top_p", "out"):
        if given_by_user(name):
            raise ValueError(f"{flag_of(name)} has no meaning for {subject.env_id}")
    loaded = _load(subject, given, processes.gather(subject.content)[0])
    count = given["episodes"] or session.evaluation_episodes(text=False)
    envs = session.evaluation_envs(subject.env_id, subject.env_kwargs, loaded.device, count, given["split"])
    with progress_bar("evaluate", count) as show:
        on_step = session.counting(show, count, "steps")
        return session.run_evaluation(loaded.agent, envs, count, given["seed"], given["deterministic"], on_step)[0]


def _on_text(subject: Subject, given: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a language model: those of an earlier evaluation with the same settings, if any."""
    from agents import processes
    from verifiers.conversation import text_of

    from . import session
    from .completions import opened
    from .progress import say
    from .run import said

    settings = _settings(subject, given)
    how = [
        "greedy" if given["deterministic"] else "sampled",
        given["samples"] and f"{given['samples']}x",
        given["temperature"] and f"t{given['temperature']:g}",
        given["top_p"] != 1 and f"p{given['top_p']:g}",
    ]
    name = "-".join([settings["subject"], given["split"], *filter(None, how)])
    with ExitStack() as stack:  # the main process has the file; the others know what is in it
        file = processes.on_main(
            lambda: stack.enter_context(opened(given["out"], subject.home, name, settings, given["overwrite"]))
        )
        if file.figures is None:
            _play(subject, file, given)
        else:
            say(f"{file.path}: evaluated before, with the same settings; --overwrite evaluates again")
        assert file.figures is not None
        if processes.is_main() and not given["as_json"]:
            rows = [(text_of(row["prompt"]), said(row), row["reward"]) for row in file.rows()[:10]]
            session.print_samples(rows, given["split"])
        return file.figures | {"completions": str(file.path)}


def _settings(subject: Subject, given: dict[str, Any]) -> dict[str, Any]:
    """Return everything that decides what an evaluation finds."""
    from agents.checks import check_number
    from agents.rollouts.envs import resolve_device
    from rlenv.version import __version__

    from .subject import policy_arguments

    if given_by_user("activation_checkpointing"):
        raise ValueError("--activation-checkpointing has no effect without training; leave it out")
    if not given["deterministic"] and given["samples"]:
        raise ValueError("--stochastic takes one sample per problem, --samples N takes N; pass one of the two")
    for name in ("temperature", "top_p"):
        if given["deterministic"] and not given["samples"] and given_by_user(name):
            raise ValueError(f"{flag_of(name)} has no effect on greedy completions; add --samples N")
    if given["temperature"] is not None:
        check_number("temperature", given["temperature"], low=0.0, above=True)
    check_number("top_p", given["top_p"], low=0.0, high=1.0, above=True)
    return {
        "version": __version__,
        "subject": subject.path.name.lstrip("."),
        "content": subject.content,
        "policy_args": policy_arguments(given),
        "problems": subject.problems,
        "device": resolve_device(given["device"], subject.env_id).type,
        **{name: given[name] for name in ("split", "seed", "deterministic", "samples", "temperature", "top_p")},
        "episodes": given["episodes"] or (200 if given["samples"] else 2000),
    }


def _play(subject: Subject, file: CompletionFile, given: dict[str, Any]) -> None:
    """Write the completions that are missing, and the figures."""
    from agents import SampledPolicy, VerifierError, processes

    from . import session
    from .answers import play
    from .completions import blocks
    from .evaluation_figures import summarize
    from .progress import progress_bar, say

    settings = file.settings
    loaded = _load(subject, given, settings["content"])
    problems = settings["episodes"]
    if listed := session.task_of(loaded.env).stream.listed:
        problems = min(problems, len(listed))  # the same problem twice would narrow the intervals
    loaded.env.close()
    modes = {"greedy": 1} if given["deterministic"] else {"sampled": 1}
    modes |= {"sampled": given["samples"]} if given["samples"] else {}
    planned = blocks(modes, problems, processes.size())
    todo = processes.on_main(lambda: file.resume(planned))
    policy = SampledPolicy(loaded.policy, given["temperature"], given["top_p"])
    total = sum(block.lines for block in planned)
    done = total - sum(block.lines for block in todo)
    if done:
        say(f"{file.path}: going on after {done} of {total} completions")

    def envs_for(samples: int) -> Any:
        return subject.envs(loaded, min(problems * samples, session.EVAL_SLOTS), samples)

    failure = ""
    with progress_bar("evaluate", total, done) as show:
        for rows, reason in play(policy, envs_for, todo, given["seed"], show, done):
            processes.on_main(partial(file.add, rows))
            failure = reason or failure

    def conclude() -> dict[str, Any]:
        try:
            return file.finish(summarize(file.rows(), settings | {"temperature": policy.temperature}, failure))
        except VerifierError:
            file.remove()  # nothing to go on from
            raise

    file.figures = processes.on_main(conclude)


def _load(subject: Subject, given: dict[str, Any], content: str) -> Loaded:
    """Return the policy, equal in all processes.

    Args:
        content: that it must have, of `Subject`.

    Raises:
        ValueError: if a run that goes on has replaced its checkpoint meanwhile.
    """
    from agents import processes

    with processes.alone():  # the updates of the agent may not be for so many processes
        loaded = subject.load(given)
    if processes.any_of(subject.content != content):
        raise ValueError(
            f"{subject.spec!r} has been replaced by a later checkpoint while it was read: evaluate again, "
            "or name one that stays, such as RUN/checkpoint-000100"
        )
    return loaded
