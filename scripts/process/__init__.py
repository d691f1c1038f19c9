"""The process that a command runs in: its streams, signals, errors, and the other processes that it has."""
