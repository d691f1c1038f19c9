"""The whole of REINFORCE (Williams 1992) in one file: from the environment to the optimizer step.

    python examples/reinforce.py CartPole-v1
    python examples/reinforce.py TextGen-v0

Each update plays N episodes with the current policy and takes one step of Adam along the policy gradient:

    G_t = r_t + r_{t+1} + ...        L = - 1/N Σ_i Σ_t (G_{i,t} - b_t) log π(a_{i,t} | s_{i,t})

b_t is the mean of G_t over the episodes. `agents` adds a KV cache, slots that restart, and one pass per rollout.
"""

import argparse

import torch
from torch import nn
from torch.distributions import Categorical
from transformers import AutoModelForCausalLM, LlamaConfig

import rlenv  # noqa: F401 (registers TextGen-v0)
from rlenv.agents import make_envs

PROMPTS, LENGTH = ["a>", "b>", "c>", "d>"], 8


def echo(prompts, completions, **columns):
    """Reward the share of the eight characters that repeat the letter of the prompt."""
    return [text.count(prompt[0]) / LENGTH for prompt, text in zip(prompts, completions, strict=True)]


class Controller(nn.Module):
    """Logits [B, A] of a small network over observations [B, D]."""

    def __init__(self, envs):
        super().__init__()
        inputs, actions = envs.single_observation_space.shape[0], int(envs.single_action_space.n)
        self.net = nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, actions))

    def forward(self, obs):  # noqa: D102
        return self.net(torch.as_tensor(obs))


class Writer(nn.Module):
    """Logits [B, V] of a small Llama over the tokens [B, L] so far; padding is on the right, where nothing sees it."""

    def __init__(self, envs):
        super().__init__()
        size = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
        self.model = AutoModelForCausalLM.from_config(LlamaConfig(vocab_size=int(envs.single_action_space.n), **size))

    def forward(self, obs):  # noqa: D102
        logits = self.model(obs["tokens"].clone()).logits  # [B, L, V]
        return logits[torch.arange(len(logits)), obs["length"] - 1]


def play(envs, policy, seed):
    """Play one episode per slot; return log-probabilities and rewards [T, N], 0 after an end, and the last tokens."""
    obs, _ = envs.reset(seed=seed)
    playing, log_probs, rewards = torch.ones(envs.num_envs, dtype=torch.bool), [], []
    while playing.any():
        distribution = Categorical(logits=policy(obs))
        actions = distribution.sample()
        obs, reward, terminated, truncated, _ = envs.step(actions.numpy())
        log_probs.append(distribution.log_prob(actions) * playing)
        rewards.append(torch.as_tensor(reward, dtype=torch.float32) * playing)
        playing = playing & ~(torch.as_tensor(terminated) | torch.as_tensor(truncated))
    return torch.stack(log_probs), torch.stack(rewards), obs


def train(env, updates, seed=0):
    """Return the mean reward of each update's episodes; print the last text of each prompt."""
    torch.manual_seed(seed)
    text = env == "TextGen-v0"
    episodes, learning_rate = (64, 3e-3) if text else (16, 1e-2)
    kwargs = {"verifier": echo, "problems": PROMPTS, "test_fraction": 0.0, "max_new_tokens": LENGTH} if text else None
    envs = make_envs(env, episodes, kwargs, skip_finished=True)
    policy = (Writer if text else Controller)(envs)
    optimizer = torch.optim.Adam(policy.parameters(), learning_rate)
    means = []
    for update in range(updates):
        log_probs, rewards, last = play(envs, policy, seed if update == 0 else None)
        returns = rewards.flip(0).cumsum(0).flip(0)  # [T, N], the rewards from each step on
        loss = -((returns - returns.mean(1, keepdim=True)) * log_probs).sum() / episodes
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        means.append(rewards.sum(0).mean().item())
        if update % 10 == 9:
            print(f"update {update + 1:4d}   loss {loss.item():9.3f}   mean reward {means[-1]:7.3f}")
    if text:
        written = envs.metadata["tokenizer"].batch_decode(last["tokens"], skip_special_tokens=True)
        print(*{each[0]: each for each in written}.values())
    return means


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("env", nargs="?", default="CartPole-v1", choices=["CartPole-v1", "TextGen-v0"])
    parser.add_argument("--updates", type=int, default=100)
    train(**vars(parser.parse_args()))
