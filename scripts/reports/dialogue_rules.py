"""Rules about dialogues: are their turns used up, are the tools called, do the replies say anything."""

from __future__ import annotations

from .findings import Finding
from .history import History
from .reward_rules import ALL, SOME_UPDATES


def turns_run_out(run: History) -> Finding | None:
    """Nearly every episode ends because its turns or its context are used up."""
    cut, turns = run["rollout/truncated_frac"], run["rollout/turns"]
    if not turns or not cut or cut.end < ALL or run.solved or run.improved:
        return None
    return Finding(
        "turns-run-out",
        "warning",
        f"{cut.end:.0%} of the dialogues run out of turns or context",
        f"rollout/truncated_frac is {cut.end:.3g} and rollout/turns {turns.end:.3g} at update {cut.updates[-1]}",
        "give more turns (--max-turns) or room (--max-context-tokens, --max-reply-tokens), easier problems "
        "(--verifier-arg), or a longer warm start (--sft-steps) whose demonstrations end their dialogues",
        cut.updates[-1],
    )


def one_reply_dominates(run: History) -> Finding | None:
    """Nearly all replies are one and the same: the model learns nothing from them."""
    most = run["rollout/reply_max_frac"]
    if not most or most.end < ALL or run.solved or run.improved:
        return None
    return Finding(
        "one-reply-dominates",
        "warning",
        f"{most.end:.0%} of all replies are the same",
        f"rollout/reply_max_frac is {most.end:.3g} at update {most.updates[-1]}, {most.start:.3g} at the beginning",
        "read samples.md: if the reply says that a turn was not understood, imitate turns of the right form for longer "
        "(--sft-steps, --sft-examples), or give turns more room (--max-new-tokens)",
        most.updates[-1],
    )


def tool_never_called(run: History) -> Finding | None:
    """There are tools, and no episode calls one."""
    calls = run["rollout/tool_calls"]
    if len(calls) == 0 or run.updates < SOME_UPDATES or max(calls.values) > 0 or run.solved:
        return None
    return Finding(
        "tool-never-called",
        "warning",
        "no episode has ever called a tool, so it cannot be learned",
        f"rollout/tool_calls is 0 in all entries up to update {calls.updates[-1]}",
        "show calls in the warm start (--sft-steps) or in the prompt (--system-prompt), and give turns room for one "
        "(--max-new-tokens)",
        calls.updates[-1],
    )
