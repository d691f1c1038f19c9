"""What TRL calls a setting, and what it is called here: for the errors about unknown names."""

from __future__ import annotations

from typing import Any

ENV = ("max_new_tokens", "max_prompt_tokens", "verifier", "problems", "verifier_kwargs")  # settings of the environment
NAMES = {
    "num_generations": "group_size",
    "beta": "kl_coef",
    "epsilon": "clip_range",
    "epsilon_high": "clip_range_high",
    "num_iterations": "num_epochs",
    "delta": "max_ratio",
    "mask_truncated_completions": "mask_truncated",
    "vllm_importance_sampling_mode": "mismatch",
    "vllm_importance_sampling_correction": "mismatch",
    "vllm_importance_sampling_clip_min": "mismatch_min",
    "vllm_importance_sampling_clip_max": "mismatch_max",
    "vllm_importance_sampling_cap": "mismatch_max",
    "off_policy_mask_threshold": "off_policy_mask",
    "use_bias_correction_kl": "kl_ratio",
    "sapo_temperature_pos": "gate_temperature",
    "sapo_temperature_neg": "gate_temperature_negative",
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
    "teacher_model": "teacher",
    "teacher_model_name_or_path": "teacher",
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
    "report_to": ("tensorboard_log=FOLDER, or a callback", "track"),
}
_OF_ALL = "which counts all: per_device_train_batch_size x gradient_accumulation_steps x devices"
_MODES = "which is token-truncate, token-mask, sequence-truncate or sequence-mask"
_RATIO = "which is 'differentiated' for TRL's true"
UNITS = {  # what else changes with the name: in Python (of `LOOP`, the expression says it), on the command line
    "max_steps": ("", "which counts episodes: max_steps x --episodes-per-update"),
    "num_train_epochs": ("", "which counts episodes: epochs x problems x --group-size"),
    "gradient_accumulation_steps": (
        "which counts the episodes of a pass: episodes_per_update / gradient_accumulation_steps",
        "which counts the episodes of a pass: --episodes-per-update / gradient_accumulation_steps",
    ),
    "per_device_train_batch_size": (_OF_ALL, _OF_ALL),
    **dict.fromkeys(("vllm_importance_sampling_mode", "vllm_importance_sampling_correction"), (_MODES, _MODES)),
    "use_bias_correction_kl": (_RATIO, _RATIO),
    "report_to": ("", "wandb or mlflow; the files of TensorBoard are always written"),
}
POLICY: dict[str, dict[str, Any]] = {  # arguments of the policy, with the value that TRL's setting stands for
    "bf16": {"dtype": "bfloat16"},
    "fp16": {"dtype": "float16"},
    "torch_dtype": {"dtype": ...},
    "gradient_checkpointing": {"activation_checkpointing": True},
    "use_peft": {"lora_rank": 16},
    "peft_config": {"lora_rank": ..., "lora_alpha": ..., "lora_targets": ...},
    "lora_r": {"lora_rank": ...},
    "lora_target_modules": {"lora_targets": ...},
}
SHORT = {"lr": "learning_rate"}  # not TRL's, but close to no name of ours
SAID = {  # not a setting here, and why
    "loss_type": "the loss belongs to the agent: grpo, dr-grpo, dapo, cispo, sapo, rloo, ppo, ...",
    "importance_sampling_level": "the ratio belongs to the agent: gspo has one per episode, grpo one per token",
    "scale_rewards": "grpo divides by the group's standard deviation, with scale=batch by that of all; dr-grpo by none",
    "lmbda": "distillation is always on the student's own episodes; rlenv sft imitates given answers",
    "multi_objective_aggregation": "gdpo standardizes each part of a weighted reward; other agents train on the sum",
    "reward_weights": "weights are written with the verifiers: a.py:f,a.py:g=0.5, or verifier_kwargs reward_weights",
    "advantage_estimator": "the advantages belong to the agent: grpo, rloo, reinforce-plus-plus, ...",
    **dict.fromkeys(("use_vllm", "vllm_mode"), "the trained policy samples itself, without a second engine"),
    "ref_model": "the reference of kl_coef is the policy that training starts from",
    **dict.fromkeys(("top_k", "top_p", "min_p"), "training samples from the whole softmax"),
    "reward_processing_classes": "the verifier reward_model has the argument tokenizer",
    "environment_factory": "a class with reset and tools is a verifier: --verifier my_env.py:Environment",
    "tools": "functions are the environment's: --tool my_tools.py:f, or env_kwargs={'tools': [f]}",
    "max_tool_calling_iterations": "turns are counted: --max-turns = iterations + 1, or env_kwargs={'max_turns': ...}",
    "args": "pass the values of a configuration as keyword arguments",
    "processing_class": "the model brings its tokenizer; another one is env_kwargs={'tokenizer': ...} (--tokenizer)",
}


ALL = frozenset({*NAMES, *LOOP, *POLICY, *SHORT, *SAID})


def hint(name: str) -> str:
    """Return what TRL's name for a setting is called in Python; empty for any other name."""
    if name in SHORT:
        return f"did you mean {SHORT[name]!r}?"
    if name in POLICY:
        values = ", ".join(f"{key!r}: {_python(value)}" for key, value in POLICY[name].items())
        where = f"policy_kwargs={{{values}}}"
    elif name in LOOP:
        where = LOOP[name][0]
    elif name in NAMES:
        ours = NAMES[name]
        where = f"env_kwargs={{{ours!r}: ...}}" if ours in ENV else repr(ours)
    else:
        return SAID.get(name, "")
    unit = UNITS.get(name, ("", ""))[0]
    return f"TRL's {name} is {where} here{', ' if unit else ''}{unit}"


def option_hint(name: str, options: list[str]) -> str:
    """Return what TRL's name for a setting is called on the command line.

    Empty for any other name, and for a setting that the command does not have.

    Args:
        name: such as "num_generations".
        options: parameter names of the command; other settings of agents are written with --agent-arg, if it has that.
    """
    if name in SHORT:
        found = next((each for each in (SHORT[name], f"sft_{SHORT[name]}") if each in options), None)
        return "" if found is None else f"did you mean {_flag(found)}?"
    if name in POLICY:
        written = ", ".join(f"{_flag(key)}{_value(value)}" for key, value in POLICY[name].items())
        return f"rlenv calls it {written}" if POLICY[name].keys() <= {*options} else ""
    ours = NAMES.get(name) or (LOOP[name][1] if name in LOOP else None)
    if ours is None:
        return SAID.get(name, "")
    if ours not in options and (name in LOOP or ours in ENV or "agent_args" not in options):
        return ""
    unit = UNITS.get(name, ("", ""))[1]
    written = _flag(ours) if ours in options else f"--agent-arg {ours}=..."
    return f"rlenv calls it {written}{', ' if unit else ''}{unit}"


def _python(value: Any) -> str:
    return "..." if value is ... else repr(value)


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _value(value: Any) -> str:
    """Return the value of an option as it is written after its name: nothing for a flag, or where it is the user's."""
    return "" if value is ... or value is True else f" {value}"
