"""A real `vllm serve` on the CPU writes for runs, and is killed, halted, started wrongly and given other models."""

import csv
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import torch
from engine_models import EPISODES, LONG, SETTINGS, answers, largest, policy_for, trained
from tiny_models import VOCABULARY

from rlenv import agents
from rlenv.agents import EngineError
from rlenv.agents.engines import player as guarded
from rlenv.agents.engines.server import START, TOKEN
from rlenv.tokenizer import character_tokenizer

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]
PADDED = {"vocab_size": VOCABULARY + 6, "tie_word_embeddings": True}  # six tokens that the environment lacks
SCALE_OUT, DEV_MODE = "--enable-scale-out", {"VLLM_SERVER_DEV_MODE": "1"}
DIGITS = "012345+="  # as many as ALPHABET
GUARDED = "something only we know"
SECONDS = 300  # until it answers
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
}


class VllmServe:
    """A real `vllm serve` of a model's folder.

    Args:
        folder: of the model.
        options: of the command, behind those that every test needs.
        variables: of its environment.
    """

    def __init__(self, folder, *options, **variables):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # The wheel for the CPU has no `vllm` that starts: it looks for its version under another package's name.
        command = [sys.executable, "-m", "vllm.entrypoints.launchers.api_server.entry", "--model", str(folder)]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--kv-cache-memory-bytes", str(2**26)]
        self.command = [*command, "--enforce-eager", "--logprobs-mode", "processed_logprobs", *options]
        self.folder, self.variables, self.log, self.process = folder, variables, folder.with_suffix(".log"), None

    def start(self):
        """Start, without waiting; nothing if it runs."""
        if self.process is None or self.process.poll() is not None:
            with self.log.open("ab") as log:
                self.process = subprocess.Popen(
                    self.command, env={**os.environ, **QUIET, **self.variables},
                    stdout=log, stderr=log, start_new_session=True,
                )  # fmt: skip
        return self

    def wait(self):
        """Return once it answers."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            with suppress(URLError, OSError), urlopen(f"{self.url}/health", timeout=5):
                return self
            time.sleep(0.2)
        raise AssertionError(self.log.read_text()[-3000:])

    def kill(self):
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def written(folder, tokenizer=None, **policy):
    """Write a random model, without a tokenizer unless one is given."""
    policy_for(answers(), **policy).model.save_pretrained(folder)
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    return folder


def made(server, envs=None, patience=60.0, staleness=0, **policy):
    envs = answers() if envs is None else envs
    arguments = {"engine_url": server.url, "engine_kwargs": {"patience": patience}, "staleness": staleness}
    return agents.GRPO(policy_for(envs, **policy), envs, engine="vllm", **arguments, **SETTINGS)


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    folder = written(tmp_path_factory.mktemp("padded") / "model", shape=PADDED, seed=5)
    float32 = ("--dtype", "float32", "--skip-tokenizer-init", "--block-size", "32", "--api-key", GUARDED)
    made = VllmServe(folder, SCALE_OUT, *float32, **DEV_MODE)
    yield made
    made.kill()


@pytest.fixture
def server(started, monkeypatch):
    """A server in float32, without a tokenizer, that wants a token, of a model with a padded vocabulary."""
    monkeypatch.setenv(TOKEN, GUARDED)
    return started.start().wait()


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("policy", [{}, {"lora_rank": 2}], ids=str)
def test_float32_agrees_to_rounding_update_after_update(server, policy, staleness):
    metrics = trained(made(server, shape=PADDED, staleness=staleness, **policy), 4)
    assert largest(metrics) < 1e-4 and largest(metrics, "train/engine_dropped") == 0
    assert staleness or largest(metrics, "train/logp_gap_max") < 1e-3


@pytest.mark.parametrize("salted", [True, False])
def test_prefixes_of_older_weights_are_not_read(server, salted):
    """Without the salt they would be, and the guard finds it at the second update."""
    agent = made(server, answers(**LONG), shape=PADDED)
    if salted:
        assert largest(trained(agent)) < 1e-4
        return
    ask, same = agent.player.engine._ask, {"cache_salt": "of all weights"}
    agent.player.engine._ask = lambda path, body, *more: ask(path, body | same if "generate" in path else body, *more)
    with pytest.raises(EngineError, match="also after the weights were sent again"):
        trained(agent)
    assert agent.num_updates == 1


def test_two_processes_ask_one_server_and_the_main_one_sends(server, jobs, tmp_path):
    model = written(tmp_path / "model", character_tokenizer(DIGITS), shape=PADDED)
    assert trained_by_two(jobs, server, model, "--shard") < 1e-4


def trained_by_two(jobs, server, model, *more):
    """Train with two processes of torchrun, three updates; return the largest gap of both."""
    (jobs.folder / "sums.csv").write_text("prompt,answer\n" + "".join(f"{n}+1=,{n + 1}\n" for n in range(5)))
    before = server.log.read_text()
    code, _, errors = jobs.run(
        "train", "--model", model, "--problems", "sums.csv", "--verifier", "exact", "--agent", "grpo",
        "--max-new-tokens", 4, "--engine", "vllm", "--engine-url", server.url, "--device", "cpu", "--group-size", 4,
        "--episodes-per-update", 16, "--episodes", 48, "--eval-every", 0, "--eval-episodes", 2,
        "--learning-rate", 0.02, "--log-interval", 1, "--no-report", "--log-dir", "run", *more,
    )  # fmt: skip
    assert code == 0, errors
    with (jobs.folder / "run" / "progress.csv").open() as file:
        gaps = [float(row["train/engine_gap"]) for row in csv.DictReader(file) if row["train/engine_gap"]]
    log = server.log.read_text().removeprefix(before)
    syncs = len(gaps) + 2  # two evaluations
    sending = "v1/load_lora_adapter" if "--lora-rank" in more else "collective_rpc"
    assert [log.count(f"POST /{path} ") for path in ("update_weight_version", sending)] == [syncs, syncs]
    assert len(gaps) == 3
    assert log.count("POST /inference/v1/generate ") == 48 + 2 * 2
    return max(gaps)


def test_a_server_that_is_killed_and_started_again_costs_one_rollout(server):
    agent = made(server, patience=200.0, shape=PADDED)
    trained(agent, 1)
    engine, left = agent.player.engine, iter(range(EPISODES + 3))  # in the middle of the second round
    ask = engine._ask

    def asking(path, *more):
        if "generate" in path and next(left, None) == EPISODES:
            server.kill()
            server.start()
        return ask(path, *more)

    engine._ask = asking
    with pytest.warns(UserWarning) as recorded:
        metrics = trained(agent, 3, reset_num_timesteps=False)
    lines = [str(one.message) for one in recorded if "the engine" in str(one.message)]
    assert [line for line in lines if "; asking again for" in line] == lines[:1]
    assert [line for line in lines if line.endswith("; the weights are sent again")] == lines[1:] and len(lines) == 2
    assert [each["train/engine_dropped"] for each in metrics] == [0, 1, 1]
    assert largest(metrics) < 1e-4


# 16 bits, a server with a tokenizer and a model as it is.


@pytest.fixture(scope="module")
def in_half(tmp_path_factory):
    folder = written(tmp_path_factory.mktemp("half") / "model", character_tokenizer(DIGITS), dtype="bfloat16")
    options = (SCALE_OUT, "--dtype", "bfloat16", "--enable-lora", "--max-lora-rank", "8")
    made = VllmServe(folder, *options, VLLM_ALLOW_RUNTIME_LORA_UPDATING="1", **DEV_MODE)
    yield made
    made.kill()


@pytest.fixture
def half(in_half):
    return in_half.start().wait()


@pytest.mark.parametrize("policy", [{}, {"lora_rank": 2}], ids=str)
def test_16_bits_agree_as_far_as_they_can(half, policy):
    agent = made(half, dtype="bfloat16", **policy)
    metrics = trained(agent, 4)
    assert largest(metrics) < guarded.HALF_LIMIT and largest(metrics, "train/engine_dropped") == 0
    assert bool(agent.player.engine._model) == bool(policy)


def test_each_adapter_takes_the_place_of_the_one_before(half):
    agent = made(half, dtype="bfloat16", lora_rank=2)
    for value in (0.3, -0.3):
        with torch.no_grad():
            for name, weight in agent.policy.named_parameters():
                if "lora_B" in name:
                    weight.fill_(value)
        (figures,) = trained(agent, 1, reset_num_timesteps=False)
        assert figures["train/engine_gap"] < guarded.HALF_LIMIT and figures["train/engine_dropped"] == 0
    engine = agent.player.engine  # names a new version of the weights, and sends none
    engine.load = lambda policy: setattr(engine, "_version", engine._begin()[0])
    with torch.no_grad():
        for name, weight in agent.policy.named_parameters():
            if "lora_B" in name:
                weight.fill_(0.3)
    with pytest.raises(EngineError, match="also after the weights were sent again"):
        trained(agent, 1, reset_num_timesteps=False)


def test_two_processes_send_an_adapter_of_which_each_has_a_part(half, jobs):
    more = ("--shard", "--dtype", "bfloat16", "--lora-rank", 2)
    assert trained_by_two(jobs, half, half.folder, *more) < guarded.HALF_LIMIT


@pytest.mark.parametrize("shape", [{"intermediate_size": 96}, {"num_hidden_layers": 3}, {"vocab_size": 16}], ids=str)
def test_a_server_of_another_model_ends_the_run_with_one_line(half, shape):
    """The last of this server: weights that do not fit leave it broken, or it takes them and the guard finds out."""
    with pytest.raises(EngineError, match="restart it with the model of this run") as refused:
        trained(made(half, dtype="bfloat16", shape=shape), 1)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "variables", "missing"),
    [([SCALE_OUT], {}, "weight_info"), ([], DEV_MODE, "inference/v1/generate")],
    ids=["no dev mode", "no scale-out"],
)
def test_a_server_without_an_interface_is_told_how_to_start(tmp_path, options, variables, missing):
    folder = written(tmp_path / "model")
    server = VllmServe(folder, *options, "--dtype", "float32", "--skip-tokenizer-init", **variables)
    try:
        with pytest.raises(EngineError) as refused:
            trained(made(server.start().wait()), 1)
    finally:
        server.kill()
    assert str(refused.value) == f"the engine at {server.url} has no /{missing}; start it with: {START}"
