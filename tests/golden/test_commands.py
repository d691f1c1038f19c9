"""Golden runs: commands as a person runs them in a folder of small inputs, and what they leave.

One run per command, and per path that no other command takes: exit code, files, keys of the JSON, columns of the log,
figures within margins.
"""

from __future__ import annotations

import csv
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import pytest
from click.testing import CliRunner
from diagonal import slow
from gguf_files import write_gguf
from inprocess import result_of
from openenv_servers import URL, PretendServer
from tiny_models import tiny_model, write_chat_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv._scripts.main import COMMANDS as NAMES
from rlenv._scripts.main import main
from rlenv.agents.language import gguf
from rlenv.tokenizer import train_tokenizer

WORDS = [f"{a}{b}" for a in "abcdef" for b in "abcdef"]
WORLD = """
import gymnasium
import numpy as np

class Squares(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (3, 36, 36), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.low.copy(), {}
    def step(self, action):
        self.steps += 1
        return self.observation_space.high.copy(), float(action), self.steps == 4, False, {}

gymnasium.register("Squares-v0", entry_point=Squares)
"""


@dataclass(frozen=True)
class Run:
    """A command and what must be left of it.

    Attributes:
        line: as typed after `rlenv`; {out} is a new folder, {text} is a finished run.
        keys: of the JSON that it prints, all of them.
        figures: by dotted names of the JSON, or by metrics of progress.csv, of the first row that has them.
        files: patterns behind {out}, as "/config.json" or ".jsonl".
        columns: of progress.csv, all of them.
        typed: lines on standard input.
        said: texts that it prints.
        code: that it ends with.
    """

    line: str
    keys: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    files: str = ""
    columns: str = ""
    typed: str = ""
    said: tuple[str, ...] = ()
    code: int = 0


def about(value, share=0.02):
    """Return what equals a figure that another machine rounds differently."""
    return pytest.approx(value, rel=share, abs=1e-6)


SMALL = "--episodes-per-update 8 --eval-episodes 4 --log-interval 1 --device cpu --log-dir {out} --json"
RESULT = (
    "run_dir env agent seed timesteps trained_timesteps episodes updates seconds sft_steps sft_loss sft_seconds "
    "initial_eval eval failures interrupted"
)
POLICY = "/config.json /result.json /checkpoint/agent.json /checkpoint/manifest.json /checkpoint/training.safetensors"
TRAINED = f"{POLICY} /checkpoint-000000 /progress.csv /*/events.out.tfevents.*"
MODEL = "/checkpoint/policy/model/model.safetensors /checkpoint/policy/model/tokenizer.json"
TEXT = f"{TRAINED} {MODEL} /samples.jsonl"
LOGGED = (
    "eval/mean_ep_length eval/mean_reward time/episodes time/iterations time/total_timesteps time/trained_timesteps "
    "time/fps time/acting_frac time/environment_frac time/training_frac rollout/ep_len_mean rollout/ep_rew_mean "
    "rollout/frac_reward_zero_std rollout/group_size_min rollout/reward_std rollout/truncated_frac train/approx_kl "
    "train/entropy_loss train/ess train/grad_norm train/learning_rate train/logp_gap_max train/loss train/policy_loss"
)
CRITIC = f"{LOGGED} train/explained_variance train/value_loss"
SOLVED = f"{LOGGED} eval/success_rate rollout/success_rate rollout/special_tokens"
TURNS = f"{SOLVED} rollout/turns"
FILE = "--problems words.jsonl --column prompt=q --column answer=a"
NO_FAILURES = {"timeout": 0, "error": 0, "not_applicable": 0, "skipped_updates": 0}

