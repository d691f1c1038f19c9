"""The identities 3 and 6 of the design: the reference stays, and what was played is what is trained."""

import copy
import math

import gymnasium as gym
import pytest
import torch
from diagonal import diagonal
from dialogues import talking
from gymnasium.vector import AutoresetMode
from identity_checks import EXACT, assert_close, collect
from refused import refusal
from tiny_models import ALPHABET, PROMPTS, hash_reward, norm_in_double, reward_of, text_envs, tiny_policy

from rlenv.agents import Collector, LanguageModelPolicy, Reinforce, ReinforceBaseline, SampledPolicy
from rlenv.agents.language.nucleus import nucleus
from rlenv.agents.policies import choosing
from rlenv.agents.policies.base import actor_parameters
from rlenv.agents.policies.choosing import sample_categorical
from rlenv.agents.rollouts.action_probabilities import Choices, Onlooker
from rlenv.verifiers.function import FunctionVerifier

CPU = torch.device("cpu")
WORLDS = {"completions": text_envs, "dialogues": talking}


@diagonal("name, place, world", ["gpt2", "llama", "mistral"], ["reward", "loss"], WORLDS, rare=["mistral"])
def test_kl_is_zero_before_the_first_update_and_the_reference_never_changes(name, place, world):
    envs = world(8)
    agent = Reinforce(
        tiny_policy(name, envs), envs, episodes_per_update=8, kl_coef=0.1, kl_in=place, learning_rate=0.02, device="cpu"
    )
    agent.anchor.freeze_reference(agent.policy)
    reference = agent.anchor.reference
    before = copy.deepcopy(reference.state_dict())
    divergences, estimates, logged = [], [], []
    for _ in range(3):
        agent.anchor.freeze_reference(agent.policy)  # as whenever training goes on
        rollout = collect(agent.policy, envs, 8, seed=agent.num_updates)
        with torch.no_grad():
            divergences.append(agent.policy.evaluate(rollout, ("kl",), reference)["kl"].sum().item())
            moved = rollout.log_probs - reference.evaluate(rollout)["log_probs"]
        estimates.append(moved[rollout.mask].mean().item())
        logged.append(agent.update(rollout)["train/kl_ref"])
    assert abs(divergences[0]) <= EXACT and min(divergences[1:]) > 1e-3
    assert logged == pytest.approx(estimates, rel=0, abs=EXACT)
    assert agent.anchor.reference is reference
    assert all(torch.equal(value, before[key]) for key, value in reference.state_dict().items())
    assert not any(p.requires_grad for p in reference.parameters())
    shared = {p.data_ptr() for p in agent.policy.parameters()} & {p.data_ptr() for p in reference.parameters()}
    assert not shared


# What was played is what is trained.


@pytest.mark.parametrize(("slots", "mode"), [(3, AutoresetMode.NEXT_STEP), (30, AutoresetMode.DISABLED)])
def test_every_group_of_every_rollout_is_complete(mode, slots):
    """Also of later rollouts, whatever was started and not used at the end of the one before."""
    envs = text_envs(slots, group_size=4, autoreset_mode=mode)
    policy, collector = tiny_policy("gpt2", envs), Collector(envs, CPU)
    for _ in range(3):
        rollout = collector.collect(policy, 8, torch.Generator().manual_seed(0))
        assert_groups_share_their_prompt(rollout, 4)


def test_groups_of_single_environments_side_by_side_are_not_mixed_up():
    verifier = FunctionVerifier(hash_reward, alphabet=ALPHABET)
    settings = {"problems": PROMPTS, "test_fraction": 0.0, "group_size": 2, "max_prompt_tokens": 8, "max_new_tokens": 4}
    envs = gym.vector.SyncVectorEnv([lambda: gym.make("TextGen-v0", verifier=verifier, **settings)] * 2)
    assert_groups_share_their_prompt(collect(tiny_policy("gpt2", envs), envs, 8))


def assert_groups_share_their_prompt(rollout, size=None):
    prompts, seen = {}, rollout.observations
    for group, tokens, length in zip(rollout.groups.tolist(), seen["tokens"], seen["length"], strict=True):
        prompts.setdefault(group, []).append(tokens[:length].tolist())
    assert all(len(same) == (size or len(same)) and same == same[:1] * len(same) for same in prompts.values()), prompts


def own_rewards(envs, rollout):
    """Work out each row's reward from its own tokens [N]."""
    decode, rewards = envs.task.encoding.tokenizer.decode, []
    for row in range(len(rollout)):
        prompt = rollout.observations["tokens"][row, : rollout.observations["length"][row]]
        text = decode(rollout.actions[row, : rollout.lengths[row]].tolist(), skip_special_tokens=True)
        rewards.append(reward_of(decode(prompt.tolist()), text))
    return torch.tensor(rewards)


