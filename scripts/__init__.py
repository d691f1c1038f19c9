"""The commands, one per file; installed as `_rlenv_scripts` and started by the console command `rlenv`."""

DISTRIBUTION = "rlenv-lm"  # what pip installs
