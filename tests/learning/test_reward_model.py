"""Reinforcement learning from a learned reward: a classifier that was trained on right and wrong sums is the judge."""

import random

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits
from transformers import LlamaConfig, LlamaForSequenceClassification

from agents import ReinforceBaseline, Rollout, make_envs, warm_start
from rlenv.demonstrations import demonstrate
from rlenv.tokenizer import character_tokenizer
from verifiers import Arith, Problem, RewardModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SUMS = [(a, b) for a in range(10) for b in range(10)]
ARITH = {"digits": 1}
TOKENIZER = character_tokenizer(Arith(**ARITH).alphabet)


def example(rng):
    """Return a sum and whether it is right: half of them are, the others are answers to something else, or none."""
    a, b = rng.choice(SUMS)
    right = str(a + b)
    if rng.random() < 0.5:
        return f"{a}+{b}={right}", 1.0
    near = str(a + b + rng.choice([-10, -2, -1, 1, 2, 10]))
    junk = "".join(rng.choices("0123456789+=", k=rng.randint(0, 3)))
    wrong = rng.choice([near, junk, str(rng.randint(0, 18)), right + rng.choice("0123456789+="), right[:-1]])
    return f"{a}+{b}={wrong}", float(wrong == right)


def reward_model(steps=400, batch=192):
    """Return a model trained from nothing to tell right from wrong sums of one-digit numbers."""
    rng = random.Random(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        config = LlamaConfig(vocab_size=len(TOKENIZER), max_position_embeddings=16, num_labels=1, pad_token_id=0, **shape)
        model = LlamaForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        texts, labels = zip(*(example(rng) for _ in range(batch)), strict=True)
        rows = TOKENIZER(list(texts), padding=True, padding_side="right", return_tensors="pt")
        logits = model(input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]).logits[:, 0]
        loss = binary_cross_entropy_with_logits(logits, torch.tensor(labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model


@pytest.fixture(scope="module")
def judge():
    return RewardModel(reward_model(), TOKENIZER, problems_of="arith", problem_args=ARITH, device="cpu")


def started(judge, seed):
    """Return an agent after a supervised start that is too short to solve the sums."""
    env = {"verifier": judge, "max_new_tokens": 3, "test_fraction": 0.0}
    agent = ReinforceBaseline("tiny", "TextGen-v0", env_kwargs=env, seed=seed, device="cpu")
    shown = demonstrate(agent.env.unwrapped.task, 0, 512)
    episodes = Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask)
    generator = torch.Generator().manual_seed(seed)
    warm_start(agent.policy, lambda size: episodes.select(torch.randint(512, (size,), generator=generator)), steps=40)
    return agent


def measured(agent, verifier):
    """Return the mean reward and the success rate of sampled episodes, by this verifier."""
    env = make_envs("TextGen-v0", 256, {"verifier": verifier, "max_new_tokens": 3, "test_fraction": 0.0})
    figures, _ = agent.evaluate(env, 2000, deterministic=False, seed=7)
    return figures["mean_reward"], figures["success_rate"]


def test_the_judge_knows_right_from_wrong(judge):
    rng = random.Random(1)
    texts, labels = zip(*(example(rng) for _ in range(2000)), strict=True)
    verdicts = judge.verify_batch([Problem("")] * len(texts), texts)
    agreed = sum(judge.is_success(verdict) == bool(label) for verdict, label in zip(verdicts, labels, strict=True))
    print(f"the judge agrees with arith on {agreed} of {len(texts)} sums")
    assert agreed >= 0.95 * len(texts)


@pytest.mark.parametrize("seed", range(3))
def test_reward_and_true_success_rise(judge, seed):
    agent, truth = started(judge, seed), Arith(**ARITH)
    before = [*measured(agent, judge), measured(agent, truth)[1]]
    agent.learn(total_episodes=12_000)
    after = [*measured(agent, judge), measured(agent, truth)[1]]
    for when, (reward, liked, right) in (("before", before), ("after", after)):
        print(f"{when}: reward {reward:.2f}, liked by the model {liked:.3f}, right {right:.3f}")
    assert after[0] > before[0] + 1.0
    assert after[2] > before[2] + 0.1
