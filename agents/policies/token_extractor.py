"""Token contexts for stable-baselines3's own agents: a features extractor that embeds the newest tokens."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import nn

from rlenv._checks import check_count


class TokenExtractor(BaseFeaturesExtractor):
    """The embeddings of the newest tokens of a context, side by side (Bengio et al. 2003), for "MultiInputPolicy".

    stable-baselines3 otherwise flattens such an observation: to its networks token 7 is seven times token 1, and
    where a token stands depends on the length of the prompt. Here each token has its own vector, and the newest one
    always stands in the same place.

    Args:
        observation_space: a Dict of `tokens` (integers [L], padded on the right) and `length` (how many are real).
        window: W, how many of the newest tokens are seen; None: all L.
        embedding_dim: D, the length of a token's vector. There are W · D features.

    Raises:
        ValueError: for another observation space, or numbers below 1.
    """

    def __init__(self, observation_space: spaces.Space, window: int | None = None, embedding_dim: int = 32) -> None:
        contexts = _contexts(observation_space)
        most, vocabulary = contexts.shape[0], int(contexts.high.max()) + 1
        self.window = most if window is None else min(check_count("window", window), most)
        super().__init__(observation_space, self.window * check_count("embedding_dim", embedding_dim))
        self.nothing = vocabulary  # the token that stands before the first one
        self.embedding = nn.Embedding(vocabulary + 1, embedding_dim)

    def forward(self, observations: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return features [B, W · D] of `tokens` [B, L] and `length`, one-hot [B, L + 1] by stable-baselines3."""
        tokens = observations["tokens"].long()  # [B, L]
        length = observations["length"].flatten(1).argmax(1, keepdim=True)  # [B, 1]; its buffer adds a dimension
        places = length - self.window + torch.arange(self.window, device=tokens.device)  # [B, W], the newest one last
        newest = tokens.gather(1, places.clamp(min=0)).where(places >= 0, self.nothing)
        return self.embedding(newest).flatten(1)


def _contexts(space: Any) -> spaces.Box:
    """Return the space of the tokens.

    Raises:
        ValueError: if the observations are not such contexts.
    """
    parts = dict(space.spaces) if isinstance(space, spaces.Dict) else {}
    tokens, length = parts.get("tokens"), parts.get("length")
    if isinstance(tokens, spaces.Box) and len(tokens.shape) == 1 and isinstance(length, spaces.Discrete):
        return tokens
    shown = " ".join(str(space).split())
    raise ValueError(f"TokenExtractor reads a Dict of tokens, Box[L], and length, Discrete(L + 1); got {shown}")
