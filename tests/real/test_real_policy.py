"""SmolLM2 acts as it is trained, writes what transformers generates, and means the same with an adapter on or off."""

import torch
from architectures import generated, greedy_episodes
from identity_checks import assert_close, check_law, collect
from pages import ROOT, run_page

from rlenv.agents import LanguageModelPolicy, Reinforce
from rlenv.agents.language import adapters
from rlenv.agents.training.update import HALF_KL_TOLERANCE

TOLERANCE = 1e-4  # nats, in float32
EPISODES = 16  # in 8 slots, which restart
TUTORIAL = "docs/tutorials/teach-a-real-model.md"


def test_it_acts_as_it_is_trained(policy, envs):
    check_law(policy, envs, TOLERANCE, EPISODES)


def test_in_bfloat16_it_acts_as_it_is_trained_within_the_limit(policy, envs):
    """The first pass of an update is measured with the learner's own figure, which stops runs above its limit."""
    settings = {"episodes_per_update": EPISODES, "micro_batch_size": 8, "learning_rate": 1e-4}
    agent = Reinforce("smollm2", envs, policy_kwargs={"dtype": "bfloat16"}, device="cpu", **settings)
    weights = {name: weight.clone() for name, weight in agent.policy.model.state_dict().items()}
    for name, weight in policy.model.state_dict().items():
        assert weights[name].dtype is torch.bfloat16 and torch.equal(weights[name], weight.bfloat16()), name
    metrics = agent.update(collect(agent.policy, envs, EPISODES))
    assert 0 < metrics["train/approx_kl"] <= HALF_KL_TOLERANCE
    assert any(not torch.equal(weight, weights[name]) for name, weight in agent.policy.model.state_dict().items())


def test_greedy_episodes_are_what_transformers_generates(policy, envs):
    encoding, episodes = envs.task.encoding, greedy_episodes(policy, envs, 16)
    assert len(episodes) > 12
    for prompt, written in episodes.items():
        assert written == generated(policy.model, prompt, encoding)
    assert any(written[-1] == encoding.eos_token_id for written in episodes.values()), "one that the end token ends"


@torch.no_grad()
def test_with_an_adapter_it_acts_as_it_is_trained_and_without_it_is_the_model(policy, envs):
    spaces = envs.single_observation_space, envs.single_action_space
    with torch.random.fork_rng():
        torch.manual_seed(0)
        adapted = LanguageModelPolicy(*spaces, "smollm2", lora_rank=8)
    assert adapted.adapter is not None and adapted.adapter.is_fresh
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.normal_(std=0.02, generator=torch.Generator().manual_seed(0))
    rollout = check_law(adapted, envs, TOLERANCE, EPISODES)
    off = LanguageModelPolicy(*spaces, adapters.without_adapter(adapted.model))
    on, without, base = (each.evaluate(rollout)["log_probs"] for each in (adapted, off, policy))
    assert (on - base).abs().max() > 0.1, "the adapter says something"
    assert_close(without, base, 0.0, "the adapter off and the model")


def test_the_tutorial_runs_as_it_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_page((ROOT / TUTORIAL).read_text(encoding="utf-8"), TUTORIAL, slow=True) == 6
