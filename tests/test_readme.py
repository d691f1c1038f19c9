"""The README's Python runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("source", BLOCKS, ids=[f"block{i}" for i in range(len(BLOCKS))])
def test_the_readmes_python_runs(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(source, "README.md", "exec"), {"__name__": "readme"})


def test_the_readmes_verifier_can_be_used():
    import gymnasium as gym

    import rlenv  # noqa: F401

    (source,) = [block for block in BLOCKS if "register_verifier" in block]
    exec(compile(source, "README.md", "exec"), {"__name__": "readme"})
    env = gym.make("TextGen-v0", verifier="shout")
    _, info = env.reset(seed=0)
    tokenizer = env.unwrapped.task.tokenizer
    for token in [*tokenizer(info["prompt"][:3].upper())["input_ids"], tokenizer.eos_token_id]:
        _, reward, terminated, _, info = env.step(token)
    assert (reward, terminated, info["is_success"]) == (1.0, True, True)
