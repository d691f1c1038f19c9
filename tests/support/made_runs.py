"""Histories that the doctor is tested with: healthy ones, and one per rule that is a healthy one with its failure."""

import csv
import json

import numpy as np

from rlenv._scripts.reports.history import History

UPDATES = 200
AT = np.arange(UPDATES + 1.0)  # a row for the evaluation before training, and one per update


def line(start, end, noise=0.0):
    """Return a column on a line, with the same small disturbance in every fourth value, and empty before training."""
    values = start + (end - start) * (AT - 1) / (UPDATES - 1) + noise * (AT % 4 == 0)
    return np.where(AT > 0, values, np.nan)


def flat(value):
    return line(value, value)


def sparse(points):
    """Return a column with a value at some updates."""
    return np.array([points.get(int(at), np.nan) for at in AT])


def evaluated(success, reward):
    return {"episodes": 200, "success_rate": success, "mean_reward": reward, "reward_std": 0.4}


CONTROL = {
    "time/iterations": AT,
    "time/episodes": 256 * AT,
    "time/total_timesteps": 1024 * AT,
    "rollout/ep_rew_mean": line(20, 390, noise=5),
    "rollout/ep_len_mean": line(20, 390, noise=5),
    "rollout/reward_std": line(10, 40),
    "rollout/truncated_frac": line(0, 0.4),
    "train/entropy_loss": line(-0.69, -0.3),
    "train/learning_rate": flat(1e-3),
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
    "train/kl_ref": line(0, 0.3),
    "train/entropy_loss": line(-0.25, -0.05),
    "eval/success_rate": sparse({0: 0.3, 100: 0.6, 200: 0.9}),
}
SETTINGS = {"env_id": "TextGen-v0", "agent": "grpo"}
BETTER = {"initial_eval": evaluated(0.3, 0.3), "eval": evaluated(0.9, 0.9)}
HEALTHY = {
    "text": History(TEXT, SETTINGS, BETTER),
    "control": History(CONTROL, {"env_id": "CartPole-v1", "agent": "ppo"}),
}


def write_run(folder, history):
    """Write a history as `rlenv train` leaves it."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(history.config))
    (folder / "result.json").write_text(json.dumps(history.result))
    with (folder / "progress.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(history.columns)
        rows = zip(*history.columns.values(), strict=True)
        table.writerows([["" if np.isnan(cell) else cell for cell in row] for row in rows])
    return folder
