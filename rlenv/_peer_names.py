"""The names here of arguments of stable-baselines3 and TRL, for errors; the pages say what differs.

Nothing here imports torch, so that the command line need not.
"""

from __future__ import annotations

from collections.abc import Collection

SB3 = {
    "n_steps": "episodes_per_update",
    "batch_size": "num_minibatches",
    "n_epochs": "num_epochs",
    "n_envs": "num_envs",
    "use_sde": "use_sde in policy_kwargs",
    "sde_sample_freq": "sde_sample_freq in policy_kwargs",
    "net_arch": "net_arch in policy_kwargs",
    "activation_fn": "activation_fn in policy_kwargs",
    "ortho_init": "ortho_init in policy_kwargs",
    "log_std_init": "log_std_init in policy_kwargs",
    "features_extractor_kwargs": "features_extractor_kwargs in policy_kwargs",
}
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
    "vllm_importance_sampling_clip_min": "mismatch_min",
    "vllm_importance_sampling_clip_max": "mismatch_max",
    "off_policy_mask_threshold": "off_policy_mask",
    "use_bias_correction_kl": "kl_ratio",
    "sapo_temperature_pos": "gate_temperature",
    "sapo_temperature_neg": "gate_temperature_negative",
    "max_completion_length": "max_new_tokens in env_kwargs",
    "max_prompt_length": "max_prompt_tokens in env_kwargs",
    "use_vllm": "engine",
}
ARGUMENTS = {"settings": "--agent-arg", "policy_kwargs": "--policy-arg", "env_kwargs": "--env-arg"}  # options of these
PAGES = {"docs/appendix/names.md": SB3, "docs/from-trl.md": TRL}


def name_here(name: str, options: Collection[str] = ()) -> str:
    """Return the name here of an argument of another library, and the page about it.

    It is empty for any other name, and for one that the command takes by none of its options.

    Args:
        name: of the argument.
        options: names of settings that the command has options for; none in Python.
    """
    for page, names in PAGES.items():
        if here := names.get(name):
            setting, _, place = here.partition(" in ")
            place = place or "settings"
            if setting in options:
                here = f"--{setting.replace('_', '-')}"
            elif place in options:
                here = f"{ARGUMENTS[place]} {setting}="
            elif options:
                return ""
            return f"it is {here} here ({page})"
    return ""
