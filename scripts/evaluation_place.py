"""Where an evaluation is kept, for one process at a time."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from agents.files import Lock

from .progress import say
from .run import check_place


@contextmanager
def claim(out: Path | None, home: Path, name: str, settings: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the path of the .jsonl file of an evaluation.

    Args:
        out: the user's choice; None for a file in `home`, whose name says the settings and ends in their digest. If
            nothing can be written there, the completions are kept until the command ends.
        home: the folder of the evaluations of a run.
        name: the readable part of the file's name.
        settings: of the evaluation.

    Raises:
        ValueError: if another process is writing the file, or `out` has another suffix.
    """
    if out is not None and out.suffix != ".jsonl":
        raise ValueError(f"--out {str(out)!r} must end in .jsonl; settings and figures go into a .json file beside it")
    digest = hashlib.blake2b(json.dumps(settings, default=str, sort_keys=True).encode(), digest_size=4).hexdigest()
    path = home / f"{name}-{digest}.jsonl" if out is None else out
    check_place(path.parent)
    busy = f"another process is writing {str(path)!r}; wait for it, or pass another --out"
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(Lock(path.with_name(f".{path.name}-lock"), busy))
        except OSError as error:
            if out is not None:
                raise
            where = f"{str(path.parent)!r} cannot be written ({error.strerror})"
            say(f"the completions are not kept: {where}; pass --out FILE")
            path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / path.name
        yield path
