"""The options that --task stands for, and the revision of a data set that was named without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from click.core import ParameterSource

NAMES = {"columns": "column_args", "template": "prompt_template", "verifier_kwargs": "verifier_args"}


def tasks() -> list[str]:
    """Return the names of all tasks."""
    from rlenv.tasks import TASKS

    return list(TASKS)


def fill_in(ctx: click.Context) -> None:
    """Replace --task by the options of its row, and the name of a data set by that of its revision.

    What was given on the command line or in a file stays; KEY=VALUE options add to those of the row.

    Raises:
        ValueError: for an unknown task, with the closest ones.
    """
    if ctx.resilient_parsing:  # a shell completes
        return
    task = ctx.params.pop("task", None)
    if ctx.params.get("lm_eval"):
        if task is None:
            raise ValueError("--lm-eval poses the problems of a task by its name: pass --task")
        ctx.params["lm_eval"] = task
    if task is not None:
        _expand(ctx, task)
    problems = str(ctx.params.get("problems"))
    if problems.startswith("hf:") and not ctx.params.get("resume"):
        ctx.params["problems"] = _pinned(problems)


def _expand(ctx: click.Context, task: str) -> None:
    from rlenv.tasks import arguments_of, as_lm_eval

    def given(name: str) -> bool:
        return ctx.get_parameter_source(name) not in (None, ParameterSource.DEFAULT)

    row = arguments_of(task, {"verifier": ctx.params["verifier"]} if given("verifier") else {})
    row |= as_lm_eval(task) if ctx.params.get("lm_eval") else {}
    for name, value in ((NAMES.get(key, key), value) for key, value in row.items()):
        if isinstance(value, Mapping):
            ctx.params[name] = tuple({**value, **dict(ctx.params[name])}.items())
        elif not given(name):
            ctx.params[name] = value
        if not given(name):
            ctx.set_parameter_source(name, ParameterSource.DEFAULT_MAP)


def _pinned(name: str) -> str:
    """Return the name of a data set with the commit of its revision; as it is if the hub does not say."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    from rlenv.hub import COMMIT, parts

    faults: Any = (OSError, ValueError, *HfHubHTTPError.__bases__)  # its HTTP library raises other errors
    repo, config, revision = parts(name)
    if COMMIT.fullmatch(revision or ""):
        return name
    try:
        commit = HfApi().dataset_info(repo, revision=revision, timeout=10).sha
    except faults:  # whatever is wrong is said when it is loaded
        return name
    return f"hf:{'/'.join(filter(None, (repo, config)))}@{commit}"
