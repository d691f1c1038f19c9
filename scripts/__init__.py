"""The commands, one per file; installed as `rlenv._scripts` and started by the console command `rlenv`."""

DISTRIBUTION = "rlenv-lm"  # what pip installs
