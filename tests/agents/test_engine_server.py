"""An engine at an address: what is asked of a server, in which order, and what each of its faults makes of a run."""

import re
import threading
import time
from functools import partial
from types import SimpleNamespace

import pytest
from fake_server import TOKEN, FakeServer
from refused import refusal
from tiny_models import PROMPTS, text_envs, tiny_policy

from rlenv import agents
from rlenv.agents import EngineError
from rlenv.agents.engines import server as served
from rlenv.agents.engines.base import StaleEngineError

EPISODES = 6
SETTINGS = {"episodes_per_update": EPISODES, "learning_rate": 0.02, "warmup_updates": 0}
GENERATE = "/inference/v1/generate"


def answers():
    return text_envs(EPISODES, group_size=3, max_new_tokens=4, problems=PROMPTS[:2])


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv(served.TOKEN, TOKEN)
    made = FakeServer(tiny_policy("llama", answers(), 0.7, dtype="float32"))
    yield made
    made.stop()


def made(server, policy=None, patience=5.0, folder=None, **settings):
    envs = answers()
    policy = policy or tiny_policy("llama", envs, 0.7, dtype="float32")
    arguments = {"engine_url": server.url, "engine_kwargs": {"patience": patience, "folder": folder}}
    return agents.GRPO(policy, envs, engine="vllm", **arguments, **SETTINGS | settings)


def trained(agent, updates=2, **budget):
    return [metrics for _, metrics in agent.updates(total_episodes=EPISODES * updates, **budget)]


def test_weights_have_their_version_before_they_come_and_each_round_after(server, tmp_path):
    agent = made(server, folder=str(tmp_path))
    metrics = trained(agent)
    assert max(each["train/engine_gap"] for each in metrics) < 1e-5
    paths = [path for path, _ in server.asked]
    sync = ["/weight_info", "/update_weight_version", "/collective_rpc"]
    rounds = [GENERATE] * EPISODES
    assert paths == sync + rounds + sync + rounds
    for path, body in server.asked:
        if path == GENERATE:
            assert body.keys() == {"token_ids", "sampling_params", "cache_salt"}
            assert "logit_bias" not in body["sampling_params"]
    salts = [body["cache_salt"] for path, body in server.asked if path == GENERATE]
    versions = [body["new_version"] for path, body in server.asked if path == "/update_weight_version"]
    assert salts == [version for version in versions for _ in range(EPISODES)] and len(set(versions)) == 2
    folders = {body["kwargs"]["weights_path"] for path, body in server.asked if path == "/collective_rpc"}
    assert all(folder.startswith(str(tmp_path)) for folder in folders)
    assert list(tmp_path.iterdir()) == []


def test_tokens_that_only_pad_the_model_are_never_drawn(server):
    envs = answers()
    policy = tiny_policy("llama", envs, dtype="float32")
    policy.model.config.vocab_size = policy.vocab_size + 3
    engine = served.ServerEngine(server.url, policy)
    bias = engine._never["logit_bias"]
    assert list(bias) == [policy.vocab_size + more for more in range(3)] and set(bias.values()) == {-1e9}


START = "; start it with: VLLM_SERVER"
FAULTS = {  # what is asked, the status and the text of the answer, and what is said
    "another token": (GENERATE, 401, '{"error": "Unauthorized"}', f"refuses the token.*{served.TOKEN}"),
    "no dev mode": ("/weight_info", 404, '{"detail":"Not Found"}', f"no /weight_info{START}_DEV"),
    "no scale-out": (
        GENERATE, 403, '{"error": {"message": "Scale-out endpoints are disabled."}}', "no /inference.*--enable-scale",
    ),
    "out of memory": (
        GENERATE, 500, '{"error": {"message": "CUDA out of memory.\\nTried to allocate"}}',
        r"answered 500 \(CUDA out of memory. Tried to allocate\); see its log",
    ),
    "other shapes": ("/collective_rpc", 500, '{"error": {"message": "no layers.2"}}', "layers.2.*folder=FOLDER"),
    "no JSON": (GENERATE, 200, "<html>proxy</html>", f"not JSON.*<html>.*{START}"),
    "JSON beyond all depth": (GENERATE, 200, '{"choices": ' + "[" * 50_000, f"not JSON.*{START}"),
    "more than tokens take": (GENERATE, 200, '{"choices": ' + " " * 300_000, f"more than .* bytes.*{START}"),
    "no choices": (GENERATE, 200, "{}", f"without choices.*{START}"),
    "no tokens": (
        GENERATE, 200, '{"choices": [{"weight_versions": [], "logprobs": {}}]}', f"KeyError: 'token_ids'.*{START}",
    ),
}  # fmt: skip


