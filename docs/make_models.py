"""Check small models of many architectures and write the tables of docs/models.md: python docs/make_models.py."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402 (after the path of what is no package)
from architectures import ARCHITECTURES, CHECKS, run_checks  # noqa: E402
from transformers import AutoModelForCausalLM  # noqa: E402

from agents.policies.presets import SIZES, preset_config  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
VOCABULARY = 2000
Results = Mapping[str, str | Mapping[str, bool]]


def page(results: Results) -> str:
    """Return the page with the presets and with these results of the architectures, by name."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in {"presets": presets(), "supported": supported(results), "refused": refused(results)}.items():
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


def supported(results: Results) -> str:
    """Return the table of the architectures that are supported, with what holds for each."""
    rows = [f"| architecture | special about it | {' | '.join(CHECKS)} |", "|---" * (len(CHECKS) + 2) + "|"]
    for each in ARCHITECTURES:
        result = results[each.name]
        if not isinstance(result, str):
            cells = ["yes" if result[name] else "NO" for name in CHECKS]
            rows.append(f"| {each.name} | {each.about} | {' | '.join(cells)} |")
    return "\n".join(rows)


def refused(results: Results) -> str:
    """Return the table of the architectures that are refused, with the beginning of the message."""
    rows = ["| architecture | special about it | refused, because it |", "|---|---|---|"]
    for each in ARCHITECTURES:
        message = results[each.name]
        if isinstance(message, str):
            reason = re.sub(r"^model type '\S+' |; supported: .*$", "", message)
            rows.append(f"| {each.name} | {each.about} | {reason} |")
    return "\n".join(rows)


def main() -> None:
    """Run every check, which takes a minute or two, and write the page."""
    results = {}
    for each in ARCHITECTURES:
        results[each.name] = result = run_checks(each)
        holds = result if isinstance(result, str) else ", ".join(f"{name}: {ok}" for name, ok in result.items())
        print(f"{each.name}: {holds}", flush=True)
    PAGE.write_text(page(results), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
