"""`rlenv train`, as a person runs it, with everything made small."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from gymnasium.envs.registration import EnvSpec, registry
from inprocess import error_of, result_of, run
from loaded import loaded
from tiny_models import write_chat_model

import rlenv
from rlenv._scripts.config.arguments import build_agent
from rlenv._scripts.jobs import session
from rlenv._scripts.jobs.job import TrainJob
from rlenv._scripts.process import progress
from rlenv._scripts.reports.history import read_run
from rlenv._scripts.train import train
from rlenv.agents.files import Lock
from rlenv.agents.rollouts import collector
from rlenv.task import TextGenTask

SMALL = ["--eval-episodes", 2, "--episodes-per-update", 8, "--log-interval", 1, "--sft-steps", 0, "--json"]


def test_training_stops_at_the_reward_that_was_asked_for(tmp_path):
    small = ["--env", "CartPole-v1", "--stop-reward", 30, "--eval-episodes", 20]
    outcome = run("train", *small, "--log-dir", tmp_path / "run", "--json")
    result = result_of(outcome)
    assert result["timesteps"] < 100_000 and result["eval"]["mean_reward"] > 25
    bar = outcome.stderr.partition("after:")[0].splitlines()[-1]
    assert "100%" in bar and f"reached 30 after {result['timesteps']:,} steps" in bar
    (tmp_path / "run" / "result.json").unlink()
    assert 0 < read_run(tmp_path / "run").done < 0.1, "for the doctor, a running run without a budget has the default"


@pytest.mark.parametrize(
    ("success", "episodes", "played", "reached"),
    [
        (0.75, 1000, [64], False),
        (0.85, 1000, [64, 256], False),
        (1.0, 1000, [64, 256, 1000], True),
    ],
)
def test_that_a_goal_is_far_away_is_seen_in_the_first_episodes(success, episodes, played, reached):
    asked = []

    def play(seed, count):
        asked.append((seed, count))
        return {}, SimpleNamespace(returns=(torch.arange(count) % 20 < 20 * success).float())

    agent = SimpleNamespace(num_updates=3, last_metrics={"rollout/ep_rew_mean": 0.6})
    config = SimpleNamespace(stop_reward=0.95, seed=0)
    run = SimpleNamespace(agent=agent, config=config, episodes=episodes, _tried=-1, _play=play)
    assert TrainJob._reaches_goal(run) is reached
    assert [count for _, count in asked] == played and len({seed for seed, _ in asked}) == 1
    assert TrainJob._reaches_goal(run) is False and len(asked) == len(played), "once after an update"


def test_reinforcement_begins_after_the_demonstrated_problems(tmp_path, monkeypatch):
    file = tmp_path / "words.jsonl"
    words = [f"{a}{b}{c}" for a in "abcde" for b in "abcde" for c in "abcde"]
    file.write_text("".join(json.dumps({"prompt": f"{word}>", "answer": word}) + "\n" for word in words))
    demonstrated, posed = set(), set()

    def demonstrate(task, start, count, *rest):
        demonstrated.update(task.stream[index].prompt for index in range(start, start + count))
        return session_demonstrate(task, start, count, *rest)

    def prompts(task, groups):
        made = task_prompts(task, groups)
        posed.update(prompt.problem.prompt for prompt in made if task.split == "train")
        return made

    session_demonstrate, task_prompts = session.demonstrate, TextGenTask.prompts
    monkeypatch.setattr(session, "demonstrate", demonstrate)
    monkeypatch.setattr(TextGenTask, "prompts", prompts)
    task = ["--verifier", "exact", "--problems", file, "--episodes", 8, "--agent", "reinforce", "--seed", 5, *SMALL]
    first = result_of(run("train", *task, "--sft-steps", 1, "--sft-examples", 30, "--log-dir", tmp_path / "warm"))
    assert len(demonstrated) == 30 and posed and not posed & demonstrated
    posed.clear()
    again = result_of(run("train", *task, "--model", tmp_path / "warm", "--log-dir", tmp_path / "on"))
    assert posed and not posed & demonstrated, "a run that starts from another one's warm start begins there, too"
    assert again["initial_eval"] == first["eval"], "the episodes of an evaluation stay the same"


def test_a_second_run_does_not_touch_the_folder_of_one_at_work(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    line = ["train", "--env", "CartPole-v1", "--timesteps", 50, "--episodes-per-update", 4, "--eval-episodes", 0]
    line += ["--log-dir", tmp_path]
    with Lock(tmp_path / ".lock", "busy"):
        said = error_of(run(*line, "--overwrite"))
        assert f"another run is writing to the run folder '{tmp_path}'" in said
        assert {path.name for path in tmp_path.iterdir()} == {"config.json", ".lock"}
    (tmp_path / ".lock").touch()  # what a killed run leaves
    assert run(*line).exit_code == 2
    result_of(run(*line, "--overwrite", "--json"))
    assert not (tmp_path / ".lock").exists()


def test_an_environment_that_never_ends_is_one_line_and_its_steps_are_shown(tmp_path, monkeypatch):
    endless = EnvSpec("Endless-v0", entry_point="gymnasium.envs.classic_control:PendulumEnv")
    monkeypatch.setitem(registry, "Endless-v0", endless)
    monkeypatch.setattr(collector, "ENDLESS", 200)
    monkeypatch.setattr(progress, "LINE_SECONDS", 0)
    small = ["--timesteps", 50, "--num-envs", 2, "--eval-episodes", 0]
    outcome = run("train", "--env", "Endless-v0", *small, "--log-dir", tmp_path / "run")
    assert outcome.exit_code == 2
    assert re.search(r"^Error: no episode has ended in 200 steps.*max_episode_steps=", outcome.stderr, re.MULTILINE)
    assert re.search("training: .* 400 steps, no episode has ended yet", outcome.stderr)


# Every recipe in configs/ is a configuration whose agent can be built, without a warning.

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "configs").glob("*.yaml"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_builds_its_agent(path, tmp_path, monkeypatch):
    text = path.read_text(encoding="utf-8")
    assert f"rlenv train --config configs/{path.name}" in text
    options = ["--config", str(path), "--device", "cpu"]
    monkeypatch.chdir(ROOT)  # a verifier may be a file of examples/
    if "smollm2" in path.name:
        write_chat_model(tmp_path, context=512)
        options += ["--model", str(tmp_path), "--lora-rank", "2"]
    if "make_problems.py" in text:
        problems = str(tmp_path / "problems.jsonl")
        monkeypatch.setattr(sys, "argv", ["make_problems.py", problems, "--count", "100"])
        loaded("examples/word_problems/make_problems.py").main()
        options += ["--problems", problems]
    with train.make_context("train", options) as context:
        config = context.params["config"]
        agent = build_agent(config.agent, config)
        first = agent.env.reset(seed=0)[0]
        agent.env.close()
    assert config.episodes or config.timesteps
    if "\nenv:" in text:
        assert config.env_id == path.stem and agent.normalize_rewards
    else:
        assert int(first["length"].min()) > 0


STAGES = {  # of GSM8K: a config, and the command it is for
    "evaluate": ("rlenv evaluate", rlenv.EvaluateConfig),
    "sft": ("rlenv sft", rlenv.SftConfig),
    "grpo": ("rlenv train", rlenv.TrainConfig),
}


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_of_gsm8k_is_read_and_all_of_them_pose_the_same_prompts(name):
    command, config = STAGES[name]
    path = ROOT / "configs" / "gsm8k" / f"{name}.yaml"
    assert f"{command} " in path.read_text(encoding="utf-8")
    posed = config.from_file(path)
    assert (posed.verifier, Path(posed.problems).name) == ("numeric", "gsm8k.jsonl")
    assert posed.chat and not posed.ask
