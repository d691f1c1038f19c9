"""Checkpoints to which every process adds what it holds; `checkpoint.py` says what is in them, and reads them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

from ..core.files import digest_of, fresh_folder
from ..distributed import parallel
from ..distributed.parts import own_files, take_out, write_parts
from ..policies import Policy
from .checkpoint import POLICY, REFERENCE, TRAINING, check_finite, finish, folder_of, place, save_whole


def write_sharded_checkpoint(
    path: Path,
    facts: Mapping[str, Any],
    policy: Policy,
    reference: Policy | None,
    training: Mapping[str, Any],
    previous: Path | None = None,
    whole_policy: bool = False,
) -> None:
    """Write a checkpoint to which every process adds the weights and moments that it holds; all call this together.

    Args:
        policy: dealt out, and so is the reference.
        whole_policy: whether the main process writes the whole policy instead.

    For the other arguments and the errors see `write_checkpoint`; an error in one process is raised in all.
    """
    state, moments = take_out(dict(training), Path(TRAINING))
    plain = policy.to_save() if whole_policy else None  # of the main process
    with ExitStack() as stack:  # left by an error, it removes what was written
        folder = parallel.on_main(lambda: stack.enter_context(fresh_folder(place(path), previous)))
        parallel.together(lambda: check_finite(policy, folder_of(path)))
        if whole_policy:
            parallel.on_main(lambda: save_whole(cast(Policy, plain), folder / POLICY))
        else:
            policy.save_parts(folder / POLICY)
        if reference is not None:
            reference.save_parts(folder / REFERENCE)
        if moments:
            write_parts(moments, folder / TRAINING)
        digests = parallel.together(lambda: [(file.as_posix(), digest_of(file)) for file in own_files(folder)])
        known = {Path(file).relative_to(folder).as_posix(): digest for own in digests for file, digest in own}
        parallel.on_main(lambda: finish(folder, facts, state, known))
        parallel.on_main(stack.close)
