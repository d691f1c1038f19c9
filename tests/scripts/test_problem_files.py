"""Problems, models and chat templates from files: found again from anywhere, or kept in the checkpoint."""

import itertools
import json
import re
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi
from inprocess import done, error_of, result_of, run
from local_hub import serve
from tiny_models import write_chat_model

from rlenv import hub
from rlenv._scripts.config.names import resume_command
from rlenv._scripts.jobs import warm_start
from rlenv.agents.language.sizes import rates_of
from rlenv.demonstrations import demonstrate
from rlenv.verifiers import Problem, make_verifier

COMMIT = "0123456789" * 4
SMALL = ["--timesteps", 20, "--eval-episodes", 4, "--episodes-per-update", 8, "--max-new-tokens", 4, "--json"]
FILE = ["--problems", "sums.jsonl", "--column", "prompt=question", "--column", "answer=target"]
REWARD = """
def exact(prompts, completions, answer, level, **columns):
    assert all(isinstance(number, int) for number in level)
    return [float(said == right) for said, right in zip(completions, answer)]

def vowels(prompts, completions):
    return [float('a' in c) for c in completions]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with sums, conversations, pairs, a module with reward functions and a chat template."""
    system, sums, talks, pairs = {"role": "system", "content": "Say it [/INST] <eos>."}, [], [], []
    for a, b in itertools.combinations_with_replacement(range(10), 2):
        split = "train" if (a + b) % 4 else "test"
        sums.append({"question": f"{a}+{b}=", "target": a + b, "split": split, "level": 1 + (a > 4)})
        user = {"role": "user", "content": f"the number {a} and {b}"}
        talks.append({"messages": [system, user], "answer": str(a)})
        pairs.append({"prompt": [system, user], "chosen": str(a), "rejected": f"{a}x", "split": split})
    for name, table in (("sums", sums), ("talks", talks), ("pairs", pairs)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in table))
    (tmp_path / "template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}: ")
    (tmp_path / "plain_reward.py").write_text(REWARD)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("plain_reward", None)


def test_a_run_without_an_evaluation_is_reported_and_evaluated_on_other_problems(folder):
    outcome = run("train", *SMALL, *FILE, "--eval-episodes", 0, "--sft-steps", 0, "--log-dir", "run")
    result = result_of(outcome)
    assert (result["initial_eval"], result["eval"]) == (None, None) and result["updates"] > 0
    assert "before:" not in outcome.stderr and run("report", "run").exit_code == 0
    (folder / "other.csv").write_text("prompt,answer,split\n1+1=,2,test\n")
    (folder / "sums.jsonl").unlink()
    assert "no file or folder" in error_of(run("evaluate", "run", "--episodes", 2))
    assert "1+1=" in done("evaluate", "run", "--problems", "other.csv", "--episodes", 2).output


def test_a_supervised_start_shows_problems_of_every_level_and_asks_each_that_is_held_out_once(folder, monkeypatch):
    """A run that starts from it has its tokenizer."""
    levels = set()

    def spy(task, start, count, device):
        levels.update(task.stream[index].metadata["level"] for index in range(start, start + count))
        return demonstrate(task, start, count, device)

    monkeypatch.setattr("rlenv._scripts.jobs.session.demonstrate", spy)
    given = [*FILE, "--curriculum", 1.0, "--max-new-tokens", 4, "--verifier", "exact", "--json"]
    start = ["--sft-steps", 1, "--sft-examples", 20, "--tokenizer", "train:260", "--log-dir", "warm"]
    sft = result_of(run("sft", *given, *start))
    assert levels == {1, 2} and sft["eval_loss"] > 0
    held_out = (folder / "sums.jsonl").read_text().count('"test"')
    assert sft["eval"]["episodes"] == held_out, "each held-out problem is asked once"
    result_of(run("train", *given, *SMALL, "--sft-steps", 0, "--model", "warm", "--log-dir", "run"))
    saved = [(folder / name / "checkpoint/policy/model/tokenizer.json").read_bytes() for name in ("warm", "run")]
    assert saved[0] == saved[1]


