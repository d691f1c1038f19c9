"""The options that a task stands for, and the revision of a data set that was named without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from .options import Text

T = TypeVar("T", bound=Text)


def with_task(config: T) -> T:
    """Return a config with the arguments of its task, and the name of a data set with its revision.

    Given options stay; KEY=VALUE options add to the task's.

    Raises:
        ValueError: for an unknown task, with the closest ones.
    """
    from rlenv.tasks import arguments_of, as_lm_eval

    lm_eval = bool(getattr(config, "lm_eval", False))
    if lm_eval and config.task is None:
        raise ValueError("--lm-eval poses the problems of a task by its name: pass --task")
    changes: dict[str, Any] = {}
    if config.task is not None:
        own = {name: vars(config)[name] for name in config.chosen & {"verifier", "problems"}}
        row = arguments_of(config.task, own) | (as_lm_eval(config.task) if lm_eval else {})
        changes["task"] = None
        for name, value in row.items():
            if isinstance(value, Mapping):
                changes[name] = {**value, **getattr(config, name)}
            elif name not in config.chosen:
                changes[name] = value
    problems = changes.get("problems", config.problems)
    if isinstance(problems, str) and problems.startswith("hf:"):
        changes["problems"] = _pinned(problems)
    if not changes:
        return config
    expanded = config.but(**changes)
    expanded.chosen |= changes.keys()
    return expanded


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
