"""The two environments of TextGen-v0, single (the plain reference) and batched, and what they share."""
