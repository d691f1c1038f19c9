"""What somebody who comes from TRL types first."""

import json

import pytest
from inprocess import run

SMALL = ["--sft-steps", 1, "--timesteps", 20, "--eval-episodes", 4, "--episodes-per-update", 8, "--log-dir", "run"]
FILE = ["--problems", "sums.jsonl", "--column", "prompt=question", "--column", "answer=solution"]
SOURCE = """
def right(prompts, completions, solution, **kwargs):
    return [float(said == wanted) for said, wanted in zip(completions, solution)]

def short(completions, completion_ids, trainer_state, **kwargs):
    assert trainer_state.global_step >= 0
    return [-float(len(ids)) for ids in completion_ids]

def three(completions):
    return [1.0, 1.0, 1.0]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "their_rewards.py").write_text(SOURCE)
    rows = [{"question": f"{a}+{b}=", "solution": str(a + b)} for a in range(10) for b in range(10)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("their_rewards.py:right,their_rewards.py:short=0.5", marks=pytest.mark.slow),
        "their_rewards:right",
    ],
)
def test_functions_in_a_file_train_and_are_found_again_from_elsewhere(folder, monkeypatch, spec):
    outcome = run("train", "--verifier", spec, *FILE, *SMALL, "--json")
    assert outcome.exit_code == 0, outcome.output
    saved = json.loads((folder / "run" / "config.json").read_text())["verifier"]
    expected = spec.replace("their_rewards.py", f"{folder}/their_rewards.py")
    assert saved == expected.replace("their_rewards:", f"{folder}/their_rewards.py:")
    (folder / "else").mkdir()
    monkeypatch.chdir(folder / "else")
    assert "if you trust it, pass --trust" in run("train", "--resume", "../run", "--timesteps", 400).stderr
    outcome = run("train", "--resume", "../run", "--timesteps", 400, "--trust", "--json")
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(outcome.stdout.splitlines()[-1])["timesteps"] >= 400


def test_a_configuration_may_list_functions(folder):
    names = ["their_rewards.py:right", "their_rewards.py:short=0.5"]
    (folder / "run.json").write_text(json.dumps({"verifier": names}))
    outcome = run("train", "--config", "run.json", *FILE, *SMALL)
    assert outcome.exit_code == 0, outcome.output
    header = (folder / "run" / "progress.csv").read_text().splitlines()[0].split(",")
    assert {"rollout/parts/right", "rollout/parts/short"} <= set(header)


def test_without_a_folder_the_run_is_named_after_the_function(folder):
    outcome = run("train", "--verifier", "their_rewards.py:right", *FILE, *SMALL[:-2])
    assert outcome.exit_code == 0, outcome.output
    assert (folder / "runs" / "textgen-v0-their_rewards.right-reinforce-baseline").is_dir()


@pytest.mark.parametrize(("workers", "count"), [(0, 4), (1, 1)])
def test_another_number_of_rewards_ends_a_run_with_one_line(folder, workers, count):
    outcome = run("train", "--verifier", "their_rewards.py:three", "--verifier-workers", workers, *FILE, *SMALL)
    assert outcome.exit_code == 2, outcome.output
    (line,) = [line for line in outcome.stderr.splitlines() if "three" in line]
    assert f"returned 3 rewards for {count} completion" in line


NAMES = {
    "option": (["--num-generations", 8], "No such option '--num-generations': rlenv calls it --group-size"),
    "underscores": (["--max_completion_length=9"], "rlenv calls it --max-new-tokens"),
    "without an option": (["--epsilon", 0.1], "rlenv calls it --agent-arg clip_range=..."),
    "steps": (
        ["--max-steps", 9],
        "rlenv calls it --episodes, which counts episodes: max_steps x --episodes-per-update",
    ),
    "accumulation": (
        ["--gradient-accumulation-steps", 2],
        "rlenv calls it --micro-batch-size, which counts the episodes of a pass: --episodes-per-update / gradient_",
    ),
    "precision": (["--bf16"], "No such option '--bf16': rlenv calls it --dtype bfloat16"),
    "tracker": (["--report-to", "wandb"], "No such option '--report-to': rlenv calls it --track, wandb or mlflow; the"),
    "adapter": (["--use_peft"], "No such option '--use_peft': rlenv calls it --lora-rank 16"),
    "adapter's settings": (["--config", "peft.json"], "rlenv calls it --lora-rank, --lora-alpha, --lora-targets"),
    "memory": (["--gradient-checkpointing"], "rlenv calls it --activation-checkpointing"),
    "learning rate": (["--lr", "1e-5"], "No such option '--lr': did you mean --learning-rate?"),
    "agent argument": (["--agent", "grpo", "--agent-arg", "beta=0.1"], "--agent-arg beta: rlenv calls it --kl-coef"),
    "no setting": (["--loss-type", "dapo"], "the loss belongs to the agent: grpo, dr-grpo"),
    "configuration": (["--config", "trl.json"], "unknown option 'num_generations'; rlenv calls it --group-size"),
    "column": (["--verifier", "their_rewards.py:right", "--problems", "bare.jsonl"], "the columns ['solution']"),
    "no function": (["--verifier", "their_rewards.py"], "name the function in it: their_rewards.py:my_function"),
}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["sft", "--lr", 1], "No such option '--lr': did you mean --sft-learning-rate?"),
        (["reward-model", "--lr", 1], "No such option '--lr': did you mean --learning-rate?"),
        (["compare", "--lr", 1], "No such option '--lr': did you mean --learning-rate?"),
        (["sft", "--use-peft"], "No such option '--use-peft': rlenv calls it --lora-rank 16"),
        (["sft", "--num-generations", 8], "No such option '--num-generations'"),  # it has no groups
        (["evaluate", "--max-steps", 8], "No such option '--max-steps'"),
        (["evaluate", "--lr", 1], "No such option '--lr'"),
    ],
)
def test_a_hint_names_options_that_the_command_has(args, message):
    outcome = run(*args)
    assert outcome.exit_code == 2
    (line,) = outcome.stderr.strip().splitlines()
    assert message in line and "--agent-arg" not in line and ("did you mean" in message) == ("did you mean" in line)


@pytest.mark.parametrize(("args", "message"), NAMES.values(), ids=NAMES)
def test_what_is_refused_comes_with_a_hint(folder, args, message):
    (folder / "trl.json").write_text(json.dumps({"num_generations": 8}))
    (folder / "peft.json").write_text(json.dumps({"peft_config": {"r": 8}}))
    (folder / "bare.jsonl").write_text('{"prompt": "a", "answer": "b"}\n' * 20)
    outcome = run("train", *args, *SMALL)
    assert outcome.exit_code == 2, outcome.output
    (line,) = outcome.stderr.strip().splitlines()
    assert message in line
    assert not (folder / "run").exists()
