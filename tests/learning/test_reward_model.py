"""Reinforcement learning from a learned reward: a classifier that was trained on right and wrong sums is the judge."""

import random

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForSequenceClassification

from agents import ReinforceBaseline, Rollout, make_envs, warm_start
from rlenv.envs.demonstrations import demonstrate
from rlenv.text.tokenizer import character_tokenizer
from verifiers import Arith, Problem, RewardModel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ARITH = {"digits": 1}
TOKENIZER = character_tokenizer(Arith(**ARITH).alphabet)
SUMS = [(f"{a}+{b}=", str(a + b)) for a in range(10) for b in range(10)]
NUMBERS = [*map(str, range(100)), ""]


def texts(rng):
    """Return every sum with its answer, and as many with a wrong one: a number, nothing, or the answer and a sign."""
    right = [prompt + answer for prompt, answer in SUMS]
    wrong = []
    for prompt, answer in SUMS:
        near = str(abs(int(answer) + rng.choice([-10, -2, -1, 1, 2, 10])))
        other = rng.choice([near, rng.choice(NUMBERS[:20]), rng.choice(NUMBERS), answer + rng.choice("0123456789+=")])
        wrong.append(prompt + (other if other != answer else ""))
    return right + wrong


def reward_model(steps=900):
    """Return a model trained from nothing to tell right from wrong sums of one-digit numbers."""
    rng = random.Random(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        sizes = {"vocab_size": len(TOKENIZER), "max_position_embeddings": 16, "num_labels": 2, "pad_token_id": 0}
        model = LlamaForSequenceClassification(LlamaConfig(**shape, **sizes))
    labels = torch.arange(2 * len(SUMS)) < len(SUMS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for _ in range(steps):
        rows = TOKENIZER(texts(rng), padding=True, padding_side="right", return_tensors="pt")
        logits = model(input_ids=rows["input_ids"], attention_mask=rows["attention_mask"]).logits
        loss = cross_entropy(logits, labels.long())
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
    agent = ReinforceBaseline("tiny", "TextGen-v0", env_kwargs=env, lr_schedule="constant", seed=seed, device="cpu")
    shown = demonstrate(agent.env.unwrapped.task, 0, 512)
    episodes = Rollout.of_demonstrations(shown.observations, shown.actions, shown.mask)
    generator = torch.Generator().manual_seed(seed)
    warm_start(agent.policy, lambda size: episodes.select(torch.randint(512, (size,), generator=generator)), steps=60)
    return agent


def measured(agent, verifier):
    """Return the mean reward and the success rate of sampled episodes, by this verifier."""
    env = make_envs("TextGen-v0", 256, {"verifier": verifier, "max_new_tokens": 3, "test_fraction": 0.0})
    figures, _ = agent.evaluate(env, 2000, deterministic=False, seed=7)
    return figures["mean_reward"], figures["success_rate"]


def test_the_judge_knows_right_from_wrong(judge):
    problems = [Problem(prompt, answer) for prompt, answer in SUMS for _ in NUMBERS]
    verdicts = judge.verify_batch(problems, NUMBERS * len(SUMS))
    asked = [(problem.prompt, text) for problem, text in zip(problems, NUMBERS * len(SUMS), strict=True)]
    liked = {pair for pair, verdict in zip(asked, verdicts, strict=True) if judge.is_success(verdict)}
    right = len(liked & set(SUMS))
    print(f"of {len(asked)} answers the judge likes {len(liked)}, of {len(SUMS)} right ones {right}")
    assert right >= 95
    assert len(liked) - right <= 50


@pytest.mark.parametrize("seed", range(3))
def test_reward_and_true_success_rise(judge, seed):
    agent, truth = started(judge, seed), Arith(**ARITH)
    before = [*measured(agent, judge), measured(agent, truth)[1]]
    agent.learn(total_episodes=40_000)
    after = [*measured(agent, judge), measured(agent, truth)[1]]
    for when, (reward, liked, right) in (("before", before), ("after", after)):
        print(f"{when}: reward {reward:.2f}, liked by the model {liked:.3f}, right {right:.3f}")
    assert after[0] > before[0] + 0.2
    assert after[2] > before[2] + 0.15