def test_a_file_of_four_problems_is_trained_and_evaluated_as_it_is(folder):
    (folder / "few.csv").write_text("prompt\n" + "".join(f'"{letter},:"\n' for letter in "bcef"))
    given = ["--problems", "few.csv", "--verifier", "plain_reward.py:vowels", "--eval-episodes", 8]
    outcome = run("train", *SMALL[:2], *given, "--episodes-per-update", 8, "--log-dir", "run", "--json")
    result = result_of(outcome)
    assert (result["eval"]["split"], result["eval"]["episodes"], result["sft_steps"]) == ("train", 8, 0)
    said = "none of the 4 problems is in the test split (test_fraction=0.2), all are in train"
    assert f"{said}: the evaluation plays training problems" in outcome.stderr
    assert [result[name]["problems"] for name in ("initial_eval", "eval")] == [4, 4]
    assert re.search("no warm start: FunctionVerifier has no demonstration for '.,:'$", outcome.stderr, re.MULTILINE)
    assert json.loads((folder / "run" / "config.json").read_text())["sft_steps"] == 0


def test_model_and_chat_template_may_go_after_the_run_has_begun(folder):
    write_chat_model(folder / "own")
    given = ["--verifier", "exact", "--problems", "talks.jsonl", "--chat-template", "template.jinja", "--model", "own"]
    trained = result_of(run("train", *SMALL, *given, "--sft-steps", 0, "--log-dir", "run"))
    assert "system: Say it [/INST] <eos>.\\nuser: the number" in (folder / "run/samples.jsonl").read_text()
    assert json.loads((folder / "run/config.json").read_text())["chat_template"] == str(folder / "template.jinja")
    (folder / "template.jinja").unlink()
    (folder / "own").rename(folder / "elsewhere")
    assert result_of(run("evaluate", "run", "--episodes", 4, "--json")) == trained["eval"]
    result_of(run("train", "--resume", "run", "--timesteps", 60, "--json"))


def test_a_run_goes_on_with_its_problems_at_another_place_and_with_no_others(folder):
    given = ["--verifier", "plain_reward.py:exact", *FILE, "--sft-steps", 0, "--log-dir", "run"]
    done("train", *SMALL, *given)
    shutil.copytree("run", "copy")
    more = ["--timesteps", 60, "--trust"]
    whole = result_of(run("train", "--resume", "copy", *more, "--json"))
    (folder / "sums.jsonl").rename(folder / "moved.jsonl")
    assert "--problems" in error_of(run("train", "--resume", "run", *more))
    (folder / "other.jsonl").write_text((folder / "moved.jsonl").read_text().replace("+", "-"))
    assert "changed" in error_of(run("train", "--resume", "run", *more, "--problems", "other.jsonl"))
    moved = result_of(run("train", "--resume", "run", *more, "--problems", "moved.jsonl", "--json"))
    assert moved["eval"] == whole["eval"] and moved["updates"] == whole["updates"]
    kept = [json.loads((folder / "run" / name).read_text()) for name in ("config.json", "checkpoint/agent.json")]
    assert {kept[0]["problems"], kept[1]["env_kwargs"]["problems"]} == {str(folder / "moved.jsonl")}


def test_supervised_training_goes_on_with_its_problems_at_another_place_and_with_no_others(folder, monkeypatch):
    """After a signal at its second step, with the command that was printed then; the verifier is the user's."""
    sft = ["--sft-steps", 4, "--sft-examples", 8, "--max-new-tokens", 4, "--eval-episodes", 0, "--json"]
    sft += ["--verifier", "plain_reward.py:exact"]
    whole = result_of(run("sft", *FILE, *sft, "--log-dir", "whole"))
    with monkeypatch.context() as patch:
        patch.setattr(warm_start, "log_scalar", lambda *of: of[-1] == 1 and signal.raise_signal(signal.SIGTERM))
        ended = run("sft", *FILE, *sft, "--log-dir", "run")
    assert ended.exit_code == 128 + signal.SIGTERM
    again = ended.stderr.rpartition("To go on: rlenv ")[2].split()
    (folder / "sums.jsonl").rename(folder / "moved.jsonl")
    (folder / "other.jsonl").write_text((folder / "moved.jsonl").read_text().replace("+", "-"))
    assert "--problems" in error_of(run(*again))
    assert "changed" in error_of(run(*again, "--problems", "other.jsonl"))
    result = result_of(run(*again, "--problems", "moved.jsonl", "--json"))
    assert (result["steps"], result["loss"]) == (4, whole["loss"])
    assert json.loads((folder / "run" / "config.json").read_text())["problems"] == str(folder / "moved.jsonl")


