"""The jobs of the commands: train, imitate, evaluate, compare, play."""
