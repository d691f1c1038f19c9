"""What commands do: train, imitate, evaluate, compare, play."""
