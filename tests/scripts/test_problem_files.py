"""What users have in files: found again from anywhere, or kept in the checkpoint; their code with trust alone.

Problems, models and chat templates; then functions, tools, agents and environments.
"""

import itertools
import json
import re
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import pytest
from click.testing import CliRunner
from huggingface_hub import HfApi
from inprocess import done, error_of, result_of, run
from local_hub import serve
from refused import refusal
from tiny_models import write_chat_model

from rlenv import hub
from rlenv._scripts.config.names import resume_command
from rlenv._scripts.jobs import reward_model, warm_start
from rlenv._scripts.main import main
from rlenv.agents import Agent
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


MINE = """
from __future__ import annotations
from dataclasses import dataclass
from pathlib import Path
import gymnasium as gym
from rlenv.agents import Reinforce
from gymnasium.envs.classic_control import CartPoleEnv
from neighbour import FACTOR

Path("imported").touch()

@dataclass
class Size:
    liters: float = FACTOR

class Tank(CartPoleEnv):
    pass

gym.register("Tank-v0", Tank, max_episode_steps=30)

class Halved(Reinforce):
    def __init__(self, policy, env, *, factor: float = FACTOR, **settings):
        self.factor = factor
        super().__init__(policy, env, **settings)
    def advantages(self, rollout):
        return self.factor * super().advantages(rollout)

def right(prompts, completions, target, **kwargs):
    return [float(said == str(wanted)) for said, wanted in zip(completions, target)]

def double(x: int) -> int:
    return 2 * x

def solve(problem, client):
    messages = [{"role": "user", "content": problem.text}]
    answer = client.chat.completions.create(messages=messages, max_tokens=3).choices[0].message.content
    messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "sure?"}]
    sure = client.chat.completions.create(messages=messages, max_tokens=3).choices[0].message.content
    return (answer == problem.answer) + 0.125 * (answer == sure), {"said": float(len(answer))}
"""


def forget(folder):
    """Forget the modules of a folder, as another process would not know them."""
    gym.registry.pop("Tank-v0", None)
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None) or "").startswith(str(folder)):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working folder with sums, conversations, pairs, a chat template and modules; Python does not find these."""
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
    for name, text in {"plain_reward": REWARD, "neighbour": "FACTOR = 0.5\n", "mine": MINE}.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forget(tmp_path)


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
    assert f"{said}; take the split 'train'" in error_of(run("evaluate", "run", "--trust"))
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


def test_an_adapter_learns_from_conversations_and_judges_a_run_of_them(folder, monkeypatch):
    save, locked = reward_model.save_reward_model, []
    monkeypatch.setattr(
        reward_model, "save_reward_model", lambda *of: locked.append([*Path().glob("*/.lock")]) or save(*of)
    )
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
    assert locked == [[Path("judge/.lock")], [Path("more/.lock")]], "its folder is its own until it is written"
    assert more["initial_eval"] == pytest.approx(learned["eval"], abs=1e-5), "it goes on from the first one"
    for options in ([], ["--adapter"]):
        assert run("export", "judge", "out", *options).exit_code == 0
        assert rates("out") == pytest.approx(means, abs=1e-4)
        card = (folder / "out/README.md").read_text()
        assert "held-out pairs: " in card and '"pairs": "pairs.jsonl"' in card and "rlenv reward-model" in card
    assert (folder / "out/adapter_model.safetensors").is_file() and not (folder / "out/model.safetensors").exists()


# Functions, tools, agents, environments and programs.

FEW = "--episodes 4 --episodes-per-update 4 --eval-episodes 2 --eval-every 0 --no-report --device cpu --json"
POLE = "--env CartPole-v1 --num-envs 2"
SUMS = "--problems sums.jsonl --column prompt=question --column answer=target --sft-steps 0"
TEXT = f"{SUMS} --max-new-tokens 3"
TOOL = "--tool calculator --verifier-workers 0 --sft-steps 0 --max-turns 2 --max-new-tokens 8 --max-reply-tokens 30"
EVALUATE = ["evaluate", "--episodes", 2, "--device", "cpu"]
PLAY, RESUME = ["play", "--watch", "--episodes", 1], ["train", "--episodes", 8, "--resume"]
PROGRAM = f"{SUMS} --verifier program:mine.py:solve --max-turns 2 --max-reply-tokens 8 --agent grpo --group-size 2"
PROGRAM += " --verifier-workers 0"
KINDS = {  # options, the name under which the file is refused elsewhere, and the command that reads it there
    "a function": (f"{TEXT} --verifier mine.py:right", "mine.py:right", EVALUATE),
    "a tool": (f"{TOOL} --tool mine.py:double", "mine.py:double", PLAY),
    "an agent": (f"{POLE} --agent mine.py:Halved --agent-arg factor=0.25", "mine.py:Halved", RESUME),
    "an environment": ("--env mine.py:Tank --num-envs 2", "mine.py:Tank", EVALUATE),
    "an id in a file": ("--env mine.py:Tank-v0 --num-envs 2", "mine.py:Tank-v0", RESUME),
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_and_elsewhere_it_needs_trust(kind, folder, monkeypatch):
    options, named, reader = KINDS[kind]
    made = Path(result_of(run("train", *options.split(), *FEW.split()))["run_dir"]).absolute()
    if kind == "an agent":
        assert json.loads((made / "checkpoint" / "agent.json").read_text())["settings"]["factor"] == 0.25
        refusal(lambda: Agent.load(made / "checkpoint"), "mine.py:Halved': call that class's load")
    forget(folder)
    monkeypatch.chdir(folder / "elsewhere")
    line = error_of(run(*reader, made))
    assert f"{folder / named}'" in line and "--trust" in line
    if kind == "a tool":  # others that are named take the place of the checkpoint's
        given = ["--tool", "calculator", "--verifier", "arith", "--episodes", 2, "--json"]
        assert result_of(run("evaluate", made, *given))["episodes"] == 2
    assert not Path("imported").exists()
    done(*reader, made, "--trust")
    assert Path("imported").exists()


WORLD = """
import gymnasium as gym
from gymnasium import spaces

