"""vLLM itself acts, on a CPU: its log-probabilities, the guard's faults, adapters, 16 bits, dialogues and resuming."""

import pytest
from dialogues import calling, talking
from engine_models import LONG, SETTINGS, answers, check_replayed, largest, policy_for, trained
from tiny_models import VOCABULARY

from rlenv import agents
from rlenv.agents import EngineError
from rlenv.agents.engines import player as guarded
from rlenv.agents.engines import vllm

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore")]  # of vLLM and of what it imports
SMALL = {"engine_kwargs": {"kv_cache_memory_bytes": 2**26}}
TIED = {"shape": {"tie_word_embeddings": True}}
PADDED = {"shape": {"tie_word_embeddings": True, "vocab_size": VOCABULARY + 6}}
POLICIES = [{}, {"lora_rank": 2}, TIED, TIED | {"lora_rank": 2}, PADDED]


def made(envs=None, settings=None, cls=agents.GRPO, **policy):
    envs = answers() if envs is None else envs
    return cls(policy_for(envs, **policy), envs, engine="vllm", **SETTINGS | SMALL | (settings or {}))


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("staleness", [0, 1])
def test_float32_agrees_to_rounding_update_after_update(policy, staleness):
    metrics = trained(made(settings={"staleness": staleness}, **policy), 4)
    assert largest(metrics) < 1e-4
    assert staleness or largest(metrics, "train/logp_gap_max") < 1e-3


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_16_bits_agree_as_far_as_they_can(policy):
    agent = made(dtype="bfloat16", **policy)
    assert largest(trained(agent, 4)) < guarded.HALF_LIMIT
    assert (agent.player.engine._adapter is not None) == ("lora_rank" in policy)


@pytest.mark.parametrize("make", [talking, calling])
def test_a_thousand_turns_are_what_single_steps_make(make):
    """Each episode, played again with its own tokens by the unbatched environment, reads, ends and pays the same."""
    agent = made(make(100), {"episodes_per_update": 500}, agents.Reinforce, temperature=2.0)
    check_replayed(agent, make, 500, turns=1000, calls=200, errors=20)


def left_out(engine, monkeypatch):
    monkeypatch.setattr(engine, "load", lambda policy: None)


def half(engine, monkeypatch):
    whole = vllm.weights_of
    monkeypatch.setattr(vllm, "weights_of", lambda *args, **more: [*whole(*args, **more)][::2])


def old_prefixes(engine, monkeypatch):
    monkeypatch.setattr(engine.llm, "reset_prefix_cache", lambda: True)


def hotter(engine, monkeypatch):
    as_asked = vllm.sampling
    monkeypatch.setattr(vllm, "sampling", lambda request: as_asked(request) | {"temperature": 1.0})


def another_model(engine, monkeypatch):
    load = engine.load

    def loading(policy):
        load(policy_for(answers(), seed=1))

    monkeypatch.setattr(engine, "load", loading)


@pytest.mark.parametrize("fault", [left_out, half, old_prefixes, hotter, another_model])
def test_the_guard_finds_planted_faults_at_the_first_update(fault, monkeypatch):
    agent = made(answers(**LONG), {"engine_kwargs": SMALL["engine_kwargs"] | {"block_size": 32}})
    trained(agent, 1)
    fault(agent.player.engine, monkeypatch)
    with pytest.raises(EngineError, match=r"also after the weights were sent again|the log-probability nan"):
        trained(agent, 1, reset_num_timesteps=False)
    assert agent.num_updates == 1


def test_another_version_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(vllm, "VERSION", "0.1.0")
    with pytest.raises(ValueError, match=r"tested with one version, and this is 0.32.0: pip install") as refused:
        trained(made(), 1)
    assert "\n" not in str(refused.value)