COMMANDS = {
    "train on sums": Run(
        f"train --verifier-arg digits=1 --sft-steps 4 --sft-examples 8 --sft-batch-size 4 --episodes 16 {SMALL}",
        RESULT,
        {"env": "TextGen-v0", "agent": "reinforce-baseline", "updates": 2, "failures": NO_FAILURES}
        | {"eval.split": "test", "eval.deterministic": True, "sft_loss": about(1.9637)},
        files=TEXT,
        columns=SOLVED,
    ),
    "train on a file with chat prompts": Run(
        f"train --verifier exact --problems talks.jsonl --model model --episodes 8 --sft-steps 1 --sft-examples 4 "
        f"--max-new-tokens 4 {SMALL}",
        RESULT,
        {"updates": 1, "sft_loss": about(6.5815), "time/episodes": 0},
        files=f"{TEXT} /checkpoint/policy/model/chat_template.jinja",
        columns=SOLVED,
    ),
    "train on CartPole": Run(
        f"train --env CartPole-v1 --env-arg max_episode_steps=40 --episodes 16 {SMALL}",
        RESULT,
        {"env": "CartPole-v1", "updates": 2, "eval.success_rate": None, "train/entropy_loss": about(-0.693, 0.05)},
        files=f"{TRAINED} /checkpoint/policy/policy.safetensors",
        columns=LOGGED,
    ),
    "train with a tool": Run(
        f"train --tool calculator --verifier-workers 0 --max-turns 2 --max-new-tokens 8 --max-reply-tokens 30 "
        f"--sft-steps 0 --episodes 8 {SMALL}",
        RESULT,
        {"updates": 1, "eval.mean_turns": 1.0},
        files=TEXT,
        columns=f"{TURNS} rollout/tool_calls rollout/tool_errors",
    ),
    "train with LoRA": Run(
        f"train --model model --lora-rank 4 --problems talks.jsonl --verifier exact --kl-coef 0.1 --episodes 8 "
        f"--max-new-tokens 4 --sft-steps 0 {SMALL}",
        RESULT,
        {"updates": 1, "train/entropy_loss": about(-5.048)}
        | {"train/learning_rate": about(0.0003), "train/kl_ref": about(0)},
        files=f"{TRAINED} /checkpoint/policy/model/adapter_model.safetensors /checkpoint/reference",
        columns=f"{SOLVED} train/kl_ref",
    ),
    "sft": Run(
        f"sft {FILE} --epochs 2 --sft-batch-size 8 --verifier exact --eval-episodes 4 --device cpu --log-dir {{out}} "
        "--json",
        "run_dir env seed steps examples loss initial_eval_loss eval_loss seconds eval interrupted",
        {"examples": 30, "steps": 8, "initial_eval_loss": about(4.6073), "eval_loss": about(3.199, 0.1)},
        files=f"{POLICY} {MODEL}",
    ),
    "reward-model": Run(
        "reward-model --pairs pairs.jsonl --column split=split --batch-size 10 --epochs 2 --device cpu --log-dir {out} "
        "--json",
        "run_dir seed steps learning_rate pairs held_out_pairs loss seconds initial_eval eval interrupted",
        {"pairs": 30, "held_out_pairs": 6, "steps": 6, "eval.accuracy": 1.0, "initial_eval.loss": about(0.673)},
        files="/config.json /result.json /model/model.safetensors /model/tokenizer.json",
    ),
    "evaluate": Run(
        "evaluate {text} --episodes 4 --samples 2 --out {out}.jsonl --device cpu --json",
        "episodes mean_reward success_rate mean_ep_length deterministic split success_interval truncated_share "
        "problems reward_std sampled completions",
        {"episodes": 4, "problems": 3, "split": "test", "sampled.samples": 2, "sampled.episodes": 8},
        files=".jsonl .json",
    ),
    "report": Run(
        "report {text} --out {out}.html --json", "report runs kinds findings", {"runs": 1, "kinds": 1}, files=".html"
    ),
    "doctor": Run("doctor {text} --fail-on warning", said=("[hard-start]",), code=1),
    "play": Run(
        "play --verifier arith --verifier-arg digits=1 --episodes 1 --seed 3",
        typed="5\n/end\n",
        said=('prompt  "6+9="', 'answer  "5" <eos>', "reward  0  not solved", 'right   "15"', "1 episode"),
    ),
    "watch": Run(
        "play {text} --watch --episodes 1 --seed 3 --json",
        "episodes mean_reward success_rate ended played",
        {"episodes": 1},
    ),
    "export": Run(
        "export {text} {out} --json",
        "folder checkpoint",
        files="/README.md /config.json /generation_config.json /model.safetensors /tokenizer.json /rlenv_export.json",
    ),
    "tasks": Run(
        "tasks --json",
        "gsm8k math math500 dapo-math aime aime25 countdown ifeval mbpp humaneval",
        {"gsm8k.verifier": "numeric", "math500.test_fraction": about(1)},
    ),
    "verifiers list": Run("verifiers list", said=("arith", "weighted")),
    "verifiers show": Run("verifiers show arith -n 2 --seed 1", said=("demonstration", "wrong", "empty", "digits")),
    "verifiers lint": Run("verifiers lint arith --json", "verifiers skipped"),
    "lab": Run(
        "lab pass-at-k --out {out} --json",
        "lab claim held checks figures seed seconds",
        {"lab": "pass-at-k", "held": True},
        files="/pass-at-k.csv /pass-at-k.json /pass-at-k.png",
    ),
    "bench": Run("bench --list", said=("trl-grpo", "sb3", "generate")),
    "info": Run("info --json", "versions extras machine"),
    "train: what would fit": Run(
        "train --dry-run --json --device cpu", "parameters bytes peaks available processes remedies"
    ),
    "images": Run(
        f"train --env worlds:Squares-v0 --model CnnPolicy --agent a2c --episodes 16 {SMALL}",
        RESULT,
        {"timesteps": 64, "rollout/ep_len_mean": 4.0, "train/entropy_loss": about(-0.693, 0.05)},
        files=TRAINED,
        columns=CRITIC,
    ),
    "compare": Run(
        "compare --env CartPole-v1 --env-arg max_episode_steps=40 --agents reinforce,rloo --seeds 2 --jobs 2 --report "
        f"--episodes 16 {SMALL}",
        "run_dir env figure goal rows runs failed",
        {"env": "CartPole-v1", "goal": 475.0, "failed": []},
        files="/reinforce/seed-0/result.json /reinforce/seed-1/result.json /rloo/seed-0/result.json "
        "/rloo/seed-1/result.json /report.json /report.md /report.html",
    ),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Return the working folder, with what the commands read: problems, pairs, a module."""
    splits = {word: "test" if word[0] == "c" else "train" for word in WORDS}
    rows = [{"q": f"{word}>", "a": word[::-1], "split": split} for word, split in splits.items()]
    answers = [{"chosen": row["a"], "rejected": f"{row['a']}x"} for row in rows]
    pairs = [{"prompt": row["q"], "split": row["split"]} | two for row, two in zip(rows, answers, strict=True)]
    talks = [{"messages": [{"role": "user", "content": word}], "answer": word} for word in WORDS]
    for name, lines in {"words": rows, "pairs": pairs, "talks": talks}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "worlds.py").write_text(WORLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("worlds", None)
    gymnasium.registry.pop("Squares-v0", None)


def command(line, typed="", **places):
    return CliRunner().invoke(main, [word.format(**places) for word in shlex.split(line)], input=typed)


@pytest.mark.parametrize("name", [slow(name) if name == "compare" else name for name in COMMANDS])
def test_a_command_leaves_what_it_always_left(name, folder, text_run):
    run, out = COMMANDS[name], folder / "out"
    if "--model model" in run.line:
        write_chat_model(folder / "model")
    outcome = command(run.line, run.typed, out=out, text=text_run)
    assert outcome.exit_code == run.code, f"{outcome.output}{outcome.exception!r}"
    for text in run.said:
        assert text in outcome.output, f"{text!r} is not in {outcome.output}"
    assert not [pattern for pattern in run.files.split() if not list(folder.glob(f"out{pattern}"))]
    found = result_of(outcome, run.code) if run.keys else {}
    rows = list(csv.DictReader((out / "progress.csv").read_text().splitlines())) if run.columns else []
    for left, listed in ((found, run.keys), (rows[0] if rows else {}, run.columns)):
        gone, new = {*listed.split()} - {*left}, {*left} - {*listed.split()}
        assert not gone and not new, f"{sorted(gone)} are gone, {sorted(new)} are new"
    figures = {name: figure(name, found, rows) for name in run.figures}
    assert figures == dict(run.figures), f"{figures} instead of {run.figures}"


def figure(name, found, rows):
    """Return a figure of the JSON, or of the first row of progress.csv that has it."""
    if "/" in name:
        return next(float(row[name]) for row in rows if row[name])
    for part in name.split("."):
        found = found[part]
    return found


def test_every_command_has_a_golden_run():
    elsewhere = {"serve", "check-gradient"}  # neighbours/; scripts/test_check_gradient.py
    assert {run.line.split()[0] for run in COMMANDS.values()} | elsewhere == {*NAMES}


# Runs that take more than one command, or a look inside an episode.


TEXTS = ["what is twelve plus thirteen", "is it not 25, abcdef?", "hello there, who is it", "a quick brown fox"] * 9
SHORT = "--sft-steps 0 --episodes-per-update 8 --eval-episodes 2 --eval-every 0 --log-interval 1 --device cpu --json"


def test_a_gguf_file_is_trained_and_exported(folder, monkeypatch):
    monkeypatch.setattr(gguf, "HF_HOME", str(folder / "home"))
    tokenizer = train_tokenizer(300, TEXTS)
    write_gguf(folder / "tiny.gguf", tiny_model("llama", len(tokenizer)), tokenizer)
    line = f"train --model tiny.gguf {FILE} --verifier exact --episodes 8 --max-new-tokens 3 --log-dir run {SHORT}"
    assert result_of(command(line))["updates"] == 1
    assert result_of(command("export run out --json"))["folder"] == "out"
    assert {"model.safetensors", "tokenizer.json"} <= {path.name for path in (folder / "out").iterdir()}


def test_an_openenv_server_is_trained_against(folder, monkeypatch):
    server = PretendServer()
    server.install(monkeypatch)
    more = "--max-new-tokens 3 --max-turns 2 --max-reply-tokens 30"
    result = result_of(command(f"train --verifier openenv:{URL} {more} --episodes 8 --log-dir run {SHORT}"))
    assert result["updates"] == 1 and result["failures"]["error"] == 0
    assert len(server.resets) >= 8 and not server.sessions
