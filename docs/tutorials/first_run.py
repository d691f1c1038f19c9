# %% [markdown]
# # A first run
#
# A language model learns a task from its reward alone, on a CPU, in less than three minutes. It runs in Jupyter or
# VS Code. This notebook is made from `docs/tutorials/first_run.py` by
# `python docs/make_notebook.py`.

# %%
import os

import gymnasium as gym
import matplotlib.pyplot as plt

import rlenv  # noqa: F401 (registers TextGen-v0)
from agents import RLOO, Reinforce

UPDATES = int(os.environ.get("RLENV_TUTORIAL_UPDATES", "100"))  # fewer are faster

# %% [markdown]
# ## The task
#
# A prompt such as `w>`, and eight characters as the answer. The reward is the share of them that repeat the letter of
# the prompt. Any function of prompts and completions can be the reward.


# %%
def echo(prompts, completions, **columns):
    """Return the share of the eight characters that repeat the letter of the prompt."""
    return [text.count(prompt[0]) / 8 for prompt, text in zip(prompts, completions, strict=True)]


task = {"verifier": echo, "problems": ["w>", "x>", "y>", "z>"], "test_fraction": 0.0, "max_new_tokens": 8}

# %% [markdown]
# ## The environment
#
# Text generation is a Gymnasium environment: an action is a token, and the reward comes with the last one. Here random
# tokens are written.

# %%
env = gym.make("TextGen-v0", **task)
env.action_space.seed(0)
_, info = env.reset(seed=0)
over = False
while not over:
    _, reward, terminated, truncated, info = env.step(env.action_space.sample())
    over = terminated or truncated
print(f"wrote {info['completion']!r}, reward {reward}")

# %% [markdown]
# ## The agent
#
# RLOO is REINFORCE with the mean of the other answers to the same prompt as baseline. `"tiny"` is a model of 0.4
# million random weights. This is what it writes before it has learned anything:

# %%
agent = RLOO(
    "tiny",
    "TextGen-v0",
    env_kwargs=task,
    learning_rate=2e-3,
    group_size=8,
    episodes_per_update=64,
    seed=0,
    device="cpu",
)


def samples():
    """Print one answer to each prompt, with its reward."""
    tokenizer = agent.env.unwrapped.task.tokenizer
    rollout = agent.collector.collect(agent.policy, 64, agent.generator)
    said = {}
    for i, length in enumerate(rollout.observations["length"].tolist()):
        prompt = tokenizer.decode(rollout.observations["tokens"][i, :length].tolist())
        answer = tokenizer.decode(rollout.actions[i, : int(rollout.mask[i].sum())].tolist(), skip_special_tokens=True)
        said[prompt] = (answer, float(rollout.rewards[i].sum()))
    for prompt, (answer, reward) in sorted(said.items()):
        print(f"{prompt}  {answer!r:<12} reward {reward:.2f}")


samples()

# %% [markdown]
# ## Training
#
# Each update plays 64 episodes and takes one step along the policy gradient. `agent.updates` yields after each of them.

# %%
history = [curves for _, curves in agent.updates(total_episodes=64 * UPDATES)]
samples()

# %% [markdown]
# ## The curves
#
# The reward is the curve that matters. Entropy is how many choices are left, in nats per token. The loss does not fall:
# [reading the curves](reading-the-curves.md) says why, and what else can be seen here.

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
for axis, name in zip(axes, ("rollout/ep_rew_mean", "train/entropy_loss", "train/loss"), strict=True):
    sign = -1 if name == "train/entropy_loss" else 1
    axis.plot([sign * curves[name] for curves in history])
    axis.set(title="entropy" if sign < 0 else name, xlabel="update")
plt.close(figure)
figure

# %% [markdown]
# ## The same class on a control task
#
# An agent sees an environment only through `reset` and `step`, so nothing changes but the names.

# %%
pole = Reinforce("MlpPolicy", "CartPole-v1", seed=0, device="cpu")
lengths = [curves["rollout/ep_len_mean"] for _, curves in pole.updates(total_episodes=16 * UPDATES)]
print("steps that the pole stands:", *(f"{length:.0f}" for length in lengths[:: max(1, UPDATES // 6)]))

# %% [markdown]
# Next: [your first verifier](your-first-verifier.md), or [from REINFORCE to GRPO](from-reinforce-to-grpo.md).
