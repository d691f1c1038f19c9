"""Verifiers around others: what they have of them."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import Verifier

POSES = (  # what a verifier that judges borrows of the one that poses its problems
    "levels", "prompt_length", "answer_length", "sample", "sample_at", "demonstration", "extract", "split_key",
)  # fmt: skip


def borrow(borrower: Verifier, lender: Verifier, *names: str) -> None:
    """Give a verifier attributes and methods of another one, by name."""
    for name in names:
        setattr(borrower, name, getattr(lender, name))


def borrow_all(borrower: Verifier, lender: Verifier, own: Sequence[str]) -> None:
    """Give a verifier all of another one, but for names of its own and what its classes define."""
    classes = type(borrower).__mro__
    defined = {name for each in classes[: classes.index(Verifier)] for name in vars(each)}.union(own)
    lent = (name for name, value in vars(Verifier).items() if name[0] != "_" and not isinstance(value, property))
    borrow(borrower, lender, *(name for name in lent if name not in defined))
