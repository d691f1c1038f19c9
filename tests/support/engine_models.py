"""Tiny language models that vLLM runs, too, and what holds for every engine."""

from dialogues import calling, check_played
from tiny_models import PROMPTS, text_envs, tiny_model

from rlenv import agents

EPISODES = 12
SETTINGS = {"episodes_per_update": EPISODES, "learning_rate": 0.02, "warmup_updates": 0}
LONG = {"problems": [prompt * 20 for prompt in ("ab", "cd", "ef")], "max_prompt_tokens": 48}  # than a block of a cache


def answers(**kwargs):
    return text_envs(EPISODES, **{"group_size": 4, "max_new_tokens": 7, "problems": PROMPTS[:3], **kwargs})


def trained(agent, updates=3, **budget):
    """Return the metrics of some updates."""
    return [figures for _, figures in agent.updates(total_episodes=EPISODES * updates, **budget)]


def largest(metrics, name="train/engine_gap"):
    return max(each[name] for each in metrics)


def policy_for(envs, seed=0, temperature=0.7, shape=None, **kwargs):
    """Return a policy whose next token depends strongly on everything before; vLLM needs heads of 32 on a CPU.

    Args:
        envs: whose vocabulary it has.
        seed: of its weights.
        temperature: by which it acts.
        shape: of the model, where another one is wanted: settings of its configuration.
        kwargs: of the policy.
    """
    sizes = {
        "vocab_size": int(envs.single_action_space.n),
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "initializer_range": 0.15,
    }
    model = tiny_model("llama", seed=seed, **sizes | (shape or {}))
    spaces = envs.single_observation_space, envs.single_action_space
    return agents.LanguageModelPolicy(*spaces, model, temperature=temperature, **kwargs)


def check_replayed(agent, make, episodes, turns, calls, errors):
    """Play each episode of a rollout again by hand: so many turns at least and, with a tool, calls and failed ones."""
    (rollout, _), *_ = agent.updates(total_episodes=episodes)
    assert rollout.extras["turns"].nan_to_num(1).sum() >= turns
    if make is calling:
        assert rollout.extras["tool_calls"].sum() >= calls and rollout.extras["tool_errors"].sum() >= errors
    for row in rollout.split(1):
        check_played(row, make)
