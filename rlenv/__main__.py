"""`python -m rlenv`: the command `rlenv`, for `torchrun -m rlenv train ...`."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points

if __name__ == "__main__":
    command, *_ = entry_points(group="console_scripts", name="rlenv")
    sys.exit(command.load()(prog_name="rlenv"))
