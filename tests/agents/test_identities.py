"""The identities 3 and 6 of the design: the reference stays, and what was played is what is trained."""

import copy

import gymnasium as gym
import pytest
import torch
from diagonal import diagonal, slow
from dialogues import talking
from gymnasium.vector import AutoresetMode
from identity_checks import EXACT, assert_close, collect
from tiny_models import ALPHABET, PROMPTS, hash_reward, norm_in_double, reward_of, text_envs, tiny_policy

from rlenv.agents import Collector, LanguageModelPolicy, Reinforce, ReinforceBaseline
from rlenv.agents.policies import choosing
from rlenv.agents.policies.choosing import sample_categorical
from rlenv.verifiers.function import FunctionVerifier

CPU = torch.device("cpu")
WORLDS = {"completions": text_envs, "dialogues": talking}


# The reference stays.


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


def test_rare_actions_of_a_large_vocabulary_are_drawn_and_impossible_ones_are_not():
    rare, each = 150_000, 1e-8  # each is less than float32 can add to 1
    law = torch.full((rare + 2,), each, dtype=torch.float64)
    law[0], law[-1] = 1 - rare * each, 0
    steps = torch.tensor([0.5, 70_000.5, rare - 0.5], dtype=torch.float64)
    uniform = torch.cat([torch.tensor([0.0, 0.5], dtype=torch.float64), law[0] + each * steps])
    drawn = choosing._invert(law.log().repeat(len(uniform), 1), uniform)
    assert drawn.tolist() == [0, 0, 1, 70_001, rare]


def test_broken_distributions_of_a_large_vocabulary_give_an_index(generator):
    assert sample_categorical(torch.full((3, 5000), torch.nan), generator).max() < 5000


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
def test_trained_tokens_are_the_sampled_ones_end_token_included(pad_is_eos, monkeypatch):
    envs = text_envs(3, pad_is_eos=pad_is_eos)
    policy = tiny_policy("gpt2", envs)
    slots, finished = [[] for _ in range(3)], []
    step = envs.step

    def listen(actions):
        out = step(actions)
        for slot, action in enumerate(actions.tolist()):
            slots[slot].append(action)
            if out[2][slot]:
                finished.append(slots[slot])
                slots[slot] = []
        return out

    monkeypatch.setattr(envs, "step", listen)
    rollout = collect(policy, envs, 3)
    trained = [rollout.actions[i, : rollout.lengths[i]].tolist() for i in range(3)]
    assert sorted(trained) == sorted(finished)
    longer = collect(policy, envs, 12)
    last = longer.actions.gather(1, longer.lengths[:, None] - 1)[:, 0]
    end = envs.unwrapped.task.encoding.eos_token_id
    ended = last == end
    assert ended.any() and torch.equal(ended, ~longer.truncated)
    assert int((longer.actions.where(longer.mask, -1) == end).sum()) == int(ended.sum())


@pytest.mark.parametrize(
    ("name", "pad_is_eos"),
    [
        *(("gpt2", False), ("llama", True), slow("gpt2", True), slow("llama", False)),
        *(slow("mistral", False), slow("mistral", True)),
    ],
)
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
