"""Golden runs that take more than one command, several processes, or a look inside an episode."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from gguf_files import write_gguf
from golden import command, forget_modules, write_inputs
from inprocess import result_of
from openenv_servers import URL, PretendServer
from ranks import Ranks
from tiny_models import tiny_model

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import Reinforce
from agents.language import gguf
from rlenv.tokenizer import train_tokenizer

FILE = "--problems words.jsonl --column prompt=q --column answer=a"
TEXTS = ["what is twelve plus thirteen", "is it not 25, abcdef?", "hello there, who is it", "a quick brown fox"] * 9
SMALL = "--sft-steps 0 --episodes-per-update 8 --eval-episodes 2 --eval-every 0 --log-interval 1 --device cpu --json"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    write_inputs(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget_modules()


def test_a_gguf_file_is_trained_and_exported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "HF_HOME", str(folder / "home"))
    tokenizer = train_tokenizer(300, TEXTS)
    write_gguf(folder / "tiny.gguf", tiny_model("llama", len(tokenizer)), tokenizer)
    line = f"train --model tiny.gguf {FILE} --verifier exact --episodes 8 --max-new-tokens 3 --log-dir run {SMALL}"
    assert result_of(command(line))["updates"] == 1
    (folder / "tiny.gguf").unlink()
    assert result_of(command("export run out --json"))["folder"] == "out"
    assert {"model.safetensors", "tokenizer.json"} <= {path.name for path in (folder / "out").iterdir()}


def test_an_openenv_server_is_trained_against(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = PretendServer()
    server.install(monkeypatch)
    more = "--max-new-tokens 3 --max-turns 2 --max-reply-tokens 30"
    result = result_of(command(f"train --verifier openenv:{URL} {more} --episodes 8 --log-dir run {SMALL}"))
    assert result["updates"] == 1 and result["failures"]["error"] == 0
    assert len(server.resets) >= 8 and not server.sessions


PROMPTS = [{"prompt": f"{number}+1=", "level": 1 + (number > 4)} for number in range(9)]
CHOICES = [{"curriculum": 1.0}, {"prompt_choice": "thompson"}]


def by_prompt(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    return [float(prompt[0] in "01234") for prompt in prompts]


def chosen(how: dict[str, Any]) -> Any:
    """Return where the choice of problems stands after five updates."""
    world = {"verifier": by_prompt, "problems": PROMPTS, "test_fraction": 0.0, "max_new_tokens": 1, **how}
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=world, num_envs=64, episodes_per_update=64, device="cpu")
    agent.learn(total_episodes=5 * 64)
    return agent.env.state_dict()["stream"]["curriculum"]


@pytest.mark.parametrize("how", CHOICES, ids=str)
def test_two_processes_choose_the_problems_of_one(tmp_path: Path, how: dict[str, Any]) -> None:
    two = Ranks(2, tmp_path)
    try:
        first, second = two(chosen, how)
    finally:
        two.close()
    assert first == second == chosen(how)
    assert first.get("level", 2) == 2 and first["counts" if "prompt_choice" in how else "level"]


@pytest.mark.slow
def test_compare_runs_every_agent_with_every_seed(folder: Path) -> None:
    pole = "--env CartPole-v1 --env-arg max_episode_steps=40 --agents reinforce,rloo --seeds 2 --jobs 2 --device cpu"
    more = "--episodes 16 --episodes-per-update 8 --eval-episodes 2 --log-interval 1 --log-dir compared --json"
    report = result_of(command(f"compare {pole} {more}"))
    assert [(row["agent"], row["runs"]) for row in report["rows"]] == [("reinforce", 2), ("rloo", 2)]
    runs = {f"{agent}/seed-{seed}" for agent in ("reinforce", "rloo") for seed in (0, 1)}
    assert all((folder / "compared" / run / "result.json").is_file() for run in runs)
    assert {"report.json", "report.md", "curves.png"} <= {path.name for path in (folder / "compared").iterdir()}
    assert not report["failed"]


@pytest.mark.neighbours
def test_a_served_verifier_judges_what_a_client_says() -> None:
    from openenv import GenericEnvClient

    line = [sys.executable, "-m", "rlenv", "serve", "--verifier", "arith", "--port", "0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdout is not None
        url = served.stdout.readline().split(" at ")[1].split(",")[0]
        with GenericEnvClient(url).sync() as env:
            prompt = env.reset(seed=3).observation["text"]
            result = env.step({"text": str(sum(map(int, prompt.rstrip("=").split("+"))))})
        assert result.done and result.reward == 1 and result.metadata["is_success"]
        served.send_signal(signal.SIGTERM)
        assert served.wait(60) == 0
