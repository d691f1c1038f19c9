"""Histories that the doctor is tested with: healthy ones, and ones with a failure each."""

import csv
import json

from _rlenv_scripts.reports.history import History, Series

UPDATES = 200


def line(start, end, updates=UPDATES, noise=0.0):
    """Return a metric on a line, with the same small disturbance in every fourth value."""
    at = tuple(range(1, updates + 1))
    return Series(at, tuple(start + (end - start) * (i - 1) / (updates - 1) + noise * (i % 4 == 0) for i in at))


def flat(value):
    return line(value, value)


def evaluated(success, reward, episodes=200):
    return {"episodes": episodes, "success_rate": success, "mean_reward": reward, "reward_std": 0.4}


CONTROL = {
    "time/iterations": line(1, UPDATES),
    "time/episodes": line(256, 256 * UPDATES),
    "time/total_timesteps": line(1024, 1024 * UPDATES),
    "rollout/ep_rew_mean": line(20, 390, noise=5),
    "rollout/ep_len_mean": line(20, 390, noise=5),
    "rollout/reward_std": line(10, 40),
    "rollout/truncated_frac": line(0, 0.4),
    "train/entropy_loss": line(-0.69, -0.3),
    "train/policy_loss": line(-0.3, 0.1),
    "train/grad_norm": line(50, 20),
    "train/learning_rate": flat(1e-3),
    "train/logp_gap_max": flat(1e-6),
    "train/skipped_updates": flat(0),
}
TEXT = CONTROL | {
    "rollout/ep_rew_mean": line(0.3, 0.9, noise=0.01),
    "rollout/success_rate": line(0.3, 0.9, noise=0.01),
    "rollout/ep_len_mean": flat(5),
    "rollout/reward_std": line(0.45, 0.3),
    "rollout/frac_reward_zero_std": line(0.4, 0.7),
    "rollout/group_size_min": flat(4),
    "rollout/special_tokens": flat(0.001),
    "rollout/truncated_frac": line(0.05, 0),
    "rollout/kl_start": line(0, 0.3),
    "train/entropy_loss": line(-0.25, -0.05),
    "train/policy_loss": flat(0.001),
    "train/grad_norm": line(2, 0.5),
    "eval/success_rate": Series((0, 100, 200), (0.3, 0.6, 0.9)),
}
CRITIC = TEXT | {
    "train/approx_kl": flat(0.01),
    "train/clip_fraction": flat(0.1),
    "train/explained_variance": line(-0.2, 0.3),
}
SETTINGS = {"env_id": "TextGen-v0", "max_grad_norm": 1.0}
BETTER = {"initial_eval": evaluated(0.3, 0.3), "eval": evaluated(0.9, 0.9)}
HEALTHY = {
    "text": History(TEXT, SETTINGS, BETTER),
    "critic": History(CRITIC, SETTINGS | {"kl_coef": 0.01}, BETTER),
    "control": History(CONTROL, {"env_id": "CartPole-v1", "max_grad_norm": 1.0}),
}


def failing(metrics, config=None, result=None, base=TEXT):
    """Return a healthy run on text in which these things are otherwise."""
    return History(base | metrics, SETTINGS | (config or {}), result or {})


UNCHANGED = {"rollout/ep_rew_mean": line(0.3, 0.3, noise=0.01), "rollout/success_rate": flat(0.3)}
LOST = {"rollout/ep_rew_mean": line(0.9, 0), "rollout/success_rate": line(0.9, 0)}
NEVER_RIGHT = {"eval/success_rate": Series((0, 200), (0, 0)), "rollout/ep_rew_mean": line(0, 0.1)}
FAILING = {
    "stopped": failing({}, result={"stopped": "the reward model is not loaded"}),
    "verifier-failures": failing({"rollout/failed_frac": flat(0.05), "rollout/error_frac": flat(0.05)}),
    "reward-never-seen": failing(
        {"rollout/ep_rew_mean": flat(-200), "rollout/reward_std": flat(0)}, {"env_id": "MountainCar-v0"}, base=CONTROL
    ),
    "all-rewards-equal": failing(UNCHANGED | {"rollout/frac_reward_zero_std": flat(1)}),
    "answers-cut-off": failing({"rollout/truncated_frac": flat(0.9)}),
    "special-tokens": failing({"rollout/special_tokens": flat(0.2)}),
    "turns-run-out": failing(UNCHANGED | {"rollout/truncated_frac": flat(1), "rollout/turns": flat(2)}),
    "one-reply-dominates": failing(UNCHANGED | {"rollout/reply_max_frac": flat(0.99)}),
    "tool-never-called": failing({"rollout/tool_calls": flat(0)}),
    "warm-start-too-flat": failing(NEVER_RIGHT | {"rollout/success_rate": line(0, 0.1)}),
    "warm-start-too-sharp": failing(
        UNCHANGED | {"train/entropy_loss": flat(-0.1), "rollout/frac_reward_zero_std": flat(0.99)}
    ),
    "kl-before-first-update": failing({"rollout/kl_start": flat(0.1)}),
    "ratio-not-one": failing({"train/logp_gap_max": flat(0.02)}),
    "reward-collapse": failing(LOST),
    "entropy-collapse": failing(UNCHANGED | {"train/entropy_loss": line(-0.3, 0)}),
    "kl-runaway": failing({"rollout/kl_start": line(0, 3)}),
    "update-too-far": failing({"train/approx_kl": flat(0.5)}, base=CRITIC),
    "length-explosion": failing(
        {"rollout/ep_len_mean": line(5, 16), "rollout/truncated_frac": line(0, 0.4), "rollout/success_rate": flat(0.3)}
    ),
    "length-collapse": failing({"rollout/ep_len_mean": line(5, 1), "rollout/success_rate": flat(0.3)}),
    "critic-explains-nothing": failing({"train/explained_variance": flat(-0.5)}, base=CRITIC),
    "reward-hacking": failing({"rollout/success_rate": line(0.9, 0.3)}),
    "worse-than-before": failing({}, result={"initial_eval": evaluated(0.9, 0.9), "eval": evaluated(0.7, 0.7)}),
    "gradient-always-clipped": failing({}, {"max_grad_norm": 1e-6}),
    "updates-skipped": failing({"train/skipped_updates": line(0, 20)}),
    "nothing-improved": failing(UNCHANGED),
}


def write_run(folder, history):
    """Write a history as `rlenv train` leaves it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(history.config))
    (folder / "result.json").write_text(json.dumps(history.result))
    points = {name: dict(zip(each.updates, each.values, strict=True)) for name, each in history.metrics.items()}
    points["time/iterations"] = {at: at for at in sorted(set().union(*points.values()))}
    with (folder / "progress.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(points)
        table.writerows([each.get(at, "") for each in points.values()] for at in points["time/iterations"])
    return folder
