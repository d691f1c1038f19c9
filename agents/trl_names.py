"""What TRL calls a setting, and what it is called here: for the errors about unknown names."""

from __future__ import annotations

ENV = ("max_new_tokens", "max_prompt_tokens", "verifier", "problems", "verifier_kwargs")  # settings of the environment
NAMES = {
    "num_generations": "group_size",
    "beta": "kl_coef",
    "epsilon": "clip_range",
    "epsilon_high": "clip_range_high",
    "num_iterations": "num_epochs",
    "delta": "max_ratio",
    "mask_truncated_completions": "mask_truncated",
    "warmup_steps": "warmup_updates",
    "adam_epsilon": "adam_eps",
    "entropy_coef": "ent_coef",
    "cliprange": "clip_range",
    "per_device_train_batch_size": "episodes_per_update",
    "generation_batch_size": "episodes_per_update",
    "gradient_accumulation_steps": "micro_batch_size",
    "lr_scheduler_type": "lr_schedule",
    "max_completion_length": "max_new_tokens",
    "max_prompt_length": "max_prompt_tokens",
    "reward_funcs": "verifier",
    "train_dataset": "problems",
    "dataset_name": "problems",
    "logging_dir": "tensorboard_log",
}
LOOP = {  # settings of a run: the argument of `learn` in Python, and the option of the command
    "max_steps": ("learn(total_episodes=max_steps * episodes_per_update)", "episodes"),
    "num_train_epochs": ("learn(total_episodes=epochs * problems * group_size)", "episodes"),
    "logging_steps": ("learn(log_interval=...)", "log_interval"),
    "save_steps": ("Agent.save, or a callback", "save_every_updates"),
    "save_total_limit": ("Agent.save, or a callback", "keep"),
    "eval_steps": ("Agent.evaluate, or a callback", "eval_every"),
    "output_dir": ("Agent.save(path)", "log_dir"),
    "model_name_or_path": ("the first argument, policy", "model"),
    "resume_from_checkpoint": ("Agent.load(path)", "resume"),
}
SAID = {  # not a setting here, and why
    "loss_type": "the loss belongs to the agent: grpo, dr-grpo, dapo, cispo, rloo, ppo, ...",
    "importance_sampling_level": "the ratio belongs to the agent: gspo has one per episode, grpo one per token",
    "scale_rewards": "grpo divides by the group's standard deviation, with scale=batch by that of all; dr-grpo by none",
    "reward_weights": "weights are written with the verifiers: a.py:f,a.py:g=0.5, or verifier_kwargs reward_weights",
    "advantage_estimator": "the advantages belong to the agent: grpo, rloo, reinforce-plus-plus, ...",
    **dict.fromkeys(("use_vllm", "vllm_mode"), "the trained policy samples itself, without a second engine"),
    "ref_model": "the reference of kl_coef is the policy that training starts from",
    **dict.fromkeys(("top_k", "top_p", "min_p"), "training samples from the whole softmax"),
    "reward_processing_classes": "the verifier reward_model has the argument tokenizer",
    "args": "pass the values of a configuration as keyword arguments",
    "processing_class": "the model brings its tokenizer; another one is env_kwargs={'tokenizer': ...} (--tokenizer)",
}


def hint(name: str) -> str:
    """Return what TRL's name for a setting is called in Python; empty for any other name."""
    if name in NAMES:
        ours = NAMES[name]
        where = f"env_kwargs={{{ours!r}: ...}}" if ours in ENV else repr(ours)
        return f"TRL's {name} is {where} here"
    if name in LOOP:
        return f"TRL's {name} is {LOOP[name][0]} here"
    return SAID.get(name, "")


def option_hint(name: str, options: list[str]) -> str:
    """Return what TRL's name for a setting is called on the command line; empty for any other name.

    Args:
        name: such as "num_generations".
        options: parameter names of the command; other settings are written with --agent-arg.
    """
    ours = NAMES.get(name) or (LOOP[name][1] if name in LOOP else None)
    if ours is None:
        return SAID.get(name, "")
    written = f"--{ours.replace('_', '-')}" if ours in options else f"--agent-arg {ours}=..."
    return f"rlenv calls it {written}"
