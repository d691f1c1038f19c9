"""`rlenv compare`: the command, the child processes that run it, and the report."""