# What is sampled.


def test_rare_actions_of_a_large_vocabulary_are_drawn_and_impossible_ones_are_not(generator):
    rare, each = 150_000, 1e-8  # each is less than float32 can add to 1
    law = torch.full((rare + 2,), each, dtype=torch.float64)
    law[0], law[-1] = 1 - rare * each, 0
    steps = torch.tensor([0.5, 70_000.5, rare - 0.5], dtype=torch.float64)
    uniform = torch.cat([torch.tensor([0.0, 0.5], dtype=torch.float64), law[0] + each * steps])
    drawn = choosing._invert(law.log().repeat(len(uniform), 1), uniform)
    assert drawn.tolist() == [0, 0, 1, 70_001, rare]
    assert sample_categorical(torch.full((3, 5000), torch.nan), generator).max() < 5000, "a broken distribution"


HOSTILE = {  # what a checkpoint's generation_config may hold
    "do_sample": True, "temperature": 0.1, "top_k": 1, "top_p": 0.1, "repetition_penalty": 5.0, "num_beams": 4,
    "no_repeat_ngram_size": 1, "min_new_tokens": 12, "max_new_tokens": 1, "suppress_tokens": [2, 3],
    "begin_suppress_tokens": [4], "forced_bos_token_id": 5, "forced_eos_token_id": 6, "bad_words_ids": [[7], [8, 9]],
}  # fmt: skip


def test_generation_config_of_the_model_has_no_effect(tmp_path):
    """Neither set on the model nor read from its folder."""
    envs = text_envs(4)
    policy = tiny_policy("llama", envs)
    plain = collect(policy, envs, 8)
    policy.save(tmp_path)
    for setting, value in HOSTILE.items():
        setattr(policy.model.generation_config, setting, value)
    written = policy.model.generation_config.to_json_string()
    (tmp_path / "model" / "generation_config.json").write_text(written)
    loaded = LanguageModelPolicy.load(tmp_path, envs.single_observation_space, envs.single_action_space)
    norm_in_double(loaded.model)
    for changed in (policy, loaded):
        assert changed.model.generation_config.temperature == HOSTILE["temperature"]
        same = collect(changed, envs, 8)
        assert torch.equal(plain.actions, same.actions) and torch.equal(plain.log_probs, same.log_probs)


@pytest.mark.parametrize("pad_is_eos", [False, True])
def test_trained_tokens_are_the_sampled_ones_end_token_included(pad_is_eos):
    """test_dialogues.py compares each of them with what was sampled, test_collector.py with what came to be played."""
    envs = text_envs(3, pad_is_eos=pad_is_eos)
    rollout = collect(tiny_policy("gpt2", envs), envs, 12)
    last = rollout.actions.gather(1, rollout.lengths[:, None] - 1)[:, 0]
    end = envs.unwrapped.task.encoding.eos_token_id
    ended = last == end
    assert ended.any() and torch.equal(ended, ~rollout.truncated)
    assert int((rollout.actions.where(rollout.mask, -1) == end).sum()) == int(ended.sum())


@diagonal("name, pad_is_eos", ["gpt2", "llama", "mistral"], [False, True], rare=["mistral"])
def test_every_sampled_token_is_credited_with_the_reward_of_its_own_text(name, pad_is_eos):
    """With a reward at the end, dL / d log pi(a_t) = -R_i / N at each step of episode i, its end token's included.

    R_i is worked out from the row's own tokens; the gap is relative to the largest |R| / N.
    """
    envs = text_envs(4, pad_is_eos=pad_is_eos)
    settings = {"episodes_per_update": 16, "max_grad_norm": 1e9, "skip_idle_rows": False, "device": "cpu"}
    agent = ReinforceBaseline(tiny_policy(name, envs), envs, baseline="none", **settings)
    rollout = collect(agent.policy, envs, 16)
    assert (~rollout.truncated).any(), "some episodes must end with the end token"
    rewards, seen, evaluate = own_rewards(envs, rollout), [], agent.policy.evaluate

    def listen(*args):
        found = evaluate(*args)
        found["log_probs"].retain_grad()
        seen.append(found["log_probs"])
        return found

    agent.policy.evaluate = listen
    agent.update(rollout)
    (log_probs,) = seen
    expected = -(rewards.double()[:, None] * rollout.mask) / len(rollout)
    scale = expected.abs().max()
    assert_close(log_probs.grad / scale, expected / scale, EXACT, "credit")


# What `Onlooker` says about a policy is what the policy acts by.


