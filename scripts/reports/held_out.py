"""The number of different problems in the figures of an evaluation, and a warning if they are few."""

from __future__ import annotations

from typing import Any

from rlenv.stream import ProblemStream

FEW = 30  # below so many problems, figures come with a line that says what they are worth
LEAST = 5  # to compare agents by
LOOKED_AT = 200  # problems, to find the least


def problem_figures(stream: ProblemStream, episodes: int, ask_trained: str = "--test-fraction 0") -> dict[str, Any]:
    """Return `problems`, how many different ones an evaluation has, and `few_problems`, a line about fewer than `FEW`.

    Args:
        stream: of the problems.
        episodes: from the first problem; a list that is shorter comes again.
        ask_trained: the option that asks the training problems.
    """
    count = stream.distinct(episodes)
    if count >= FEW:
        return {"problems": count}
    worth = "says nothing" if count == 1 else f"each is {1 / count:.0%} of the figure"
    if stream.split == "train":
        worth += " about others" if count == 1 else ", and they say nothing about others"
    if episodes < (len(stream.listed) or FEW):
        advice = "more episodes ask more of them"
    elif stream.names_splits:
        advice = "name more rows test in the column split"
    elif stream.split == "train" or (stream.listed and not stream.sizes["train"]):
        advice = "add problems (--problems)"
    elif stream.listed:
        advice = f"`{ask_trained}` asks the training problems"
    else:
        advice = "a larger --test-fraction holds out more"
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
    if (count := stream.distinct(there)) >= LEAST:
        return
    if not stream.listed:
        raise ValueError(
            f"the test split has {count} different problems (test_fraction={stream.test_fraction:g}), and a comparison "
            f"needs {LEAST}: pass a larger --test-fraction"
        )
    raise ValueError(
        f"{count} of {sum(stream.sizes.values())} problems {'is' if count == 1 else 'are'} held out "
        f"(test_fraction={stream.test_fraction:g}), "
        f"and a comparison needs {LEAST}: add problems, or pass --test-fraction 0 to ask the training problems"
    )