def test_a_fault_of_the_server_ends_the_run_with_one_line(server, tmp_path):
    agent = made(server)
    for name, (path, status, text, said) in FAULTS.items():
        server.errors = {path: (status, text)}
        with pytest.raises(EngineError, match=said) as fault:
            trained(agent)
        line = str(fault.value)
        assert "\n" not in line and server.url in line and len(line) < 600, name
        agent.save(tmp_path / name)


def test_a_server_that_was_started_again_gets_the_weights_and_the_rollout_is_dropped(server):
    agent = made(server)
    trained(agent, 1)
    collect = agent.collector.collect

    def collecting(*args):
        agent.collector.collect = collect
        server.stop()
        server.restart()
        return collect(*args)

    agent.collector.collect = collecting
    with pytest.warns(UserWarning) as recorded:
        metrics = trained(agent, 2, reset_num_timesteps=False)
    (line,) = (str(one.message) for one in recorded)
    assert re.fullmatch(r"the engine at \S+ was started again, without .*; the weights are sent again", line)
    assert [each["train/engine_dropped"] for each in metrics] == [1, 1]
    assert max(each["train/engine_gap"] for each in metrics) < 1e-5


@pytest.mark.parametrize("cut", [False, True], ids=["refused", "cut off"])
def test_a_server_that_is_away_is_waited_for(server, cut, monkeypatch):
    agent = made(server)
    trained(agent, 1)
    if cut:
        server.errors[GENERATE] = "cut", ""
    else:
        server.stop()
        waiting = SimpleNamespace(sleep=lambda seconds: server.restart(), monotonic=time.monotonic)
        monkeypatch.setattr(served, "time", waiting)
    with pytest.warns(UserWarning) as recorded:
        metrics = trained(agent, 2, reset_num_timesteps=False)
    (line,) = (str(one.message) for one in recorded)
    assert re.search("was away .*; the weights are sent again" if cut else "is away .*; asking again for 5 s", line)
    assert metrics[-1]["train/engine_dropped"] == cut and metrics[-1]["train/engine_gap"] < 1e-5


def test_a_server_that_stays_away_ends_the_run_which_can_be_saved(server, tmp_path):
    agent = made(server)
    trained(agent, 1)
    server.stop()
    agent.player.engine.patience = 0.2
    with pytest.raises(EngineError, match=r"is away .*refused.*; start it with: VLLM_") as refused, pytest.warns():
        trained(agent, 1, reset_num_timesteps=False)
    server.restart()
    assert "\n" not in str(refused.value)
    agent.save(tmp_path / "saved")
    again = agents.GRPO.load(tmp_path / "saved", env=answers())
    assert again.num_updates == 1


@pytest.mark.parametrize("staleness", [0, 1])
@pytest.mark.parametrize("away", [False, True], ids=["writing", "away"])
def test_the_wait_for_a_server_ends_with_the_training(server, away, staleness, monkeypatch):
    """Neither the answers nor the server are waited for: Ctrl-C may not take ten minutes."""
    agent = made(server, patience=60.0, staleness=staleness)
    trained(agent, 1)
    asked, release, began = len(server.asked), threading.Event(), time.monotonic()
    monkeypatch.setattr(server, "choice", lambda body: release.wait(40.0))
    agent.collector.goes_on = lambda: not away and GENERATE not in {path for path, _ in server.asked[asked:]}
    if away:
        server.stop()
    assert trained(agent, 1, reset_num_timesteps=False) == [] and agent.num_updates == 1
    assert time.monotonic() - began < 20
    release.set()
    if away:
        server.restart()


def test_a_server_that_answers_later_than_patience_lasts_is_named(server):
    server.delay = 0.2
    agent = made(server, patience=0.1)
    refusal(partial(trained, agent, 1), "took over 0.1 s for /weight_info; set a longer patience", kind=EngineError)


def test_an_adapter_in_16_bits_stays_beside_the_base_and_comes_back_after_a_restart(server):
    policy = tiny_policy("llama", answers(), 0.7, dtype="bfloat16", lora_rank=2)
    agent = made(server, policy)
    engine = agent.player.engine
    engine.load(policy)
    engine.load(policy)
    (_, one), (name, other) = server.adapters.items()
    assert one.keys() == other.keys() == policy.adapter.named_weights().keys()
    begin, base, adapter = ["/weight_info", "/update_weight_version"], "/collective_rpc", "/v1/load_lora_adapter"
    assert [path for path, _ in server.asked] == [*begin, base, adapter, *begin, adapter]
    request = served.Request([2, 3], 2, 1.0, (), 0)
    assert len(list(engine.write([request]))) == 1 and server.asked[-1][1]["model"] == name == server.version
    server.adapters = {}
    with pytest.raises(StaleEngineError, match=r"started again .*The model `.*` does not exist"):
        list(engine.write([request]))
    server.errors["/v1/load_lora_adapter"] = 404, '{"detail":"Not Found"}'
    refusal(lambda: engine.load(policy), "--enable-lora, with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1", kind=EngineError)
