"""What stable-baselines3 calls a setting, and what it is called here: for the errors about unknown names."""

from __future__ import annotations

import re
from collections.abc import Collection

_POLICY = ("use_sde", "net_arch", "activation_fn", "ortho_init", "log_std_init", "features_extractor_class")
_OURS = ("normalize_observations", "act_in_numpy", "temperature", "dtype", "lora_rank")  # of policies
_OFF_POLICY = ("buffer_size", "learning_starts", "tau", "train_freq", "gradient_steps", "action_noise")
SAID = {
    "n_epochs": "is 'num_epochs' here",
    "batch_size": "(steps per mini-batch) is 'num_minibatches' here, mini-batches per pass: steps of a rollout / "
    "batch_size",
    "n_steps": "(steps per slot and rollout) is 'episodes_per_update' here, finished episodes per rollout: about "
    "n_steps * n_envs / steps of an episode",
    "n_envs": "is 'num_envs' here",
    "target_kl": "has no counterpart: 'num_epochs' says how often a rollout is used; train/approx_kl shows the KL",
    "sde_sample_freq": "is policy_kwargs={'sde_sample_freq': ...} here, 1 for new noise at every step; -1, a whole "
    "rollout, has no counterpart",
    **{name: f"is policy_kwargs={{{name!r}: ...}} here" for name in (*_POLICY, *_OURS)},
    "use_rms_prop": "has no counterpart: every agent uses Adam",
    "rms_prop_eps": "is 'adam_eps' here: every agent uses Adam",
    "stats_window_size": "has no counterpart: metrics are of the episodes of an update",
    "rollout_buffer_class": "has no counterpart: a rollout is whole episodes",
    "rollout_buffer_kwargs": "has no counterpart: a rollout is whole episodes",
    "monitor_wrapper": "has no counterpart: the agent counts episodes itself",
    **dict.fromkeys(_OFF_POLICY, "is of off-policy agents; those here learn from their own newest episodes"),
}


def hint(name: str) -> str:
    """Return what a name of stable-baselines3's, or an argument of policies, is in Python; empty for any other name."""
    owner = "the policy's" if name in _OURS else "stable-baselines3's"
    return f"{owner} {name} {SAID[name]}" if name in SAID else ""


def option_hint(name: str, options: Collection[str]) -> str:
    """Return what stable-baselines3's name for a setting is called on the command line.

    Empty for any other name, and where the command takes no settings of agents.

    Args:
        name: such as "n_steps".
        options: parameter names of the command; other settings of agents are written with --agent-arg.
    """

    def written(setting: re.Match[str]) -> str:
        return f"--{setting[1].replace('_', '-')}" if setting[1] in options else f"--agent-arg {setting[1]}=..."

    said = hint(name) if "agent_args" in options else ""
    return re.sub(r"'(\w+)'", written, re.sub(r"policy_kwargs=\{'(\w+)': \.\.\.\}", r"--policy-arg \1=...", said))
