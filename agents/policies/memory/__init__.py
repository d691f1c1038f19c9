"""How much memory a training run takes: planned before it starts."""
