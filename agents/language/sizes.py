"""Configurations of the presets, and learning rates of language models by size."""

from __future__ import annotations

from transformers import LlamaConfig

from ..policies.presets import SIZES

LEAST_CONTEXT = 1024  # so that another environment may have longer texts; rotary positions have no weights
TRAINED = 1e8  # parameters, from which on a model is taken to be pretrained
# Of language models by size: most parameters; the learning rates of all weights and of an adapter, and that of all
# weights in the warm start. Larger models move less; above TRAINED they are taken to be trained already, and move
# more than models that have just imitated demonstrations (docs/appendix/settings.md: measured with 135 million).
RATES = (
    (2e6, 3e-4, 3e-3, 2e-3),
    (2e7, 3e-5, 3e-4, 5e-4),
    (TRAINED, 1e-5, 1e-4, 3e-4),
    (3e8, 2e-5, 5e-4, 1e-5),
    (float("inf"), 1e-6, 1e-5, 1e-5),
)
ADAPTER = 10  # times larger is its rate in the warm start: it has few weights and starts at zero


def preset_config(name: str, vocab_size: int, max_length: int) -> LlamaConfig:
    """Return the configuration of a preset for a vocabulary of size V and contexts of length L; the head is tied."""
    return LlamaConfig(
        **SIZES[name],
        vocab_size=vocab_size,
        max_position_embeddings=max(max_length, LEAST_CONTEXT),
        tie_word_embeddings=True,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )


def rates_of(parameters: int, adapter: bool) -> tuple[float, float]:
    """Return the learning rates of a language model for reinforcement learning and for supervised training.

    The latter is that of a warm start, of `rlenv sft` and of a reward model.

    Args:
        parameters: of the whole model.
        adapter: whether only an adapter is trained.
    """
    _, rate, adapters, warm = next(row for row in RATES if parameters <= row[0])
    return (adapters, ADAPTER * warm) if adapter else (rate, warm)
