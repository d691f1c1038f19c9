"""rlenv train: supervised warm start, reinforcement learning, evaluation before and after."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from .options import KeyValue, common, environment, one_budget, options, run_folder, text, warm_start

agent_options = options(
    click.option(
        "--agent", default="reinforce-baseline",
        help="Algorithm, such as reinforce-baseline, rloo, grpo or ppo; an unknown name lists them all.",
    ),
    click.option(
        "--agent-arg", "agent_args", type=KeyValue(), multiple=True,
        help="Setting of the algorithm that has no option here, such as clip_range=0.3.",
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
        help="Steps of the environment (tokens, for text), those of episodes that are not trained on included.",
    ),
    click.option("--episodes", type=click.IntRange(min=1), default=None, help="Episodes, instead."),
    click.option(
        "--baseline", default=None, show_default="the agent's",
        help="Of reinforce-baseline: none, running-mean, batch-mean, group-mean, leave-one-out, value; of "
        "reinforce-plus-plus: none, group-mean.",
    ),
    click.option("--returns", default=None, show_default="return-to-go", help="return-to-go, episode."),
    click.option("--learning-rate", type=float, default=None, show_default="the policy's", help="Of Adam."),
    click.option("--lr-schedule", default="linear", help="linear (to zero at the end) or constant."),
    click.option(
        "--episodes-per-update", type=int, default=None, show_default="the policy's", help="Episodes per rollout."
    ),
    click.option("--num-envs", type=int, default=None, show_default="the policy's", help="Slots of the environment."),
    click.option(
        "--group-size", type=int, default=None, show_default="the agent's", help="Episodes that share a prompt."
    ),
    click.option("--gamma", type=float, default=None, show_default="the policy's", help="Discount."),
    click.option("--max-grad-norm", type=float, default=1.0, help="Gradients are clipped to this norm."),
    click.option("--ent-coef", type=float, default=0.0, help="Entropy bonus."),
    click.option("--vf-coef", type=float, default=0.5, help="Weight of the critic's loss, where there is a critic."),
    click.option("--kl-coef", type=float, default=0.0, help="KL anchor to the policy that training starts from."),
    click.option("--kl-estimator", default="k1", help="k1, k2, k3, exact."),
    click.option("--kl-in", default="reward", help="reward, loss."),
    click.option("--micro-batch-size", type=int, default=None, show_default="all", help="Rows a pass of the policy."),
    click.option("--micro-batch-tokens", type=int, default=None, show_default="all", help="Tokens a pass."),
    click.option(
        "--max-failed-share", type=float, default=0.1,
        help="Stop once the verifier fails on more than this share of the last hundred episodes.",
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
    help="Stop once the mean of evaluation episodes, less two standard errors, reaches this.",
)
@click.option("--log-interval", type=click.IntRange(min=1), default=10, help="Updates between two log entries.")
@click.option("--log-kl", is_flag=True, help="Log the KL to the policy that training starts from (rollout/kl_start).")
@run_folder
@common
def train(**given: Any) -> None:  # fmt: skip
    """Train an agent.

    With no option, a small language model learns two-digit addition: a supervised warm start on a few hundred
    solved sums, then reinforcement learning from the verifier's reward alone, measured on held-out sums.
    """
    from agents import DivergedError, VerifierError
    from agents.checks import check_number

    from . import run_folder as folder
    from . import session
    from .progress import Interrupt

    given = one_budget(given)
    agent = session.build_agent(given["agent"], given)
    text = session.is_text(given["env_id"])
    episodes = given["eval_episodes"] or session.evaluation_episodes(text)
    if given["stop_reward"] is not None:
        check_number("stop_reward", given["stop_reward"])
    envs = session.evaluation_envs(given["env_id"], agent.origin["env_kwargs"], agent.device, episodes, "test")
    shown = session.demonstrations(agent, given) if text else None
    name = "-".join(
        [given["env_id"].split(":")[-1], *([given["verifier"].replace(":", ".")] if text else []), given["agent"]]
    )
    run_dir = folder.choose(given["log_dir"], given["overwrite"], name.lower())
    folder.create(run_dir, folder.resolved(given), given["overwrite"])

    with Interrupt() as interrupt:
        try:
            result, samples = _run(agent, envs, shown, given, run_dir, interrupt, episodes)
        except VerifierError as error:
            folder.write_json(run_dir / folder.RESULT, {"stopped": str(error), "timesteps": agent.num_timesteps})
            click.echo(f"Stopped: {error}\nCheckpoint written to {run_dir / folder.CHECKPOINT}", err=True)
            sys.exit(1)
        except DivergedError as error:  # raised by saving, so the last checkpoint is that of finite weights
            folder.write_json(run_dir / folder.RESULT, {"stopped": str(error), "timesteps": agent.num_timesteps})
            click.echo(f"Stopped: {error}. A smaller --learning-rate may help.", err=True)
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
    """Warm start, evaluate, learn, evaluate; write checkpoints and samples. Return the result and the samples."""
    from stable_baselines3.common.logger import configure

    from . import run_folder as folder
    from . import session
    from .progress import console
    from .tracking import record_outcome

    agent.set_logger(configure(str(run_dir), ["csv", "tensorboard"]))
    click.get_current_context().call_on_close(agent.logger.close)
    started = time.perf_counter()
    text = session.is_text(given["env_id"])
    losses = session.warm_up(agent, shown, given, interrupt)
    warm_seconds = time.perf_counter() - started
    agent.save(run_dir / folder.CHECKPOINT)
    initial, _ = session.run_evaluation(agent, envs, episodes, given["seed"])
    console.print(f"before: {session.describe(initial)}")

    started = time.perf_counter()
    if not interrupt.asked:
        try:
            _learn(agent, envs, given, interrupt, episodes)
        finally:  # whatever ends the training, what it has learned is kept, but weights that are not finite
            agent.save(run_dir / folder.CHECKPOINT)
    seconds = time.perf_counter() - started

    # The same episodes as before, and none that training or --stop-reward has seen, so that the two figures pair.
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
    """Train for the steps or episodes asked for, with a progress bar and the callbacks asked for."""
    from .progress import ShowProgress, StopOnReward, progress_bar
    from .tracking import KLFromStart

    steps = None if given["episodes"] else given["timesteps"] or agent.policy.defaults["total_timesteps"]
    with progress_bar("training", steps or given["episodes"]) as show:
        callbacks: list[Any] = [
            ShowProgress(lambda note: show(agent.num_timesteps if steps else agent.num_episodes, note), interrupt)
        ]
        if given["stop_reward"] is not None:
            callbacks.append(StopOnReward(given["stop_reward"], lambda: agent.evaluate(envs, episodes)[1].returns))
        if given["log_kl"]:
            callbacks.append(KLFromStart(given["log_interval"]))
        agent.learn(steps, callbacks, given["log_interval"], total_episodes=given["episodes"])
