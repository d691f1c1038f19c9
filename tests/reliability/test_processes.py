"""rlenv under torchrun: one voice, one run folder; a process that ends or hangs ends the job, and resuming goes on."""

import json
import re
import signal
import time

import pytest
from inprocess import done, result_of, run
from processes import finished, until, worker
from transformers import AutoModelForCausalLM

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import Agent
from rlenv.agents.policies.base import weights_digest

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
TRAIN = ["train", "--device", "cpu", "--eval-episodes", 8, "--eval-every", 0, "--episodes-per-update", 8]
TRAIN += ["--num-envs", 8, "--no-report"]
WARM = ["--verifier-arg", "digits=1", "--sft-steps", 60]


def loaded(run):
    """Return the hash of a run's weights, read by this process alone, and its number of episodes."""
    agent = Agent.load(run / "checkpoint", device="cpu")
    return weights_digest(agent.policy), agent.num_episodes


@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_the_job_within_30_seconds_and_one_command_goes_on(jobs, tmp_path, victim):
    job = jobs.start(*TRAIN, *WARM, "--episodes", 10**6, "--save-every-updates", 2, "--log-dir", "run")
    chosen = worker(job, victim)
    until((tmp_path / "run" / "checkpoint").exists, 600)
    chosen.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    code, _, errors = finished(job)
    assert time.monotonic() - killed < 30, errors
    assert code != 0, errors
    _, before = loaded(tmp_path / "run")
    code, _, errors = jobs.run("train", "--resume", "run", "--episodes", before + 16)
    assert code == 0, errors
    assert loaded(tmp_path / "run")[1] == before + 16


def test_a_verifier_that_hangs_in_one_process_ends_the_job(jobs, tmp_path):
    (tmp_path / "sums.csv").write_text("prompt,answer\n1+1=,2\n1+2=,3\n2+2=,4\n1+3=,4\n")
    (tmp_path / "rewards.py").write_text(HANGS)
    options = ["--problems", "sums.csv", "--verifier", "rewards.py:hang", "--sft-steps", 0, "--process-timeout", 10]
    code, _, errors = jobs.run(*TRAIN, *options, "--test-fraction", 0.3, "--log-dir", "run")
    assert code != 0
    assert re.findall("^Error: .*--process-timeout", errors, re.MULTILINE), errors


HANGS = """
import os, time

def hang(prompts, completions, **columns):
    while os.environ["RANK"] == "1":
        time.sleep(1)
    return [0.0] * len(prompts)
"""


def test_evaluations_are_equal(jobs, tmp_path, text_run):
    evaluation = ["evaluate", text_run, "--device", "cpu", "--episodes", 63, "--samples", 20]
    found = []
    for processes in (1, 3):
        assert jobs.run(*evaluation, "--out", f"{processes}.jsonl", processes=processes)[0] == 0
        lines = (tmp_path / f"{processes}.jsonl").read_text().splitlines()
        assert [json.loads(line)["problem"] for line in lines[63:]] == [n // 20 for n in range(1260)]
        found.append(lines[:63])
    assert found[0] == found[1], "the greedy completions; each process samples with a seed of its own"


def test_a_sharded_run_is_resumed_evaluated_and_exported(jobs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    new = [*TRAIN, *WARM, "--lr-schedule", "constant", "--kl-coef", 0.01, "--shard", "--save-every-updates", 1]
    resumed = ["train", "--resume", "half", "--episodes", 32]
    halves = [*new, "--episodes", 16, "--log-dir", "half"]
    for command in ([*new, "--episodes", 32, "--log-dir", "straight"], halves, resumed):
        code, out, errors = jobs.run(*command)
        assert code == 0, errors
        assert out.count("Run folder") == 1 and errors.count("after:") == 1, "one voice"
    assert loaded(tmp_path / "half") == loaded(tmp_path / "straight")
    earlier = tmp_path / "half/checkpoint-000003"
    for command in (["export", earlier, "exported"], ["evaluate", earlier, "--episodes", 8]):
        done(*command)
    exported, saved = map(AutoModelForCausalLM.from_pretrained, (tmp_path / "exported", earlier / "policy/model"))
    assert weights_digest(exported) == weights_digest(saved)
    assert list((tmp_path / "half/evaluations").glob("checkpoint-000003-*.jsonl"))
    result_of(run("train", "--resume", "half", "--no-shard", "--episodes", 48, "--json"))
    assert loaded(tmp_path / "half")[1] == 48


def test_jobs_in_python_follow_each_other_and_name_one_folder_in_all_processes(jobs, tmp_path):
    (tmp_path / "jobs.py").write_text(JOBS)
    code, _, errors = finished(jobs.start(program=["jobs.py"]))
    assert code == 0, errors
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in "01"]
    assert found[0] == found[1] and found[0][0] == "run" and found[0][1] > 0


JOBS = """
import json, os
import rlenv

settings = {"episodes_per_update": 8, "num_envs": 8}
options = {"sft_steps": 0, "episodes": 16, "eval_episodes": 4, "eval_every": 0, "device": "cpu", "report": False}
warm = rlenv.sft(rlenv.SftConfig(sft_steps=2, eval_episodes=4, device="cpu", log_dir="warm"))
run = rlenv.train(rlenv.TrainConfig(**options, model=str(warm.folder), settings=settings, log_dir="run"))
figures = rlenv.evaluate(rlenv.EvaluateConfig(runs=[run.folder], episodes=4, device="cpu"))
with open(os.environ["RANK"] + ".json", "w") as file:
    json.dump([str(run.folder), figures["run"]["mean_ep_length"]], file)
"""