def test_a_data_set_of_the_hub_is_stored_with_its_revision_and_loaded_again_only_with_trust(folder, monkeypatch):
    rows = [json.loads(line) for line in (folder / "sums.jsonl").read_text().splitlines()]
    splits = {split: [row for row in rows if row["split"] == split] for split in ("train", "test")}
    loaded = serve(monkeypatch, folder, "org/sums", splits, COMMIT)
    monkeypatch.setattr(HfApi, "dataset_info", lambda self, repo, **more: SimpleNamespace(sha=COMMIT))
    monkeypatch.setattr(hub, "_chosen", set())
    given = ["--problems", "hf:org/sums", *FILE[2:], "--tokenizer", "train:260", "--sft-steps", 2]
    done("train", *SMALL, "--verifier", "numeric", *given, "--log-dir", "run")
    name = f"hf:org/sums@{COMMIT}"
    for file in ("config.json", "checkpoint/agent.json"):
        kept = json.loads((folder / "run" / file).read_text())
        assert kept.get("env_kwargs", kept)["problems"] == name
    loaded.clear()
    for line in (["train", "--resume", "run", "--timesteps", 40], ["evaluate", "run"], ["play", "run"]):
        for also in ([], ["--verifier", "numeric"] if line[0] == "evaluate" else []):
            assert f"names the data set {name!r}" in error_of(run(*line, *also))
    assert loaded == [] and " --trust" in resume_command(folder / "run", {"agent": "grpo", "problems": name})
    played = ["--episodes", 4, "--json"]
    assert result_of(run("evaluate", "run", "--trust", *played)) == result_of(
        run("evaluate", "run", *given[:6], *played)
    )
    done("train", "--resume", "run", "--timesteps", 40, "--trust")


# The classic pipeline in three commands: imitate answers, learn preferences, train on the learned reward.


def rates(spec):
    """Return the mean rewards of the chosen and of the rejected answers of the test split, by a verifier."""
    judge, rows = make_verifier(f"reward_model:{spec}"), map(json.loads, Path("pairs.jsonl").read_text().splitlines())
    assert judge.chat
    rows = [row for row in rows if row["split"] == "test"]
    problems = [Problem(row["prompt"]) for row in rows]
    sides = [judge.verify_batch(problems, [row[side] for row in rows]) for side in ("chosen", "rejected")]
    return [sum(verdict.reward for verdict in side) / len(rows) for side in sides]


def test_an_adapter_learns_from_conversations_and_judges_a_run_of_them(folder):
    write_chat_model(folder / "model")
    learn = ["reward-model", "--pairs", "pairs.jsonl", "--batch-size", 10, "--json"]
    start = ["--model", "model", "--lora-rank", 4, "--steps", 6]
    learned = result_of(run(*learn, *start, "--log-dir", "judge"))
    assert learned["learning_rate"] == rates_of(20_000, True)[1]
    assert learned["eval"]["loss"] < learned["initial_eval"]["loss"]
    means = [learned["eval"]["mean_chosen"], learned["eval"]["mean_rejected"]]
    assert rates("judge") == pytest.approx(means, abs=1e-4), "the verifier rates as the training measured"
    assert not (folder / "judge/model/model.safetensors").exists()

    rewarded = ["--problems", "talks.jsonl", "--verifier", "reward_model:judge", "--model", "model"]
    trained = result_of(run("train", *SMALL, *rewarded, "--log-dir", "rl"))
    assert result_of(run("evaluate", "rl", "--episodes", 4, "--json")) == trained["eval"]

    more = result_of(run(*learn, "--model", "judge", "--steps", 1, "--log-dir", "more"))
    assert more["initial_eval"] == pytest.approx(learned["eval"], abs=1e-5), "it goes on from the first one"
    for options in ([], ["--adapter"]):
        assert run("export", "judge", "out", *options).exit_code == 0
        assert rates("out") == pytest.approx(means, abs=1e-4)
        card = (folder / "out/README.md").read_text()
        assert "held-out pairs: " in card and '"pairs": "pairs.jsonl"' in card and "rlenv reward-model" in card
    assert (folder / "out/adapter_model.safetensors").is_file() and not (folder / "out/model.safetensors").exists()
