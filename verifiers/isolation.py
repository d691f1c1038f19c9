"""Whether a verifier runs in worker processes, which are imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base import Verifier

if TYPE_CHECKING:
    from .sandbox.pool import Isolated


def isolate(
    verifier: Verifier, workers: int | None = None, timeout: float | None = None, memory_mb: int | None = None
) -> Isolated | None:
    """Return worker processes for a verifier that wants them (`isolated`), or if a setting asks for them; else None.

    Arguments: those of `Isolated`; `workers=0` for no worker processes, whatever the verifier wants.
    """
    settings = workers, timeout, memory_mb
    wanted = verifier.execution.isolated or any(setting is not None for setting in settings)
    if not wanted or workers == 0:
        return None
    from .sandbox.pool import Isolated

    return Isolated(verifier, *settings)
