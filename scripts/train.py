"""rlenv train: supervised warm start, reinforcement learning, evaluation before and after."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from .options import KeyValue, common, environment, one_budget, options, run_folder, setting, text, warm_start

agent_options = options(
    click.option(
        "--agent", default="reinforce-baseline",
        help="Algorithm, such as reinforce-baseline, rloo, grpo or ppo; a wrong name prints the list.",
    ),
    click.option(
        "--agent-arg", "agent_args", type=KeyValue(), multiple=True,
        help="Setting of the algorithm without an option, such as clip_range=0.3.",
    ),
    click.option(
        "--model", default="auto", show_default="tiny for text, MlpPolicy for control",
        help="Preset, policy class, model folder or id, or a run folder.",
    ),
    click.option(
        "--policy-arg", "policy_args", type=KeyValue(), multiple=True,
        help="Argument of the policy, such as critic=separate (text), net_arch=[64,64], activation_fn=ReLU (control).",
    ),
    click.option(
        "--timesteps", type=click.IntRange(min=1), default=None, show_default="the policy's",
        help="Steps of the environment (for text: tokens), also those of episodes that are not trained on.",
    ),
    click.option("--episodes", type=click.IntRange(min=1), default=None, help="Episodes, instead."),
    setting(
        "--baseline",
        help="Of reinforce-baseline: none, running-mean, batch-mean, group-mean, leave-one-out, value. "
        "Of reinforce-plus-plus: none, group-mean.",
    ),
    setting("--returns", help="Of reinforce-baseline: return-to-go, episode."),
    setting("--learning-rate", type=float, help="Of Adam."),
    setting("--lr-schedule", help="linear (to zero at the end) or constant."),
    setting("--episodes-per-update", type=int, help="Episodes per rollout."),
    setting("--num-envs", type=int, help="Slots of the environment."),
    setting("--group-size", type=int, show_default="the agent's", help="Episodes that share a prompt."),
    setting("--gamma", type=float, help="Discount."),
    setting("--max-grad-norm", type=float, help="Gradients are clipped to this norm."),
    setting("--ent-coef", type=float, help="Entropy bonus."),
    setting("--vf-coef", type=float, help="Weight of the critic's loss, for agents with a critic."),
    setting("--kl-coef", type=float, help="KL anchor to the policy that training starts from."),
    setting("--kl-estimator", help="k1, k2, k3, exact."),
    setting("--kl-in", help="reward, loss."),
    setting("--micro-batch-size", type=int, show_default="all", help="Rows per forward pass."),
    setting("--micro-batch-tokens", type=int, show_default="all", help="Tokens per forward pass."),
    setting(
        "--max-failed-share", type=float,
        help="Stop when the verifier fails on more than this share of the last hundred episodes.",
    ),
)  # fmt: skip


@click.command()
@environment
@text
@agent_options
@warm_start
@click.option(
    "--eval-episodes",
    type=click.IntRange(min=1),
    default=None,
    show_default="2000 for text, 100 for control",
    help="Episodes of each evaluation.",
)
@click.option(
    "--stop-reward",
    type=float,
    default=None,
    help="Stop when the mean reward of evaluation episodes, minus two standard errors, reaches this.",
)
@click.option("--log-interval", type=click.IntRange(min=1), default=10, help="Updates between two log entries.")
@click.option("--log-kl", is_flag=True, help="Log the KL to the policy that training starts from (rollout/kl_start).")
@run_folder
@common
def train(**given: Any) -> None:  # fmt: skip
    """Train an agent.

    Without options, a small language model learns two-digit addition: a supervised warm start on a few hundred
    solved sums, then reinforcement learning from the verifier's reward, measured on held-out sums.
    """
    from agents import DivergedError, VerifierError
    from agents.checks import check_number

    from . import run_folder as folder
    from . import session, settings
    from .progress import Interrupt

    given = one_budget(given)
    agent = session.build_agent(given["agent"], given)
    text = settings.is_text(given["env_id"])
    episodes = given["eval_episodes"] or session.evaluation_episodes(text)
    if given["stop_reward"] is not None:
        check_number("stop_reward", given["stop_reward"])
    envs = session.evaluation_envs(given["env_id"], agent.origin["env_kwargs"], agent.device, episodes, "test")
    shown = session.demonstrations(agent, given) if text else None
    name = "-".join(
        [given["env_id"].split(":")[-1], *([given["verifier"].replace(":", ".")] if text else []), given["agent"]]
    )
    run_dir = folder.choose(given["log_dir"], given["overwrite"], name.lower())
    folder.create(run_dir, settings.resolved(given), given["overwrite"])

    with Interrupt() as interrupt:
        try:
            result, samples = _run(agent, envs, shown, given, run_dir, interrupt, episodes)
        except (VerifierError, DivergedError) as error:
            folder.write_json(run_dir / folder.RESULT, {"stopped": str(error), "timesteps": agent.num_timesteps})
            saved = f"\nCheckpoint written to {run_dir / folder.CHECKPOINT}"
            diverged = isinstance(error, DivergedError)  # weights that are not finite are not saved
            hint = ". A smaller --learning-rate may help." if diverged else saved
            click.echo(f"Stopped: {error}{hint}", err=True)
            sys.exit(1)
    folder.write_json(run_dir / folder.RESULT, result)
    if samples and not given["as_json"]:
        session.print_samples(samples, "test")
    if given["as_json"]:
        click.echo(json.dumps(result))
    else:
        click.echo(f"Run folder: {run_dir}  (tensorboard --logdir {run_dir})")
    if interrupt.asked:
        click.echo(f"Interrupted; checkpoint written to {run_dir / folder.CHECKPOINT}", err=True)
        sys.exit(130)


def _run(
    agent: Any, envs: Any, shown: Any, given: dict[str, Any], run_dir: Path, interrupt: Any, episodes: int
) -> tuple[dict[str, Any], list[Any]]:
    """Warm start, evaluate, learn, evaluate; write checkpoints and samples; return the result and the samples."""
    from stable_baselines3.common.logger import configure

    from . import run_folder as folder
    from . import session, settings
    from .progress import console
    from .tracking import record_outcome

    agent.set_logger(configure(str(run_dir), ["csv", "tensorboard"]))
    click.get_current_context().call_on_close(agent.logger.close)
    started = time.perf_counter()
    text = settings.is_text(given["env_id"])
    losses = session.warm_up(agent, shown, given, interrupt)
    warm_seconds = time.perf_counter() - started
    agent.save(run_dir / folder.CHECKPOINT)
    initial, _ = session.run_evaluation(agent, envs, episodes, given["seed"])
    console.print(f"before: {session.describe(initial)}")

    started = time.perf_counter()
    if not interrupt.asked:
        try:
            _learn(agent, envs, given, interrupt, episodes)
        finally:  # also after an error; weights that are not finite are not saved
            agent.save(run_dir / folder.CHECKPOINT)
    seconds = time.perf_counter() - started

    # The episodes of the first evaluation again, none of which training or --stop-reward has seen.
    final, rollout = session.run_evaluation(agent, envs, episodes, given["seed"])
    console.print(f"after:  {session.describe(final)}")
    samples = session.sample_rows(session.task_of(envs), rollout) if text else []
    if samples:
        markdown = session.samples_markdown(samples)
        (run_dir / folder.SAMPLES).write_text(markdown, encoding="utf-8")
        agent.logger.record("eval/samples", markdown, exclude=("stdout", "csv", "json", "log"))
    record_outcome(agent, given["agent"], final)
    agent.logger.dump(agent.num_timesteps)
    result = {
        "run_dir": str(run_dir),
        "env": given["env_id"],
        "agent": given["agent"],
        "seed": given["seed"],
        "timesteps": agent.num_timesteps,
        "trained_timesteps": agent.trained_timesteps,
        "episodes": agent.num_episodes,
        "updates": agent.num_updates,
        "seconds": round(seconds, 3),
        "sft_steps": len(losses),
        "sft_seconds": round(warm_seconds, 3),
        "initial_eval": initial,
        "eval": final,
        "interrupted": interrupt.asked,
    }
    return result, samples


def _learn(agent: Any, envs: Any, given: dict[str, Any], interrupt: Any, episodes: int) -> None:
    """Train with a progress bar and the callbacks that the options ask for."""
    from .progress import ShowProgress, StopOnReward, progress_bar
    from .tracking import KLFromStart

    steps = None if given["episodes"] else given["timesteps"] or agent.or_default("total_timesteps", None)
    with progress_bar("training", steps or given["episodes"]) as show:
        callbacks: list[Any] = [
            ShowProgress(lambda note: show(agent.num_timesteps if steps else agent.num_episodes, note), interrupt)
        ]
        if given["stop_reward"] is not None:
            callbacks.append(StopOnReward(given["stop_reward"], lambda: agent.evaluate(envs, episodes)[1].returns))
        if given["log_kl"]:
            callbacks.append(KLFromStart(given["log_interval"]))
        agent.learn(steps, callbacks, given["log_interval"], total_episodes=given["episodes"])
