"""rlenv train: supervised warm start, reinforcement learning, evaluation before and after; or the rest of a run."""

from __future__ import annotations

import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Any

import click

from .choices import agents, offer, policies
from .command import Command
from .options import (
    KeyValue,
    adapter,
    common,
    environment,
    micro_batches,
    one_budget,
    options,
    processes,
    read_run,
    run_folder,
    setting,
    sharding,
    text,
    typed,
    warm_start,
)

agent_options = options(
    click.option(
        "--agent", default="reinforce-baseline", shell_complete=offer(agents),
        help="Algorithm, such as reinforce-baseline, rloo, grpo or ppo; a wrong name prints the list.",
    ),
    click.option(
        "--agent-arg", "agent_args", type=KeyValue(), multiple=True,
        help="Setting of the algorithm without an option, such as clip_range=0.3.",
    ),
    click.option(
        "--model", default="auto", show_default="tiny for text, MlpPolicy for control",
        shell_complete=offer(policies, "dir"),
        help="Preset (tiny, small, base), policy class, model folder or id, or a run folder.",
    ),
    click.option(
        "--policy-arg", "policy_args", type=KeyValue(), multiple=True,
        help="Argument of the policy, such as critic=separate (text), net_arch=[64,64], activation_fn=ReLU (control).",
    ),
    click.option(
        "--timesteps", type=click.IntRange(min=1), default=None, show_default="the policy's",
        help="Steps of the environment (for text: tokens), also those of episodes that are not trained on.",
    ),
    click.option("--episodes", type=click.IntRange(min=1), default=None, help="Episodes, instead of --timesteps."),
    heading="Agent, policy and budget",
)  # fmt: skip

update_options = options(
    setting(
        "--baseline",
        help="Of reinforce-baseline: none, running-mean, batch-mean, group-mean, leave-one-out, value. "
        "Of reinforce-plus-plus: none, group-mean.",
    ),
    setting("--returns", help="Of reinforce-baseline: return-to-go, episode."),
    setting(
        "--learning-rate",
        type=float,
        show_default="3e-4 for tiny, less for larger models, 10 times as much for adapters; control 5e-3, most agents",
        help="Of Adam.",
    ),
    setting("--lr-schedule", help="linear or cosine (to zero at the end), or constant."),
    setting("--warmup-updates", type=int, help="Updates in which the learning rate rises from zero."),
    setting("--weight-decay", type=float, help="Of AdamW, for weights but not for norms and biases."),
    setting("--adam-beta1", type=float, help="Decay of Adam's mean of the gradient."),
    setting("--adam-beta2", type=float, help="Decay of Adam's mean of its square."),
    setting("--adam-eps", type=float, help="Added to the root of that mean."),
    setting("--episodes-per-update", type=int, help="Episodes per rollout."),
    setting("--num-envs", type=int, help="Slots of the environment."),
    setting("--group-size", type=int, show_default="the agent's", help="Episodes that share a prompt."),
    setting("--gamma", type=float, help="Discount per step."),
    setting(
        "--normalize-rewards/--no-normalize-rewards",
        help="Train on rewards divided by the running standard deviation of the return.",
    ),
    setting("--max-grad-norm", type=float, help="Gradients are clipped to this norm."),
    setting("--ent-coef", type=float, help="Entropy bonus."),
    setting("--vf-coef", type=float, help="Weight of the critic's loss, for agents with a critic."),
    setting("--kl-coef", type=float, help="KL anchor to the policy that training starts from."),
    setting("--kl-estimator", help="How the KL is estimated: k1, k2, k3, exact."),
    setting("--kl-in", help="What the KL is added to: reward, loss."),
    micro_batches,
    setting(
        "--max-failed-share", type=float,
        help="Stop when the verifier fails on more than this share of the last hundred episodes.",
    ),
    heading="Updates",
)  # fmt: skip


evaluation = options(
    click.option(
        "--eval-episodes",
        type=click.IntRange(min=1),
        default=None,
        show_default="2000 for text, 100 for control",
        help="Episodes of each evaluation.",
    ),
    click.option(
        "--eval-every",
        type=click.IntRange(min=0),
        default=None,
        show_default="text: ten times, briefly, for a curve; control: never",
        help="Updates between two evaluations during training, 0 for never; the best checkpoint is kept in RUN/best.",
    ),
    click.option(
        "--stop-reward",
        type=float,
        default=None,
        help="Stop when the mean reward of evaluation episodes, minus two standard errors, reaches this.",
    ),
    click.option("--log-interval", type=click.IntRange(min=1), default=10, help="Updates between two log entries."),
    click.option(
        "--track",
        type=click.Choice(["wandb", "mlflow"]),
        default=None,
        help="Send configuration, metrics, samples and result to Weights & Biases or MLflow, too.",
    ),
    click.option(
        "--report/--no-report",
        default=True,
        envvar="RLENV_REPORT",
        help="At the end, write report.html; see rlenv report.",
    ),
    click.option(
        "--log-kl", is_flag=True, help="Log the KL to the policy that training starts from (rollout/kl_start)."
    ),
    click.option(
        "--dry-run", is_flag=True, help="Print the memory that the run needs, and whether it fits; train nothing."
    ),
    heading="Evaluation and logs",
)