SUM = {"verifier": "arith", "max_new_tokens": 5}


def looked_at(policy):
    """Play three episodes at random; return what was seen in each step, and the choices there."""
    env, onlooker, steps = gym.make("TextGen-v0", **SUM), Onlooker(policy, CPU), []
    env.action_space.seed(1)
    for seed in (5, None, None):
        obs, over = env.reset(seed=seed)[0], False
        onlooker.start()
        while not over:
            steps.append((obs, onlooker.look(obs)))
            obs, _, *ends, _ = env.step(env.action_space.sample())
            over = any(ends)
    return steps


@torch.no_grad()
@pytest.mark.parametrize(("temperature", "top_p", "adapter"), [(1.0, 1.0, {"lora_rank": 2}), (0.7, 0.8, {})])
def test_the_probability_of_a_token_is_that_of_acting(temperature, top_p, adapter):
    agent = Reinforce("tiny", "TextGen-v0", env_kwargs=SUM, policy_kwargs=adapter, device="cpu", seed=3)
    for parameter in actor_parameters(agent.policy):
        parameter.add_(0.1)  # a fresh adapter changes nothing
    policy = SampledPolicy(agent.policy, temperature, top_p)
    steps = looked_at(policy)
    assert len(steps) > 6
    for obs, choices in steps:
        batch = {key: torch.as_tensor(value)[None] for key, value in obs.items()}
        token, log_prob, _ = policy.act(batch, None, torch.tensor([True]), generator=torch.Generator().manual_seed(0))
        assert choices.log_probs[token[0]] == pytest.approx(float(log_prob[0]), abs=1e-5)
        assert float(choices.log_probs.exp().sum()) == pytest.approx(1)
    assert any(choices.log_probs.isinf().any() for *_, choices in steps) == (top_p < 1)


def test_the_likeliest_come_first_and_drawing_follows_the_probabilities():
    choices = Choices(torch.tensor([0.2, 0.5, 0.0, 0.2, 0.1]).log())
    assert choices.likeliest(3) == [(1, pytest.approx(0.5)), (0, pytest.approx(0.2)), (3, pytest.approx(0.2))]
    assert choices.draw(deterministic=True) == 1
    expected = -sum(p * math.log(p) for p in (0.2, 0.5, 0.2, 0.1))
    assert choices.entropy == pytest.approx(expected)  # 0 log 0 counts 0
    generator = torch.Generator().manual_seed(0)
    drawn = torch.bincount(torch.tensor([choices.draw(False, generator) for _ in range(2000)]), minlength=5) / 2000
    torch.testing.assert_close(drawn, choices.log_probs.exp(), atol=0.03, rtol=0)


# Sampling for evaluation: another temperature and top-p, while the trained policy stays as it is.


@pytest.mark.parametrize("top_p", [0.05, 0.4, 0.7, 0.9, 0.999])
def test_the_nucleus_holds_the_fewest_likeliest_tokens(top_p):
    log_probs = torch.randn(20, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).log_softmax(-1)
    for law, found in zip(log_probs.exp(), nucleus(log_probs, top_p).exp(), strict=True):
        order = law.argsort(descending=True)
        size = next(size for size in range(1, 10) if law[order[:size]].sum() >= top_p)
        expected = torch.zeros(9, dtype=torch.float64).index_copy_(0, order[:size], law[order[:size]])
        torch.testing.assert_close(found, expected / expected.sum(), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_samples_have_the_log_probabilities_of_their_own_distribution_and_the_policy_stays_as_it_is(name, generator):
    envs = text_envs(num_envs=8, max_new_tokens=4)
    policy = tiny_policy(name, envs, temperature=1.3)
    wrapped = SampledPolicy(policy, temperature=0.7, top_p=0.6)
    rollout = Collector(envs, policy.device).collect(wrapped, 8, generator)
    for row, step in rollout.mask.nonzero().tolist():
        length = int(rollout.observations["length"][row])
        context = torch.cat([rollout.observations["tokens"][row, :length], rollout.actions[row, :step]])
        with torch.no_grad():
            law = (policy.model(context[None]).logits[:, -1, : policy.vocab_size].double() / 0.7).log_softmax(-1)
        wanted = nucleus(law, 0.6)[0, rollout.actions[row, step]]
        assert wanted.isfinite() and float(rollout.log_probs[row, step]) == pytest.approx(float(wanted), abs=1e-9)
    assert wrapped.temperature == 0.7 and policy.temperature == 1.3 and wrapped.model is policy.model
    assert SampledPolicy(policy).temperature == 1.3
    refusal(lambda: wrapped.evaluate(None), "for evaluation")
