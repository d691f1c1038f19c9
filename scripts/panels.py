"""TensorBoard's tab "Custom Scalars": the curves that answer a question, in one chart each."""

from __future__ import annotations


def _lines(*tags: str) -> list[object]:
    return ["Multiline", [f"^{tag}$" for tag in tags]]


LAYOUT = {  # category: chart: the tags in it, as regular expressions
    "1 Does it learn?": {
        "success: sampled in training, greedy on held-out problems": _lines(
            "rollout/success_rate", "eval/success_rate"
        ),
        "reward: sampled in training, greedy on held-out problems": _lines("rollout/ep_rew_mean", "eval/mean_reward"),
        "parts of the reward": _lines("rollout/parts/.*"),
        "success by level of difficulty": _lines("rollout/success_rate/level_.*"),
        "groups without a signal (share), spread of rewards": _lines(
            "rollout/frac_reward_zero_std", "rollout/reward_std"
        ),
    },
    "2 Does it stay sane?": {
        "KL to the reference and to the start, nats per step": _lines("train/kl_ref", "rollout/kl_start"),
        "minus the entropy, nats per step": _lines("train/entropy_loss"),
        "KL of an update, share of clipped steps": _lines("train/approx_kl", "train/clip_fraction"),
        "acting against training: largest gap of log-probabilities": _lines("train/logp_gap_max"),
        "failures": _lines("rollout/(failed|timeout|error|not_applicable)_frac", "train/skipped_updates"),
    },
    "3 How long are the answers?": {
        "length in steps (tokens)": _lines("rollout/ep_len_mean", "eval/mean_ep_length"),
        "share that was cut off": _lines("rollout/truncated_frac"),
    },
    "4 The optimizer": {
        "norm of the gradient, before clipping": _lines("train/grad_norm"),
        "learning rate": _lines("train/learning_rate"),
        "losses (of the policy: near 0 is normal)": _lines("train/loss", "train/policy_loss", "train/value_loss"),
        "loss of the warm start, by its own steps": _lines("sft/loss"),
    },
    "5 Speed": {"steps (tokens) per second": _lines("time/fps")},
}
