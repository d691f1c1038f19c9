"""Several processes: ranks and sums over them, and tensors of which each process holds a part."""
