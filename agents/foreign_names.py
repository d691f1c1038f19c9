"""What TRL and stable-baselines3 call a setting, for the errors about unknown names; their pages in docs have the rest.

Commands read the same table in scripts/console/known.json.
"""

from __future__ import annotations

from typing import NamedTuple


class Ours(NamedTuple):
    """A setting here.

    Attributes:
        name: of the setting.
        where: the argument of an agent that it is in, such as "env_kwargs"; "rlenv train" for an option of that.
        note: what else is different.
    """

    name: str
    where: str = ""
    note: str = ""


_ENV, _POLICY, RUN = "env_kwargs", "policy_kwargs", "rlenv train"
FOREIGN = {
    "lr": Ours("learning_rate"),
    "num_generations": Ours("group_size"),
    "beta": Ours("kl_coef"),
    "epsilon": Ours("clip_range"),
    "epsilon_high": Ours("clip_range_high"),
    "num_iterations": Ours("num_epochs"),
    "mask_truncated_completions": Ours("mask_truncated"),
    "per_device_train_batch_size": Ours("episodes_per_update", note="of all devices and accumulation steps"),
    "gradient_accumulation_steps": Ours("micro_batch_size", note="the episodes of a pass, not the number of passes"),
    "lr_scheduler_type": Ours("lr_schedule"),
    "warmup_steps": Ours("warmup_updates"),
    "entropy_coef": Ours("ent_coef"),
    "teacher_model_name_or_path": Ours("teacher"),
    "n_steps": Ours("episodes_per_update", note="finished episodes, not steps per slot"),
    "batch_size": Ours("num_minibatches", note="mini-batches per pass, not steps per mini-batch"),
    "n_epochs": Ours("num_epochs"),
    "n_envs": Ours("num_envs"),
    "max_completion_length": Ours("max_new_tokens", _ENV),
    "max_prompt_length": Ours("max_prompt_tokens", _ENV),
    "reward_funcs": Ours("verifier", _ENV),
    "train_dataset": Ours("problems", _ENV),
    "environment_factory": Ours("verifier", _ENV),
    "bf16": Ours("dtype", _POLICY, "'bfloat16'"),
    "torch_dtype": Ours("dtype", _POLICY),
    "gradient_checkpointing": Ours("activation_checkpointing", _POLICY),
    "use_peft": Ours("lora_rank", _POLICY),
    "lora_r": Ours("lora_rank", _POLICY),
    "lora_target_modules": Ours("lora_targets", _POLICY),
    **{name: Ours(name, _POLICY) for name in ("normalize_observations", "net_arch", "activation_fn", "use_sde")},
    "loss_type": Ours("agent", RUN, "grpo, dr-grpo, dapo, ...; in Python the class"),
    "max_steps": Ours("episodes", RUN, "steps x episodes_per_update; in Python learn(total_episodes=...)"),
    "logging_steps": Ours("log_interval", RUN, "in Python learn(log_interval=...)"),
    "save_steps": Ours("save_every_updates", RUN, "in Python a callback"),
    "output_dir": Ours("log_dir", RUN, "in Python agent.save(path)"),
    "resume_from_checkpoint": Ours("resume", RUN, "in Python Agent.load(path)"),
    "model_name_or_path": Ours("model", RUN, "in Python the first argument"),
    "report_to": Ours("track", RUN, "in Python tensorboard_log=FOLDER, or a callback"),
}


def hint(name: str) -> str:
    """Return what a foreign name for a setting is called in Python; empty for any other name."""
    if name not in FOREIGN:
        return ""
    ours, where, note = FOREIGN[name]
    if where == RUN:
        said = f"--{ours.replace('_', '-')} of {RUN}"
    else:
        said = f"{where}={{{ours!r}: ...}}" if where else repr(ours)
    return f"here it is {said}{', ' if note else ''}{note}"
