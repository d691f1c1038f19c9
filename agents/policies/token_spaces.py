"""The spaces of text environments, by which they are known."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces


def is_text(observation_space: spaces.Space, action_space: spaces.Space) -> bool:
    """Whether these are the spaces of a text environment: Dict(tokens=Box, length=Discrete) and Discrete tokens."""
    return (
        isinstance(observation_space, spaces.Dict)
        and set(observation_space.spaces) == {"tokens", "length"}
        and isinstance(observation_space["tokens"], spaces.Box)
        and isinstance(action_space, spaces.Discrete)
        and action_space.start == 0
    )


def check_text_spaces(observation_space: Any, action_space: Any) -> tuple[int, int]:
    """Return the size of the vocabulary V and the longest context L of a text environment."""
    if not is_text(observation_space, action_space):
        raise ValueError(
            "a language model needs observations Dict(tokens=Box[L], length=Discrete) and actions Discrete(V), "
            f"got {observation_space} and {action_space}"
        )
    return int(action_space.n), int(observation_space["tokens"].shape[0])


def text_spaces(vocab_size: int) -> tuple[spaces.Dict, spaces.Discrete]:
    """Return the spaces of the shortest text environment: any model fits, to be loaded without an environment."""
    tokens = spaces.Box(0, vocab_size - 1, (2,), np.int64)
    return spaces.Dict(tokens=tokens, length=spaces.Discrete(3)), spaces.Discrete(vocab_size)
