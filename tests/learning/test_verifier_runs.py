"""`rlenv train` with one verifier of each kind: greedy success on held-out problems rises."""

import json
import random

import pytest
from inprocess import result_of, run

pytestmark = pytest.mark.slow

CAPITALS = '''
def capitals(prompts, completions, answer, **columns):
    """One for the word in capitals, in reverse; else half the share of letters that are right."""
    rewards = []
    for said, right in zip(completions, answer, strict=True):
        hits = sum(a == b for a, b in zip(said, right))
        rewards.append(1.0 if said == right else 0.5 * hits / max(len(said), len(right)))
    return rewards
'''


def trained(folder, *options):
    """Return success before and after a run of the command line."""
    result = result_of(run("train", *options, "--log-dir", folder / "run", "--eval-episodes", 1000, "--json"))
    rates = result["initial_eval"]["success_rate"], result["eval"]["success_rate"]
    print(f"success {rates[0]:.3f} -> {rates[1]:.3f}, reinforcement {result['seconds']:.0f} s")
    return rates


def test_countdown_is_learned(tmp_path):
    task = ("--verifier-arg", "operators=+-", "--verifier-arg", "largest=30")
    before, after = trained(tmp_path, "--verifier", "countdown", *task, "--timesteps", 800_000)
    assert after >= before + 0.08


def test_a_task_of_reasoning_gym_is_learned(tmp_path):
    task = [f"--verifier-arg={setting}" for setting in ("min_terms=3", "max_terms=3", "min_digits=1", "max_digits=1")]
    before, after = trained(tmp_path, "--verifier", "reasoning_gym:chain_sum", *task, "--timesteps", 200_000)
    assert after >= before + 0.08


def test_problems_from_a_file_are_learned_from_a_plain_function(tmp_path, monkeypatch):
    (tmp_path / "my_rewards.py").write_text(CAPITALS)
    monkeypatch.syspath_prepend(str(tmp_path))
    rng = random.Random(0)
    words = {"".join(rng.choices("abcdefghij", k=5)) for _ in range(4000)}
    rows = [json.dumps({"word": word, "said": word[::-1].upper()}) for word in sorted(words)]
    (tmp_path / "words.jsonl").write_text("\n".join(rows))
    source = ("--problems", tmp_path / "words.jsonl", "--column", "answer=said", "--prompt-template", "{word}>")
    short = ("--sft-steps", 120, "--max-new-tokens", 6, "--timesteps", 200_000)
    before, after = trained(tmp_path, "--verifier", "my_rewards:capitals", *source, *short)
    assert after >= before + 0.1
