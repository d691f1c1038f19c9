"""Try stable-baselines3's callbacks with our agents, and write docs/callbacks.md: `python docs/make_callbacks.py`."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
from stable_baselines3.common import callbacks as sb3
from stable_baselines3.common.logger import Logger
from transformers import TrainerCallback

import rlenv  # noqa: F401
from agents import Agent, Reinforce

PAGE = Path(__file__).with_name("callbacks.md")
HEAD = """# stable-baselines3's callbacks

`learn(..., callback=...)` takes the callbacks of stable-baselines3. `python docs/make_callbacks.py` writes the table:
it trains REINFORCE for 16 episodes on CartPole (4 slots) and on one-digit sums (8 slots) with each of them, and a test
repeats it.

| callback | CartPole-v1 | TextGen-v0 |
|---|---|---|
"""
TAIL = """
- Frequencies (`eval_freq`, `save_freq`) count calls, one per step of all slots, as in stable-baselines3: for one every
  10,000 steps pass `max(10_000 // agent.n_envs, 1)`. Slots that wait for the last episodes of a rollout take no steps.
- Callbacks act between the steps of a rollout. One that stops the training leaves the rollout unfinished, and the agent
  does not train on it.
- `EvalCallback` warns that the environments of training and evaluation are not of the same type, and about `Monitor`;
  both are harmless.
- `CheckpointCallback` and `EvalCallback` write a folder, whose name is without `.zip`; `Agent.load` reads it.
"""
TEXT = {"verifier": "arith", "verifier_kwargs": {"digits": 1}}


def agent_for(world: str) -> Agent:
    """Return a small new agent."""
    if world == "TextGen-v0":
        return Reinforce("tiny", world, env_kwargs=TEXT, episodes_per_update=8, num_envs=8, device="cpu")
    return Reinforce("MlpPolicy", world, episodes_per_update=8, num_envs=4, device="cpu")


def evaluation_env(world: str) -> gym.Env:
    """Return an environment to evaluate in."""
    return gym.make(world, **(TEXT if world == "TextGen-v0" else {}))


class Recorder(sb3.BaseCallback):
    """Notes the count of steps whenever it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[int] = []

    def _on_step(self) -> bool:
        self.seen.append(self.num_timesteps)
        return True


def evaluates(world: str, folder: Path) -> str:
    """EvalCallback: evaluate, log, keep the best."""
    callback = sb3.EvalCallback(
        evaluation_env(world), n_eval_episodes=2, eval_freq=3, best_model_save_path=str(folder), verbose=0, warn=False
    )
    agent = learned(world, callback)
    assert callback.evaluations_results is not None and agent.logger is not None
    Agent.load(folder / "best_model", device="cpu")
    return "evaluates, and keeps the best model"


def stops_at_a_reward(world: str, folder: Path) -> str:
    """StopTrainingOnRewardThreshold inside EvalCallback."""
    stop = sb3.StopTrainingOnRewardThreshold(reward_threshold=-1.0)
    learned_less(world, sb3.EvalCallback(evaluation_env(world), stop, n_eval_episodes=1, eval_freq=2, verbose=0))
    return "stops"


def stops_without_improvement(world: str, folder: Path) -> str:
    """StopTrainingOnNoModelImprovement inside EvalCallback."""
    stop = sb3.StopTrainingOnNoModelImprovement(max_no_improvement_evals=1, min_evals=0)
    env = gym.wrappers.TransformReward(evaluation_env(world), lambda reward: 0.0)
    callback = sb3.EvalCallback(env, callback_after_eval=stop, n_eval_episodes=1, eval_freq=1, verbose=0, warn=False)
    learned_less(world, callback)
    return "stops"


def stops_after_episodes(world: str, folder: Path) -> str:
    """StopTrainingOnMaxEpisodes, whose limit is per slot."""
    callback = sb3.StopTrainingOnMaxEpisodes(max_episodes=1)
    learned_less(world, callback)
    return "stops"