checkpoints = options(
    click.option(
        "--resume",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        is_eager=True,
        callback=read_run,
        help="Continue the run in this folder, with its own options.",
    ),
    click.option("--save-every", type=click.FloatRange(min=0), default=10.0, help="Minutes between two checkpoints."),
    click.option(
        "--save-every-updates",
        type=click.IntRange(min=1),
        default=None,
        help="Updates between two checkpoints, instead of --save-every.",
    ),
    click.option("--keep", type=click.IntRange(min=1), default=2, help="Checkpoints that are kept, besides the best."),
    click.option(
        "--trust",
        "trust_checkpoint",
        is_flag=True,
        help="With --resume: import the environment or the verifier that the checkpoint names, module:Name.",
    ),
    heading="Run folder and checkpoints",
)


@click.command(
    cls=Command,
    examples={
        "rlenv train": "A small language model learns two-digit addition",
        "rlenv train --env CartPole-v1 --stop-reward 475": "The same agent balances a pole",
        "rlenv train --model FOLDER_OR_ID --problems FILE --verifier rewards.py:f --agent grpo": "A model of your own, "
        "on your problems, with your reward",
        "rlenv train --resume runs/NAME": "Go on after Ctrl-C, SIGTERM or a kill",
    },
)
@environment
@text
@agent_options
@update_options
@adapter
@warm_start
@evaluation
@checkpoints
@run_folder
@sharding
@processes
@common
def train(**given: Any) -> None:
    """Train an agent.

    Without options, a small language model learns two-digit addition: a supervised warm start on a few hundred
    solved sums, then reinforcement learning from the verifier's reward, measured on held-out sums.

    Ctrl-C, SIGTERM and SIGHUP write a checkpoint first; --resume RUN continues from it, or after a kill from the last
    one written, as if there had been no break.
    """
    from agents import DivergedError, VerifierError, parallel
    from agents.files import read_table
    from verifiers.registry import trusting

    from . import model_defaults, resume, settings
    from . import run_folder as folder
    from .job import failures
    from .memory import dry_run, is_out_of_memory, out_of_memory
    from .processes import begun, join, keep_begun, own_folder
    from .progress import Interrupt, say

    given = _checked(given)
    device = join(given["device"], given["process_timeout"])
    if given["resume"] is None:
        given = model_defaults.fill_in(given)
    if given["dry_run"]:
        dry_run(given)
        return
    if given["resume"] is None and (run := parallel.on_main(begun)) is not None:
        first = read_table(run / folder.CONFIG)  # what was chosen for the memory that was free then
        chosen = {name: first.get(name) for name in ("sft_steps", "micro_batch_tokens")}
        given |= {"resume": run, "trust_checkpoint": True, **chosen}  # by the same command
    resumed = given["resume"] is not None
    interrupt = Interrupt()
    with trusting(given["trust_checkpoint"] or not resumed):
        here = given | {"device": device}
        agent, run_dir = resume.continued(here) if resumed else _new(here)
        keep_begun(run_dir)
        run_dir, given = own_folder(run_dir, given)
        job = _job(agent, given, run_dir, interrupt)
    model_defaults.announce(agent, given)
    with interrupt:  # not before: a signal while a model is loaded ends the command at once
        if resumed and job.finished and parallel.on_main(lambda: folder.is_evaluated(run_dir, agent.num_updates)):
            more = f"pass --timesteps (or --episodes) above {job.goal}"
            raise ValueError(f"the run {str(run_dir)!r} is complete; to go on, {more}")
        config = settings.resolved(given)
        if not resumed:
            folder.create(run_dir, config, given["overwrite"])
        elif agent.num_updates == 0 and not agent.extra_state:
            folder.begin_again(run_dir, config)
        else:
            folder.write_json(run_dir / folder.CONFIG, config)
        again = f"rlenv train --resume {shlex.quote(str(run_dir))}"
        try:
            result = job.run()
        except (VerifierError, DivergedError) as error:
            counts = {"timesteps": agent.num_timesteps, "failures": failures(agent)}
            folder.write_json(run_dir / folder.RESULT, {"stopped": str(error), **counts})
            hint = " A smaller --learning-rate may help." if isinstance(error, DivergedError) else ""
            click.echo(f"Stopped: {error}.{hint} The last checkpoint: {run_dir / folder.CHECKPOINT}", err=True)
            sys.exit(1)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            saved = run_dir / folder.CHECKPOINT
            last = f"the last checkpoint: {saved}" if saved.exists() else "there is no checkpoint yet"
            click.echo(f"Stopped: {out_of_memory(job.phase)}; {last}", err=True)
            sys.exit(1)
        except KeyboardInterrupt:
            say(f"aborted; what was saved before goes on with: {again}")
            raise
    _show(result, job.shown_samples, given)
    if interrupt.asked:
        click.echo(f"Interrupted; checkpoint written to {run_dir / folder.CHECKPOINT}. To go on: {again}", err=True)
        sys.exit(128 + interrupt.asked)


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options, without those that a typed one replaces.

    Raises:
        ValueError: for options that exclude each other, or a --stop-reward that is not finite.
    """
    from agents.checks import check_number

    from .trackers import library

    given = one_budget(given)
    if typed("save_every"):
        if typed("save_every_updates"):
            raise ValueError("--save-every and --save-every-updates exclude each other")
        given["save_every_updates"] = None
    if given["stop_reward"] is not None:
        check_number("stop_reward", given["stop_reward"])
    if given["track"] is not None:
        library(given["track"])  # before any work
    return given


def _job(agent: Any, given: dict[str, Any], run_dir: Path, interrupt: Any) -> Any:
    """Return the run, with its evaluation environments and, if its warm start is not over, demonstrations."""
    from . import session, settings
    from .job import Job

    text = settings.is_text(given["env_id"])
    episodes = given["eval_episodes"] or session.evaluation_episodes(text)
    make = partial(session.evaluation_envs, given["env_id"], agent.origin["env_kwargs"], agent.device, split="test")
    envs = make(episodes)
    listed = session.task_of(envs).stream.listed if text else ()
    if given["eval_episodes"] is None and 0 < len(listed) < episodes:  # no problem twice
        envs.close()
        episodes = len(listed)
        envs = make(episodes)
    over = "warm_start" in agent.extra_state and "imitation" not in agent.extra_state
    shown = session.demonstrations(agent, given) if text and not over else None
    return Job(agent, envs, episodes, shown, given, run_dir, interrupt)


def _show(result: dict[str, Any], samples: list[Any], given: dict[str, Any]) -> None:
    """Write the result into the run folder, and print it."""
    from . import run_folder as folder
    from . import session
    from .progress import say

    run_dir = Path(result["run_dir"])
    folder.write_json(run_dir / folder.RESULT, result)
    reported = given["report"] and _report(run_dir)
    if samples and not given["as_json"]:
        session.print_samples([(row["prompt"], row["completion"], row["reward"]) for row in samples], "test")
    if missing := {name: count for name, count in result["failures"].items() if count}:
        say(f"failures: {', '.join(f'{count} {name}' for name, count in missing.items())}")
    if given["as_json"]:
        click.echo(json.dumps(result))
    else:
        click.echo(f"Run folder: {run_dir}  (tensorboard --logdir {run_dir.parent})")
        if reported:
            click.echo(f"Report: {run_dir / folder.REPORT}")


def _report(run_dir: Path) -> bool:
    """Write the report of a run; return whether that was possible: without one, the result is still shown."""
    from . import run_folder as folder
    from .progress import say
    from .report.page import write_report  # matplotlib takes half a second

    try:
        write_report([run_dir], run_dir / folder.REPORT)
    except (OSError, ValueError) as error:
        say(f"no report was written: {error}")
        return False
    return True


def _new(given: dict[str, Any]) -> tuple[Any, Path]:
    """Return the agent that the options describe and the path of its run folder; writes nothing."""
    from agents import parallel

    from . import run_folder as folder
    from . import session, settings
    from .verifier_names import short_name

    agent = session.build_agent(given["agent"], given)
    of_text = [short_name(given["verifier"])] if settings.is_text(given["env_id"]) else []
    name = "-".join([given["env_id"].split(":")[-1], *of_text, given["agent"]])
    return agent, parallel.on_main(lambda: folder.choose(given["log_dir"], given["overwrite"], name.lower()))
