"""`--engine` of `rlenv train`, and what other commands do with a run whose episodes an engine wrote."""

import json
import math
import shutil
import signal
from concurrent.futures import CancelledError
from dataclasses import replace

import pytest
from fake_engine import FakeEngine
from inprocess import done, error_of, result_of, run
from runs import edited

from rlenv.agents import Agent
from rlenv.agents.engines import player

SMALL = ["--verifier-arg", "digits=1", "--eval-episodes", 4, "--sft-steps", 0, "--episodes-per-update", 8]
ENGINE = ["--engine", "vllm", "--engine-arg", "block_size=16"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a finished run."""
    folder = tmp_path_factory.mktemp("made") / "run"
    with pytest.MonkeyPatch.context() as patch:
        started = standing_in(patch)
        result_of(run("train", *SMALL, *ENGINE, "--agent", "rloo", "--episodes", 16, "--log-dir", folder, "--json"))
    assert started == [{"block_size": 16}]
    return folder


@pytest.fixture
def started(monkeypatch):
    """Return the arguments of the engines that are started."""
    return standing_in(monkeypatch)


def standing_in(patch):
    """Have a test's engine stand in for vLLM, and return the arguments of each that is started."""
    started = []

    def open_engine(agent):
        started.append(agent.engine_kwargs)
        return FakeEngine(agent.policy)

    patch.setattr(player, "check_vllm", lambda: None)
    patch.setattr(player, "open_engine", open_engine)
    return started


def test_one_infinite_log_probability_in_32_answers_ends_the_run_with_one_line(started, tmp_path, monkeypatch):
    write = FakeEngine.write

    def writing(engine, requests):
        for each in write(engine, requests):
            at = each.place == 1 and len(requests) == 32  # not among the episodes of the guard
            yield replace(each, log_probs=[*each.log_probs[:-1], -math.inf]) if at else each

    monkeypatch.setattr(FakeEngine, "write", writing)
    options = ["--agent", "rloo", "--episodes-per-update", 32, "--episodes", 32, "--log-dir", tmp_path / "run"]
    ended = run("train", *SMALL, *ENGINE, *options)
    lines = [line for line in ended.output.splitlines() if line.startswith("Stopped: ")]
    assert ended.exit_code == 1 and len(lines) == 1, ended.output
    assert all(word in lines[0] for word in ("request 2 of 32", "-inf", "processed_logprobs"))


def test_a_signal_while_an_evaluation_waits_for_the_engine_saves(started, tmp_path, monkeypatch):
    def load(engine, policy):
        signal.raise_signal(signal.SIGTERM)
        assert not engine.goes_on()
        raise CancelledError

    monkeypatch.setattr(FakeEngine, "load", load)
    ended = run("train", *SMALL, *ENGINE, "--episodes", 8, "--log-dir", tmp_path / "run")
    assert ended.exit_code == 128 + signal.SIGTERM and "checkpoint written to" in ended.output, ended.output


def test_a_dry_run_starts_no_engine_and_counts_its_memory(started):
    plan = lambda *options: json.loads(done("train", "--dry-run", "--json", *SMALL, *options).stdout)  # noqa: E731
    machine = ["--plan-memory", "1G", "--device", "cuda"]
    alone, remote = plan(*machine), plan(*machine, *ENGINE, "--engine-url", "http://localhost:1")
    beside, share = plan(*machine, *ENGINE), plan(*machine, *ENGINE, "--engine-arg", "gpu_memory_utilization=0.25")
    on_cpu = plan("--plan-memory", "8G", "--device", "cpu", *ENGINE)
    assert [each["bytes"]["engine"] for each in (alone, remote, beside, share)] == [0, 0, int(0.4 * 2**30), 2**28]
    assert on_cpu["bytes"]["engine"] == 2**30 + on_cpu["bytes"]["weights"]
    assert alone["bytes"]["KV cache"] > 0 == remote["bytes"]["KV cache"] == beside["bytes"]["KV cache"]
    assert (
        remote["peaks"]["acting"] < alone["peaks"]["acting"]
        and remote["peaks"]["training"] == alone["peaks"]["training"]
    )
    assert all(share["peaks"][phase] - remote["peaks"][phase] == 2**28 for phase in remote["peaks"])
    assert started == []


def test_what_was_trained_with_an_engine_needs_none_afterwards(made, started, tmp_path):
    assert json.loads((made / "config.json").read_text())["engine"] == "vllm"
    done("evaluate", made, "--episodes", 4)
    done("play", made, "--watch", "--episodes", 1)
    done("export", made, tmp_path / "exported")
    agent = Agent.load(made / "checkpoint")
    agent.learn(total_episodes=8, reset_num_timesteps=False)
    assert agent.engine is None and agent.num_updates == 3 and started == []


def test_arguments_and_an_address_that_only_the_configuration_names_need_trust(made, started, tmp_path):
    copied = shutil.copytree(made, tmp_path / "run")
    resume = ["train", "--resume", copied, "--episodes", 24]
    line = error_of(run(*resume))
    assert "config.json' names --engine-arg" in line and "--trust or --engine-arg" in line and "block_size" in line
    assert started == []
    done(*resume, *ENGINE[:-1], "block_size=32")
    done("train", "--resume", copied, "--episodes", 32, "--trust")
    assert [each["block_size"] for each in started] == [32, 32], "what is given is kept"

    edited(copied / "config.json", lambda table: table.pop("engine_kwargs"), engine_url="http://localhost:8000")
    resume = ["train", "--resume", copied, "--episodes", 40]
    line = error_of(run(*resume))
    assert "names --engine-url http://localhost:8000; if you trust it, pass --trust or --engine-url itself" in line
    assert len(started) == 2
    done(*resume, "--engine-url", "http://localhost:8000")
