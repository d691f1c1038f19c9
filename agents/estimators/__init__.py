"""The mathematics: pure functions of tensors, one module a question."""