class Short(gym.Env):
    observation_space = action_space = spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        return 0, 1.0, True

class Unmade(Short):
    def __init__(self):
        self.lines = {}["first"]

class Fallen(Short):
    def step(self, action):
        return 1 / 0
"""
WORLDS = {  # class: its line that raises an exception, and what the last line of the output has
    "Short": ("", ("step: Expected `Env.step` to return", "(observation, reward, terminated, truncated, info)")),
    "Unmade": ('self.lines = {}["first"]', ("__init__ raised KeyError", "'first'")),
    "Fallen": ("return 1 / 0", ("step raised ZeroDivisionError", "division by zero")),
}


@pytest.mark.parametrize("name", WORLDS)
def test_an_environment_that_is_broken_is_one_line_after_the_traceback_of_its_own_code(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("world.py").write_text(WORLD)
    line, said = WORLDS[name]
    ended = run("train", "--env", f"world.py:{name}", *FEW.split(), "--log-dir", "run")
    *before, last = ended.stderr.splitlines()
    assert ended.exit_code == 2 and all(word in last for word in (f"Error: environment {name}", *said)), ended.output
    assert (line in map(str.strip, before)) if line else not before
    files = [each.split('"')[1] for each in before if each.startswith("  File ")]
    assert {Path(each).name for each in files} <= {"world.py"}, "frames of Gymnasium or of ours"


# A program that calls a chat API.


def test_a_program_is_trained_evaluated_and_played(folder):
    result_of(run("train", *PROGRAM.split(), *FEW.split(), "--log-dir", "run"))
    evaluated = result_of(run("evaluate", "run", "--trust", "--json", "--episodes", 4))
    assert (evaluated["mean_turns"], evaluated["episodes"]) == (2, 4)
    played = CliRunner().invoke(main, ["play", "run", "--trust", "--episodes", "1"], "1\n/end\n1\n/end\n")
    assert played.exit_code == 0 and "sure?" in played.stdout, played.output
    assert "sure?" in (folder / "run" / "samples.jsonl").read_text()


@pytest.mark.slow
def test_two_processes_train_a_program(folder, jobs):
    code, _, errors = jobs.run("train", *PROGRAM.split(), *FEW.split(), "--log-dir", "run")
    assert code == 0, errors
    assert Agent.load(folder / "run" / "checkpoint", device="cpu", trust=True).num_episodes == 4
