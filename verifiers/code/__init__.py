"""code: programs, run in a sandbox against tests."""
