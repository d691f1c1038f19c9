"""Write the tables of docs/appendix/models.md: python docs/make_models.py."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402 (after the path of what is no package)
from architectures import ARCHITECTURES, policy_of  # noqa: E402
from tiny_models import text_envs  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from rlenv.agents.language.sizes import preset_config  # noqa: E402
from rlenv.agents.policies.presets import SIZES  # noqa: E402

PAGE = ROOT / "docs" / "appendix" / "models.md"
VOCABULARY = 2000


def page() -> str:
    """Return the page with the presets and the architectures."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in {"presets": presets(), "supported": supported(), "refused": refused()}.items():
        marks = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        text = marks.sub(lambda found, table=table: f"{found[1]}{table}\n{found[2]}", text)
    return text


def presets() -> str:
    """Return the table of the presets' sizes."""
    rows = [
        "| preset | parameters, no embeddings | with a vocabulary of 2,000 | layers | width | inner width | heads |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, size in SIZES.items():
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(preset_config(name, VOCABULARY, 1))
        count, embedded = sum(weight.numel() for weight in model.parameters()), VOCABULARY * size["hidden_size"]
        heads = f"{size['num_attention_heads']}, {size['num_key_value_heads']} of keys"
        sizes = f"{size['num_hidden_layers']} | {size['hidden_size']} | {size['intermediate_size']} | {heads}"
        rows.append(f"| `{name}` | {count - embedded:,} | {count:,} | {sizes} |")
    return "\n".join(rows)


def supported() -> str:
    """Return the table of the architectures that pass every check of tests/agents/test_models.py."""
    rows = [f"| {each.name} | {each.about} |" for each in ARCHITECTURES if each.refused is None]
    return "\n".join(["| architecture | special about it |", "|---|---|", *rows])


def refused() -> str:
    """Return the table of the architectures that are refused, with the beginning of the message."""
    rows, envs = ["| architecture | special about it | refused, because it |", "|---|---|---|"], text_envs(1)
    for each in ARCHITECTURES:
        if each.refused is not None:
            try:
                policy_of(each.model(), envs)
            except ValueError as error:
                reason = re.sub(r"^model type '\S+' |; supported: .*$", "", str(error))
                rows.append(f"| {each.name} | {each.about} | {reason} |")
    return "\n".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8", newline="\n")
