"""TensorBoard's tab "Custom Scalars": the curves that answer a question, in one chart each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

CHARTS: dict[str, dict[str, tuple[str, ...]]] = {  # category: title: regular expressions of names
    "1 Does it learn?": {
        "success: sampled in training, greedy on held-out problems": ("rollout/success_rate", "eval/success_rate"),
        "reward: sampled in training, greedy on held-out problems": ("rollout/ep_rew_mean", "eval/mean_reward"),
        "parts of the reward": ("rollout/parts/.*",),
        "success by level of difficulty": ("rollout/success_rate/level_.*",),
        "spread of rewards; share of groups without any": ("rollout/reward_std", "rollout/frac_reward_zero_std"),
    },
    "2 Is it stable?": {
        "KL to the reference and to the start, nats per step": ("train/kl_ref", "train/kl_teacher", "rollout/kl_start"),
        "minus the entropy, nats per step": ("train/entropy_loss",),
        "KL of an update, nats per step; share of clipped steps": ("train/approx_kl", "train/clip_fraction"),
        "largest gap between acting and training, nats": ("train/logp_gap_max",),
    },
    "3 How long are the episodes?": {
        "length in steps (tokens)": ("rollout/ep_len_mean", "eval/mean_ep_length"),
        "share that was cut off": ("rollout/truncated_frac",),
    },
    "4 The optimizer": {
        "norm of the gradient, before clipping": ("train/grad_norm",),
        "learning rate": ("train/learning_rate",),
        "losses (that of the policy is near 0 when all is well)": ("train/policy_loss", "train/value_loss"),
        "loss of the warm start, by its own steps": ("sft/loss",),
    },
    "5 How fast is it?": {"steps (tokens) per second": ("time/fps",)},
}


def layout(absent: Iterable[str]) -> dict[str, Any]:
    """Return the layout for SummaryWriter.add_custom_scalars, without charts that would stay empty.

    Args:
        absent: expressions above whose metrics the run does not log.
    """
    missing = set(absent)
    made: dict[str, Any] = {}
    for category, charts in CHARTS.items():
        for title, names in charts.items():
            if not missing.issuperset(names):
                made.setdefault(category, {})[title] = ["Multiline", [f"^{name}$" for name in names]]
    return made


def absent(agent: Any, figures: Mapping[str, Any], extras: Iterable[str], given: Mapping[str, Any]) -> list[str]:
    """Return which expressions of `CHARTS` a run does not log.

    Args:
        agent: of the run.
        figures: of an evaluation.
        extras: what its episodes have; see `Rollout.extras`.
        given: the options of the command.
    """
    names = list(extras)
    logged = {
        "rollout/success_rate": figures["success_rate"] is not None,
        "eval/success_rate": figures["success_rate"] is not None,
        "rollout/parts/.*": any(name.startswith("parts/") for name in names),
        "rollout/success_rate/level_.*": "level" in names,
        "train/kl_ref": bool(agent.kl_coef),
        "train/kl_teacher": agent.needs_teacher,
        "rollout/kl_start": given["log_kl"],
        "sft/loss": "warm_start" in agent.extra_state and bool(agent.extra_state["warm_start"].get("steps")),
    }
    return [name for name, yes in logged.items() if not yes]
