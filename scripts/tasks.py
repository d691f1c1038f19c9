"""rlenv tasks: the table of tasks by name, and the first prompt of one of them."""

from __future__ import annotations

import json
from typing import Any

import click

from rlenv._settings import declared_by

from .config.command import Command
from .config.names import TASK
from .config.options import as_json
from .config.other_configs import Listed
from .process.progress import say
from .process.terminal import plain


@click.command(
    cls=Command,
    config=Listed,
    examples={
        "rlenv tasks": "All tasks, with their data sets",
        "rlenv tasks gsm8k": "Its arguments and its first problem",
        "rlenv tasks gsm8k --problems FOLDER": "The same of a copy, without network",
    },
)
@click.argument("name", required=False, shell_complete=TASK.shell_complete)
@as_json
def tasks(config: Listed, name: str | None, as_json: bool) -> None:
    """List the tasks for --task; or show the task NAME, with its first prompt, as a model without chat reads it."""
    from rlenv.tasks import TASKS, arguments_of, find_task

    if name is None:
        rows = {name: vars(row) for name, row in TASKS.items()}
        lines = [f"{name:12}{row['verifier']:12}{row['rows']:26}{row['problems']}" for name, row in rows.items()]
        click.echo(json.dumps(rows) if as_json else "\n".join(lines))
        return
    alike, own = find_task(name).lm_eval, {name: getattr(config, name) for name in declared_by(Listed)}
    row = arguments_of(name, {key: value for key, value in own.items() if value})
    row |= {} if alike is None else {"lm_eval": alike.name}
    try:
        row |= _first(row)
    except ValueError as error:
        if own["problems"] is not None:
            raise
        say(f"no prompt to show: {error}")
    click.echo(json.dumps(row) if as_json else plain("\n".join(f"{key:17}{value}" for key, value in row.items())))


def _first(row: dict[str, Any]) -> dict[str, Any]:
    """Return the prompt and the answer of the first problem."""
    from rlenv.problems import load_problems
    from rlenv.verifiers import make_verifier
    from rlenv.verifiers.conversation import with_cue, with_request
    from rlenv.verifiers.dialogues import opened

    verifier = make_verifier(row["verifier"], **row.get("verifier_kwargs", {}))
    (problem,) = opened(verifier, load_problems(row["problems"], row.get("columns"), row.get("prompt_template"))[:1])
    prompt = with_request(problem.prompt, verifier.request * row["ask"])
    return {
        "prompt": with_cue(prompt, row.get("cue", "")) if isinstance(prompt, str) else prompt,
        "answer": problem.answer,
    }
