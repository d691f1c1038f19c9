"""`python -m _rlenv_scripts`: the command `rlenv`, also as a child process of `rlenv compare`."""

from __future__ import annotations

import os

from .main import main
from .runs.children import LIFELINE, end_with_parent

if __name__ == "__main__":
    if os.environ.pop(LIFELINE, None):
        end_with_parent()
    main(prog_name="rlenv")
