"""`rlenv train` and `rlenv sft`."""