def saves(world: str, folder: Path) -> str:
    """CheckpointCallback."""
    agent = learned(world, sb3.CheckpointCallback(save_freq=3, save_path=str(folder), name_prefix="mine"))
    saved = sorted(folder.iterdir())
    assert saved and all(isinstance(Agent.load(path, device="cpu"), type(agent)) for path in saved)
    return "saves what `Agent.load` reads"


def every_so_often(world: str, folder: Path) -> str:
    """EveryNTimesteps."""
    recorder = Recorder()
    learned(world, sb3.EveryNTimesteps(n_steps=16, callback=recorder))
    assert recorder.seen and all(b - a >= 16 for a, b in zip([0, *recorder.seen], recorder.seen, strict=False))
    return "calls the other callback"


def logs_every_so_often(world: str, folder: Path) -> str:
    """LogEveryNTimesteps, with the agent's own log off."""
    dumps: list[int] = []
    agent = agent_for(world)
    agent.set_logger(Logger(str(folder), []))
    agent.logger.dump = dumps.append  # type: ignore[method-assign]
    agent.learn(total_episodes=16, callback=sb3.LogEveryNTimesteps(n_steps=16), log_interval=100)
    assert dumps
    return "writes the log"


def together(world: str, folder: Path) -> str:
    """CallbackList, and a list."""
    one, other = Recorder(), Recorder()
    learned(world, [sb3.CallbackList([one]), other])
    assert one.seen == other.seen != []
    return "calls each in turn"


def functions(world: str, folder: Path) -> str:
    """ConvertCallback: a function of locals and globals."""
    calls: list[bool] = []
    learned(world, lambda local, _: calls.append("infos" in local) or True)
    assert calls and all(calls)
    return "is called with `locals` (`dones`, `infos`, `rewards`) and `globals`"


def shows_progress(world: str, folder: Path) -> str:
    """ProgressBarCallback, and progress_bar=True."""
    agent_for(world).learn(16, progress_bar=True)
    return "shows steps (`learn(..., progress_bar=True)`)"


def foreign(world: str, folder: Path) -> str:
    """Return what a callback of another library does."""
    learned(world, TrainerCallback())
    return "is called"


CASES: dict[str, Callable[[str, Path], str]] = {
    "`EvalCallback`": evaluates,
    "`StopTrainingOnRewardThreshold`, in `EvalCallback`": stops_at_a_reward,
    "`StopTrainingOnNoModelImprovement`, in `EvalCallback`": stops_without_improvement,
    "`StopTrainingOnMaxEpisodes`": stops_after_episodes,
    "`CheckpointCallback`": saves,
    "`EveryNTimesteps`": every_so_often,
    "`LogEveryNTimesteps`": logs_every_so_often,
    "`CallbackList`, a list": together,
    "a function (`ConvertCallback`)": functions,
    "`ProgressBarCallback`": shows_progress,
    "`TrainerCallback` of transformers": foreign,
}
WORLDS = ("CartPole-v1", "TextGen-v0")


def learned(world: str, callback: Any) -> Agent:
    """Return an agent after 16 episodes."""
    agent = agent_for(world).learn(total_episodes=16, callback=callback)
    assert agent.num_episodes == 16
    return agent


def learned_less(world: str, callback: Any) -> None:
    """Check that a callback stops the training."""
    agent = agent_for(world).learn(total_episodes=1000, callback=callback)
    assert agent.num_episodes < 1000


def outcome(case: Callable[[str, Path], str], world: str) -> str:
    """Return what a callback does, or the message with which it is refused."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        for harmless in (
            "Training and eval env are not",
            "Evaluation environment is not wrapped",
            "rich is experimental",
        ):
            warnings.filterwarnings("ignore", message=harmless)
        try:
            return case(world, Path(folder))
        except (ValueError, TypeError, AttributeError) as error:
            return f"refused: {re.sub(' at 0x[0-9a-f]+', '', str(error).splitlines()[0])}"


def page() -> str:
    """Return the page."""
    rows = [f"| {name} | {' | '.join(outcome(case, world) for world in WORLDS)} |\n" for name, case in CASES.items()]
    return HEAD + "".join(rows) + TAIL


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
