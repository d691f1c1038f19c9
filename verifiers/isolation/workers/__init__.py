"""How a verifier is run elsewhere: a pool of worker processes, each below a supervisor."""
