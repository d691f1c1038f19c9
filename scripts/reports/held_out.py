"""The number of different problems in the figures of an evaluation, and a warning if they are few."""

from __future__ import annotations

from typing import Any

from rlenv.stream import ProblemStream

FEW = 30  # below so many problems, figures come with a line that says what they are worth
LEAST = 5  # to compare agents by
LOOKED_AT = 200  # problems, to find the least


def problem_figures(stream: ProblemStream, episodes: int) -> dict[str, Any]:
    """Return `problems`, how many different ones an evaluation has, and `few_problems`, a line about fewer than `FEW`.

    Args:
        stream: of the problems.
        episodes: from the first problem; a list that is shorter comes again.
    """
    count = stream.distinct(episodes)
    if count >= FEW:
        return {"problems": count}
    worth, advice = f"each is {1 / count:.0%} of the figure", "ask more: more episodes, more --problems"
    if stream.split == "train":
        worth += ", and they say nothing about others"
    else:
        advice += ", a larger --test-fraction; --test-fraction 0 asks those of training"
    return {"problems": count, "few_problems": f"{problems_of(count, stream.split)}: {worth}; {advice}"}


def problems_of(count: int | str, split: str) -> str:
    """Return a number of problems in words, such as "4 held-out problems"."""
    return f"{count} {'training' if split == 'train' else 'held-out'} problem{'s' * (str(count) != '1')}"


def check_enough(stream: ProblemStream) -> None:
    """Check that agents can be compared by the held-out problems of a stream, which a hash holds out.

    Raises:
        ValueError: for fewer than `LEAST`.
    """
    there = min(len(stream.listed) or LOOKED_AT, LOOKED_AT)
    if (count := stream.distinct(there)) < LEAST:
        of_all = f" of {sum(stream.sizes.values())}" if stream.listed else ""
        raise ValueError(
            f"{count}{of_all} different problems are held out (test_fraction={stream.test_fraction:g}), and a "
            f"comparison needs {LEAST}: add problems, pass a larger --test-fraction, or --test-fraction 0 to ask the "
            "training problems"
        )
