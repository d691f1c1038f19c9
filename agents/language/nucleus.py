"""A language model sampled in another way than it is trained: another temperature, and top-p. For evaluation only."""

from __future__ import annotations

from typing import Any

import torch
from typing_extensions import override

from rlenv._checks import check_number

from .cuda_graph import Captures
from .policy import LanguageModelPolicy


class SampledPolicy(LanguageModelPolicy):
    """Shares the model of a policy, and samples it at another temperature from the nucleus of top_p.

    The policy itself stays as it is. Greedy actions are the same: neither setting moves the likeliest token.

    Args:
        policy: whose model acts; later changes of its weights are seen.
        temperature: divides the logits, above 0; None for the policy's.
        top_p: above 0, at most 1; see `nucleus`.

    Raises:
        ValueError: for a value out of range.
    """

    def __init__(self, policy: LanguageModelPolicy, temperature: float | None = None, top_p: float = 1.0) -> None:
        chosen = policy.temperature if temperature is None else temperature
        chosen = check_number("temperature", chosen, low=0.0, above=True)
        self.__dict__.update(policy.__dict__)  # not nn.Module's own: the modules are shared, not copied
        self.temperature = chosen
        self.top_p = check_number("top_p", top_p, low=0.0, high=1.0, above=True)
        self._captures = Captures()  # captured steps have the sampling in them

    @override
    def _distribution(self, logits: torch.Tensor) -> torch.Tensor:
        return nucleus(self._log_softmax(logits), self.top_p)

    @override
    def evaluate(self, rollout: Any, want: Any = (), reference: Any = None) -> Any:
        raise ValueError("a SampledPolicy is for evaluation; train the policy that it was made of")


def nucleus(log_probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Return the distribution restricted to its nucleus and normalized again [..., V]; -inf outside.

        V_p = the fewest likeliest tokens with Σ_{v in V_p} π(v) ≥ p      π_p(v) = π(v) / Σ_{u in V_p} π(u)

    Holtzman et al. 2020 (arXiv:1904.09751), section 3.1. Of equally likely tokens, those of smaller ids come first.

    Args:
        log_probs: [..., V], normalized.
        top_p: p, above 0; 1 keeps every token.
    """
    if top_p >= 1:
        return log_probs
    ordered, order = log_probs.sort(dim=-1, descending=True, stable=True)
    likelier = ordered.exp().cumsum(-1) - ordered.exp()  # probability of the tokens before each one
    ordered = ordered.masked_fill(likelier >= top_p, -torch.inf)
    kept = torch.empty_like(log_probs).scatter_(-1, order, ordered)
    return kept - kept.logsumexp(-1, keepdim=True)
