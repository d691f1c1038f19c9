"""Settings' names in stable-baselines3 and TRL, and their names here, for messages and the docs.

Nothing here imports torch, so that the command line need not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

POLICY = "policy_kwargs"
SHOWN = 40  # characters of a value in a message


class Row(NamedTuple):
    """Arguments of stable-baselines3's agents that have the same answer.

    Attributes:
        names: of the arguments, with commas.
        here: the setting with this meaning, `POLICY` for an argument of the policy; empty if there is none.
        about: what differs, or why there is none; empty for another name with the same values.
    """

    names: str
    here: str
    about: str = ""


SB3 = (
    Row(
        "n_steps",
        "episodes_per_update",
        "finished episodes per rollout, not steps per slot: about `n_steps * n_envs` / steps of an episode",
    ),
    Row(
        "batch_size",
        "num_minibatches",
        "optimizer steps per pass, not steps per mini-batch: about `n_steps * n_envs / batch_size`, as a rollout is "
        "`episodes_per_update` episodes",
    ),
    Row("n_epochs", "num_epochs"),
    Row("n_envs", "num_envs"),
    Row("policy", "policy", "also a language model: a preset, a folder or an id"),
    Row("env", "env", "an id makes `num_envs` slots, an environment object is one slot"),
    Row(
        "learning_rate",
        "learning_rate",
        'a function of the remaining progress (1 to 0), or a number: it falls to 0 unless `lr_schedule="constant"`',
    ),
    Row("gamma", "gamma"),
    Row("gae_lambda", "gae_lambda", "of agents with a critic: PPO, A2C, VAPO"),
    Row("clip_range", "clip_range", "of agents that clip the ratio, such as PPO and GRPO: a number or a function"),
    Row("clip_range_vf", "clip_range_vf", "of PPO and VAPO: a number or a function"),
    Row("normalize_advantage", "normalize_advantage", "of PPO and VAPO: over the rollout, once, not per mini-batch"),
    Row("ent_coef", "ent_coef"),
    Row("vf_coef", "vf_coef"),
    Row("max_grad_norm", "max_grad_norm", "of the policy's gradient and of the critic's, each"),
    Row(
        "target_kl",
        "target_kl",
        "of agents with several passes, such as PPO and GRPO: no step above it, not above 1.5 times it",
    ),
    Row("tensorboard_log", "tensorboard_log", "runs are `RLOO_1`, `RLOO_2`, ..., by the class"),
    Row("policy_kwargs", "policy_kwargs", "what JSON can hold, and `activation_fn`"),
    Row("verbose", "verbose", "1 prints a table every `log_interval` updates"),
    Row("seed", "seed", "`set_random_seed` seeds the agent and its environment, no global generator is used"),
    Row("device", "device"),
    Row("use_sde", POLICY),
    Row("sde_sample_freq", POLICY, "at least 1 (the default): noise of a whole rollout (-1) is not supported"),
    Row("net_arch, activation_fn, ortho_init, log_std_init, features_extractor_kwargs", POLICY),
    Row("rms_prop_eps, use_rms_prop", "", "the optimizer is Adam, with `adam_beta1`, `adam_beta2` and `adam_eps`"),
    Row(
        "rollout_buffer_class, rollout_buffer_kwargs",
        "",
        "a rollout is a `Rollout` of whole episodes, which `prepare` of an agent may change",
    ),
    Row("stats_window_size", "", "`rollout/ep_rew_mean` is of the newest rollout"),
    Row("_init_setup_model", "", "the constructor makes the network"),
    Row(
        "buffer_size, learning_starts, train_freq, gradient_steps, tau, replay_buffer_class, replay_buffer_kwargs",
        "",
        "of DQN, SAC and TD3: agents here learn from their newest episodes, without a replay buffer",
    ),
)
TRL = {
    "num_generations": "group_size",
    "per_device_train_batch_size": "episodes_per_update",
    "gradient_accumulation_steps": "micro_batch_size",
    "num_iterations": "num_epochs",
    "beta": "kl_coef",
    "epsilon": "clip_range",
    "epsilon_high": "clip_range_high",
    "delta": "max_ratio",
    "mask_truncated_completions": "mask_truncated",
    "entropy_coef": "ent_coef",
    "warmup_steps": "warmup_updates",
    "adam_epsilon": "adam_eps",
    "lr_scheduler_type": "lr_schedule",
    "vllm_importance_sampling_mode": "mismatch",
    "off_policy_mask_threshold": "off_policy_mask",
    "max_completion_length": "env_kwargs:max_new_tokens",
    "max_prompt_length": "env_kwargs:max_prompt_tokens",
    "use_vllm": "engine",
}
BY_NAME = {name: row for row in SB3 for name in row.names.split(", ")}
KNOWN = BY_NAME.keys() | TRL.keys()
RENAMED = {name for name in KNOWN if name in TRL or BY_NAME[name].here != name}


def in_python(here: str, value: str) -> str:
    """Return a setting of this name and value as a keyword argument; "policy_kwargs:use_sde" is one in a dictionary."""
    name, _, inner = here.partition(":")
    return f"{name}={{{inner!r}: {value}}}" if inner else f"{name}={value}"


def advice(
    given: Mapping[str, str],
    allowed: Collection[str] | None = None,
    written: Callable[[str, str], str] = in_python,
) -> str:
    """Return the settings that stand for arguments of stable-baselines3 and TRL, and the page that has more.

    Args:
        given: their names and values, as they are written, "..." if only the name is known; others are ignored.
        allowed: the names of the agent's settings; None if the agent is not known.
        written: returns a setting of a name and a value as the user writes it; see `in_python`.
    """
    said = [_of_sb3(name, value, allowed, written) for name, value in given.items() if name in BY_NAME]
    pages = ["docs/stable-baselines3.md"] * bool(said)
    if of_trl := [f"for TRL's {name} set {written(TRL[name], '...')}" for name in given if name in TRL]:
        pages.append("docs/from-trl.md")
    return f"{'; '.join(said + of_trl)} (see {', '.join(pages)})"


def _of_sb3(name: str, value: str, allowed: Collection[str] | None, written: Callable[[str, str], str]) -> str:
    row, given = BY_NAME[name], f"{name}={value:.{SHOWN}}"
    about = row.about.replace("`", "")
    if not row.here:
        return f"{given} is not supported: {about}"
    if allowed is not None and row.here not in allowed:
        return f"{given}: this agent has no {row.here}{about and f', which is {about}'}"
    here, same = (f"{POLICY}:{name}", True) if row.here == POLICY else (row.here, not about)
    return f"{given}: set {written(here, value if same else '...')}{about and f', {about}'}"
