"""A program that calls a chat API in the commands: train, evaluate, play; and train in two processes."""

import json

import pytest
from click.testing import CliRunner
from inprocess import done, result_of, run

from rlenv._scripts.main import main
from rlenv.agents import Agent

SOLVE = """
def solve(problem, client):
    messages = [{"role": "user", "content": problem.text}]
    answer = client.chat.completions.create(messages=messages, max_tokens=3).choices[0].message.content
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "sure?"}]
    sure = client.chat.completions.create(messages=messages, max_tokens=3).choices[0].message.content
    return (answer == problem.answer) + 0.125 * (answer == sure), {"said": float(len(answer))}
"""


@pytest.fixture
def training(tmp_path):
    """Return the arguments of a run of one update."""
    (tmp_path / "agent.py").write_text(SOLVE)
    rows = [json.dumps({"prompt": f"{number}=", "answer": str(number)}) for number in range(10, 90)]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows))
    return [
        "train", "--verifier", f"program:{tmp_path}/agent.py:solve", "--problems", tmp_path / "rows.jsonl",
        "--max-turns", 2, "--max-reply-tokens", 8, "--sft-steps", 0, "--agent", "grpo", "--group-size", 4,
        "--episodes-per-update", 8, "--episodes", 8, "--eval-episodes", 4, "--verifier-workers", 0,
        "--device", "cpu", "--log-dir", tmp_path / "run",
    ]  # fmt: skip


def test_a_program_is_trained_evaluated_and_played(tmp_path, training):
    done(*training)
    evaluated = result_of(run("evaluate", tmp_path / "run", "--trust", "--json", "--episodes", 4))
    assert (evaluated["mean_turns"], evaluated["episodes"]) == (2, 4)
    typed = ["1", "/end", "1", "/end"]
    played = CliRunner().invoke(main, ["play", str(tmp_path / "run"), "--trust", "--episodes", "1"], "\n".join(typed))
    assert played.exit_code == 0 and "sure?" in played.stdout, played.output
    assert "sure?" in (tmp_path / "run" / "samples.jsonl").read_text()


@pytest.mark.slow
def test_two_processes_train_a_program(tmp_path, training, jobs):
    code, _, errors = jobs.run(*training)
    assert code == 0, errors
    assert Agent.load(tmp_path / "run" / "checkpoint", device="cpu", trust=True).num_episodes == 8
