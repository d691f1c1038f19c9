"""`python -m _rlenv_scripts`: the command `rlenv`, also as a child process of `rlenv compare`."""

from __future__ import annotations

from .main import main

if __name__ == "__main__":
    main(prog_name="rlenv")
