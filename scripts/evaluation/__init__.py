"""rlenv evaluate: greedy and sampled success, pass@k and maj@k, and every completion in a file."""
