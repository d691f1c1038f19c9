"""Peak memory of the loss of 32 x 1024 tokens with a vocabulary of 151,936: ours, TRL's, and full logits."""

from __future__ import annotations

import json
import resource
import sys
import warnings
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from transformers import LlamaConfig, LlamaForCausalLM

from agents import LanguageModelPolicy, Rollout

from .measure import THREADS, Row, in_a_process
from .peers import require_trl

# The head must exceed 32 MiB, as in real models: smaller blocks stay in the allocator's heap when they are freed.
VOCABULARY, WIDTH, ROWS, LENGTH, PROMPT, SMALL = 151_936, 64, 32, 1024, 8, 16


def run(name: str, pairs: int) -> list[Row]:
    """Return a row for TRL and one for the whole logits."""
    require_trl()
    pairs = min(pairs, 2)  # a peak of memory is the same every time
    ours, trl = ([_child(side, LENGTH)["gigabytes"] for _ in range(pairs)] for side in ("ours", "trl"))
    # Full logits do not fit into most machines: measured on 1/64 and 1/32 of the tokens and extrapolated linearly.
    small, double = (_child("whole", length)["gigabytes"] for length in (SMALL, 2 * SMALL))
    whole = small + (double - small) * (LENGTH - SMALL) / SMALL
    losses = [_child(side, SMALL)["loss"] for side in ("ours", "trl", "whole")]
    quality = f"the loss of {ROWS} x {SMALL} tokens: {losses[0]:.5f}, TRL {losses[1]:.5f}, whole {losses[2]:.5f}"
    return [
        Row.of("against TRL's trainer's own pass", ours, trl, "GB above the model", quality),
        Row.of("against whole logits (extrapolated)", ours, [whole] * pairs, "GB above the model", quality),
    ]


def _child(side: str, length: int) -> dict[str, float]:
    return in_a_process(__name__, side, str(length))


def _measure(side: str, length: int) -> dict[str, float]:
    torch.manual_seed(0)
    torch.set_num_threads(THREADS)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=128, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=PROMPT + length, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    tokens = torch.randint(VOCABULARY, (ROWS, PROMPT + length))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    make = {"ours": _our_log_probs, "trl": _trl_log_probs, "whole": _whole_log_probs}[side]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loss = -make(model, tokens).mean()
    loss.backward()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"gigabytes": peak / 2**20, "loss": loss.item()}


def _our_log_probs(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    rows, width = tokens.shape
    observations = spaces.Dict(
        tokens=spaces.Box(0, VOCABULARY - 1, (width,), np.int64), length=spaces.Discrete(width + 1)
    )
    policy = LanguageModelPolicy(observations, spaces.Discrete(VOCABULARY), model)
    prompts = {"tokens": tokens.clone(), "length": torch.full((rows,), PROMPT)}
    mask = torch.ones(rows, width - PROMPT, dtype=torch.bool)
    rollout = Rollout.of_demonstrations(prompts, tokens[:, PROMPT:], mask)
    return policy.evaluate_actions(rollout, entropy=False)[0]


def _whole_log_probs(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens).logits[:, PROMPT - 1 : -1]
    return logits.log_softmax(-1).gather(2, tokens[:, PROMPT:, None])[..., 0]


def _trl_log_probs(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Return the log-probabilities of the completions as GRPOTrainer computes them for its loss, entropy included."""
    from trl.trainer.utils import add_fused_lm_head

    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    labels = tokens.clone()
    labels[:, :PROMPT] = -100
    made = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), labels=labels, fused_lm_head=True)
    return made.log_probs[:, PROMPT - tokens.shape[1] :]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(_measure(sys.argv[1], int(sys.argv[2]))))
