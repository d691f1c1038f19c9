"""Dialogues: how they are run, and those that every verifier can have, such as tools."""

from .running import InWorkers, begin, replay, reply_to, verdict_without_budget

__all__ = ["InWorkers", "begin", "replay", "reply_to", "verdict_without_budget"]
