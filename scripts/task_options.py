"""The revision of a data set that was named without one."""

from __future__ import annotations

from typing import Any

import click


def fill_in(ctx: click.Context) -> None:
    """Replace the name of a data set by that of its revision; a run that is resumed has it."""
    problems = str(ctx.params.get("problems"))
    if problems.startswith("hf:") and not ctx.params.get("resume"):
        ctx.params["problems"] = _pinned(problems)


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
