"""A training run from its warm start to its last evaluation; a resumed one goes on where its checkpoint was written."""

from __future__ import annotations

import math
import signal
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
from stable_baselines3.common.logger import HParam

from rlenv.agents import Agent, Rollout, processes

from ..config.base import named
from ..config.configs import TrainConfig
from ..config.names import short_name
from ..process.errors import is_out_of_memory
from ..process.progress import Interrupt, SignalError, counting, progress_bar, say
from ..reports.evaluation_figures import describe
from ..reports.rules import CURVE_EPISODES
from ..run import samples
from ..run.checkpoints import Saver
from ..run.folder import EPISODES, RunFolder
from ..run.log import log_table, open_log
from ..run.trackers import TRACKERS
from . import session
from .callbacks import BetweenSteps, LiveDoctor
from .warm_start import warm_start

OUTCOMES = ("eval/mean_reward", "eval/success_rate", "eval/mean_ep_length")  # of an evaluation, as they are logged
POINTS = 10  # of the curve of held-out success by default
LOOKS = (64, 256, 1024, 4096)  # episodes that may show that --stop-reward is far away


class TrainJob:
    """One run of `rlenv train`.

    Args:
        agent: new, or loaded from a checkpoint of the run.
        config: of the run.
        run: new, or the one that is resumed.
        interrupt: whether a signal came.

    Attributes:
        envs: of the evaluations; None for no evaluation.
        episodes: of each evaluation.
        demonstrations: for the warm start; None without one, or if it is over.
        shown_samples: held-out episodes of the last evaluation, for text; see `samples.episode_rows`.
        written: the config as config.json has it, with the steps or episodes that the run ends after.
    """

    def __init__(self, agent: Agent, config: TrainConfig, run: RunFolder, interrupt: Interrupt) -> None:
        self.agent, self.run, self.interrupt = agent, run, interrupt
        self.saver = Saver(run, agent, config.save_every, config.save_every_updates, config.keep)
        self.state = self.saver.state
        self.is_text = config.is_text
        self.unit = "tokens" if self.is_text else "steps"
        self.counter = "num_episodes" if config.episodes else "num_timesteps"
        self.goal = config.episodes or config.timesteps or agent.usual("total_timesteps")
        self.shown_samples: list[samples.Row] = []
        self._tried = -1  # the updates after which --stop-reward was looked at last
        self._reached = False  # whether it has been reached
        self.sample_log = samples.SampleLog(run.path / EPISODES, agent)
        if self.is_text:
            session.check_problems(session.task_of(agent.env))
        self.episodes, self.envs = session.evaluation_of(agent, config.eval_episodes)
        self.demonstrations = None
        if self.is_text:
            agent.watchers.append(self.sample_log.watch)
            if "warm_start" not in self.state or "imitation" in self.state:
                self.demonstrations = session.demonstrations_if_any(agent, config)
                if self.demonstrations is None:
                    config = config.but(sft_steps=0)
        self.config = config
        self.written = config.flat() | {"episodes" if config.episodes else "timesteps": self.goal}
        self.doctor = LiveDoctor(run.path, self.written)

    def do(self) -> dict[str, Any]:
        """Do the rest of the run; return its result, without a last evaluation after a signal."""
        name = f"{short_name(named(self.config.agent))}-seed-{self.config.seed}"
        self.agent.set_logger(open_log(self.run, self.state.get("log"), name))
        final = tracker = None
        goes_on = self.agent.collector.goes_on
        self.agent.collector.goes_on = lambda: not self.interrupt.signal
        try:
            if self.config.track is not None:
                tracker = TRACKERS[self.config.track](self.run.path, self.agent.settings | self.written)
                self.agent.logger.output_formats.append(tracker)
            if not warm_start(self.saver, self.demonstrations, self.config, self.interrupt):
                raise SignalError
            if "initial" not in self.state and self.envs is not None:
                self.state["initial"] = self._evaluate("before", self.config.seed, self.episodes)
                say(f"before: {describe(self.state['initial'])}")
            self._learn()
            final = self._last_evaluation()
            if tracker is not None:
                tracker.result = self.result(final)
        except SignalError:
            pass
        except CancelledError:  # of the engine, before an evaluation
            if not processes.any_of(bool(self.interrupt.signal)):
                raise
        finally:
            # Who trains on with the agent leaves the files of the run as they are.
            self.agent.collector.goes_on = goes_on
            self.agent.unwritten.close()
            if self.envs is not None:
                self.envs.close()  # its workers would go on with verdicts that nobody waits for
        return self.result(final)

    def _learn(self) -> None:
        """Train up to the run's goal and write a checkpoint; after an error in an update, the last one stays."""
        self.saver.count_seconds(True)
        left, counter = self.goal - getattr(self.agent, self.counter), self.counter
        try:
            if left > 0:
                with progress_bar("training", self.goal, self.goal - left) as show:
                    steps, episodes = (left, None) if counter == "num_timesteps" else (None, left)
                    callback = BetweenSteps(
                        lambda note: show(getattr(self.agent, counter), note),
                        self.interrupt,
                        self.unit,
                        self._before_rollout,
                    )
                    again, interval = self.agent.num_updates > 0, self.config.log_interval
                    self.agent.start_watch.warns = False  # it speaks of Python; the rule no-signal says it in options
                    self.agent.learn(steps, callback, interval, reset_num_timesteps=not again, total_episodes=episodes)
                    if self._reached:
                        note = f"reached {self.config.stop_reward:g} after {self.agent.num_timesteps:,} {self.unit}"
                        show(done := getattr(self.agent, counter), note, done)
                self.sample_log.write_pending()
        except Exception as error:
            if self.agent.updating and is_out_of_memory(error):
                raise  # one line is enough: nothing can be saved in the middle of an update
            if processes.size() > 1 and isinstance(error, OSError):
                raise  # perhaps of this process alone: then the others are elsewhere, and saving needs them
            try:
                self.saver.save_changes()
            except Exception as second:
                say(f"nothing was saved after the error: {type(second).__name__}: {second}")
            raise
        self.saver.save_changes()
        self.saver.count_seconds(False)
        if processes.any_of(bool(self.interrupt.signal)):
            raise SignalError

    def _before_rollout(self) -> bool:
        """Write samples of the last update; evaluate, save and look if it is time; return whether training goes on."""
        self.sample_log.write_pending()
        now, updates, every = getattr(self.agent, self.counter), self.agent.num_updates, self.config.eval_every
        other = self.config.seed + 1  # than the episodes of the first and last evaluation
        if every is None and self.is_text and self.envs is not None:
            points = [min(POINTS * count // self.goal, POINTS - 1) for count in (self.state.get("curve", 0), now)]
            if points[0] < points[1]:
                self._evaluate("during", other, min(self.episodes, max(self.agent.episodes_per_update, CURVE_EPISODES)))
                self.state["curve"] = now  # not before: a signal may end the evaluation
        if every and self.state.get("evaluated", 0) // every < updates // every:
            figures = self._evaluate("during", other, self.episodes)
            say(f"after {updates} updates: {describe(figures)}")
            if "best" not in self.state or figures["mean_reward"] > self.state["best"]["mean_reward"]:
                self.state["best"] = {"updates": updates, **figures}
                self.saver.save_best()
            self.state["evaluated"] = updates
        reached = self._reaches_goal()
        self.saver.save_if_due()
        self.doctor.look_if_due(updates)
        return not reached

    def _reaches_goal(self) -> bool:
        """Tell whether the mean reward of new episodes, minus two standard errors, reaches --stop-reward.

        Without that margin a lucky evaluation passes. They are played before a rollout, so that the policy that passed
        is kept, at most after every second update, and only if the last rollout's mean was at least goal - |goal| / 2.
        Most policies fail by far, which few episodes show: 64, then four times as many, and so on, as long as their
        mean, plus three standard errors, reaches the goal.
        """
        goal, updates = self.config.stop_reward, self.agent.num_updates
        latest = self.agent.last_metrics.get("rollout/ep_rew_mean", -math.inf)
        if goal is None or updates == self._tried or updates % 2 == 0 or latest < goal - abs(goal) / 2:
            return False
        self._tried = updates  # an update may have several rollouts
        seed = int(np.random.SeedSequence([self.config.seed, updates]).generate_state(1)[0])
        looks = [count for count in LOOKS if 2 * count <= self.episodes]
        for episodes, errors in (*((count, -3) for count in looks), (self.episodes, 2)):
            returns = self._play(seed, episodes)[1].returns
            if returns.mean() - errors * returns.std(correction=0) / math.sqrt(len(returns)) < goal:
                return False
        self._reached = True
        return True

    def _play(self, seed: int, episodes: int) -> tuple[dict[str, Any], Rollout]:
        with progress_bar("evaluation", episodes, passing=True) as show:
            counted = counting(show, episodes, self.unit)

            def on_step(taken: int, local: dict[str, Any]) -> bool:
                if self.interrupt.signal:
                    raise SignalError
                return counted(taken, local)

            return session.run_evaluation(self.agent, self.envs, episodes, seed, on_step=on_step)

    def _evaluate(self, when: str, seed: int, episodes: int) -> dict[str, Any]:
        """Evaluate "before", "during" or "after" training; log the figures and some samples, and keep these."""
        figures, rollout = self._play(seed, episodes)
        known = {key: figures[key.removeprefix("eval/")] for key in OUTCOMES}
        outcome = {key: figure for key, figure in known.items() if figure is not None}
        for key, figure in outcome.items():
            self.agent.logger.record(key, figure)
        rows: list[samples.Row] = []
        if self.is_text:
            task, few = session.task_of(self.envs), rollout.select(slice(samples.SHOWN))
            facts = {"kind": "evaluation", "when": when, "updates": self.agent.num_updates, "split": task.split}
            rows = samples.episode_rows(task, few, **facts)
            log_table(self.agent.logger, "eval/samples", *samples.table(rows), self.agent.num_timesteps)
        if when != "during":
            self.sample_log.add(rows)
        if when == "after":
            self.shown_samples = rows
            settings = self.written | self.agent.settings
            plain = {name: each for name, each in settings.items() if isinstance(each, (bool, int, float, str))}
            hparams = HParam(plain, outcome)  # for TensorBoard's table of runs
            self.agent.logger.record("hparams", hparams, exclude=("stdout", "log", "json", "csv"))
        self.agent.dump_logs()
        return figures

    def _last_evaluation(self) -> dict[str, Any] | None:
        """Play the episodes of the first evaluation again, none of which training or --stop-reward has seen."""
        figures = None
        if self.envs is not None:
            figures = self._evaluate("after", self.config.seed, self.episodes)
            say(f"after:  {describe(figures)}")
        self.doctor.look(self.result(figures))
        return figures

    def result(self, final: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result that `--json` prints; `final` has the figures of the last evaluation, if it was made."""
        number = self.interrupt.signal
        agent, warm_start = self.agent, self.state.get("warm_start", {})
        return {
            "run_dir": str(self.run.path),
            "env": self.config.env_id,
            "agent": named(self.config.agent),
            "seed": self.config.seed,
            "timesteps": agent.num_timesteps,
            "trained_timesteps": agent.trained_timesteps,
            "episodes": agent.num_episodes,
            "updates": agent.num_updates,
            "seconds": round(self.state.get("seconds", 0.0), 3),
            "sft_steps": warm_start.get("steps", 0),
            "sft_loss": warm_start.get("loss"),
            "sft_seconds": warm_start.get("seconds", 0.0),
            "initial_eval": self.state.get("initial"),
            **({"best": self.state["best"]} if "best" in self.state else {}),
            "eval": final,
            "failures": {**agent.failure_watch.totals, "skipped_updates": agent.policy_optimizer.total_skipped},
            "interrupted": bool(number),
            **({"signal": signal.Signals(number).name} if number else {}),
        }
