"""Data sets of the Hugging Face hub as problems: "hf:org/name" or "hf:org/name/config", with or without "@revision"."""

from __future__ import annotations

import re
from typing import Any

from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import logging, validate_repo_id

from rlenv._checks import first_line, quiet, require
from rlenv.verifiers.plugins.registry import require_trust

from .tasks import TASKS

# A config is the name of a folder of the cache, so it has neither "..", nor signs that `datasets` forbids there.
_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)(?:/((?!\.)[^@/\\<>:|?*\x00-\x1f]+))?(?:@([\w./-]+))?", re.ASCII)
COMMIT = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")
_chosen = {task.problems for task in TASKS.values()}  # by us, or by the user: a checkpoint may name them, too


def allow(problems: Any) -> None:
    """Note that the user chose this data set: it is then loaded without trust. Rows need none."""
    if isinstance(problems, str):
        _chosen.add(problems)


def is_allowed(problems: Any) -> bool:
    """Tell whether a checkpoint that names these problems needs no trust for them."""
    return not (isinstance(problems, str) and problems.startswith("hf:")) or problems in _chosen


def parts(name: str) -> tuple[str, str | None, str | None]:
    """Return the repository, config and revision in the name of a data set.

    Raises:
        ValueError: for a name of another form, or with signs that names of the hub do not have.
    """
    found = _NAME.fullmatch(name)
    try:
        validate_repo_id(found and found[1])
    except HFValidationError:
        found = None
    if found is None:
        allowed = "hf:org/name or hf:org/name/config, and @revision behind it"
        raise ValueError(f"{name!r} is not the name of a data set of the hub; write {allowed}; a folder is ./FOLDER")
    return found[1], found[2], found[3]


def load(name: str) -> Any:
    """Return the data set of a name, by split; it is downloaded once, into `$HF_HOME`.

    Raises:
        ValueError: in one line, for a data set that is not there, not reachable or not trusted, or a missing config.
    """
    repo, config, revision = parts(name)
    if not is_allowed(name):
        require_trust(f"the data set {name!r}", "would download it")
    datasets = require("datasets", "data", f"the data set {name!r}")
    network: Any = (ConnectionError, HfHubHTTPError.__bases__[0])  # the second is that of its HTTP library
    faults: Any = (*network, OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError)
    try:
        with quiet(logging), quiet(datasets.utils.logging):  # a network that fails is one line, not one per try
            # A bare name would be a local folder first, whatever the revision.
            found = datasets.load_dataset(f"hf://datasets/{repo}", config, revision=revision)
    except faults as error:
        said, hint = first_line(error), ""
        if isinstance(error, network):
            hint = "; without network pass a copy: --problems FOLDER, of datasets' save_to_disk, or a file"
        elif isinstance(error, ValueError):  # about the config; the next line names those that there are
            said, hint = " ".join(str(error).split("\n")[:2]), "; a config is written hf:org/name/CONFIG"
        raise ValueError(f"{name!r} cannot be loaded: {said.rstrip('.')}{hint}") from error
    # Without network `datasets` takes the newest revision that it has.
    cached = {*COMMIT.findall(" ".join(each["filename"] for part in found.values() for each in part.cache_files))}
    if revision and COMMIT.fullmatch(revision) and cached and revision not in cached:
        there = ", ".join(sorted(cached))
        raise ValueError(f"{name!r} cannot be loaded without network: the cache has another revision, {there}")
    return found
