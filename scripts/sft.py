"""rlenv sft: supervised training on demonstrations, those of a verifier or the answers in a file."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from .command import Command
from .options import adapter, common, declared, environment, processes, run_folder, text, warm_start
from .parameters import given_by_user, options, typed
from .shell_completions import POLICIES, offer

HELD_OUT = 500  # demonstrations of the test split, at most, for eval_loss


@click.command(
    cls=Command,
    examples={
        "rlenv sft --log-dir runs/warm": "A preset imitates solved sums",
        "rlenv sft --problems FILE --epochs 3 --model FOLDER_OR_ID": "A model of your own, on the answers in a file",
        "rlenv train --model runs/warm --sft-steps 0": "Reinforcement learning from there",
    },
    often={
        "What is imitated": ("verifier", "problems", "column_args", "chat"),
        "Who learns": ("model", "lora_rank", "sft_learning_rate"),
        "How much": ("epochs", "sft_steps", "sft_batch_size"),
        "The run": ("config", "log_dir", "seed", "device"),
    },
)
@environment
@text
@click.option(
    "--model",
    default="auto",
    shell_complete=offer(lambda: POLICIES, "dir"),
    show_default="tiny",
    help="Preset (tiny, small, base, smollm2), model folder, GGUF file or id, or a run folder.",
)
@adapter
@warm_start
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=None,
    help="Passes over all training problems of the file, instead of --sft-steps.",
)
@options(declared("sft"), heading="Updates")
@click.option(
    "--eval-episodes", type=click.IntRange(min=0), default=2000, help="Episodes of the evaluation; 0 for none."
)
@run_folder
@processes
@common
def sft(**given: Any) -> None:
    """Train a language model on demonstrations; `rlenv train --model RUN --sft-steps 0` continues.

    With --problems, the answers in the file are the demonstrations, all of the training split. The loss is that of the
    answers' tokens, never of the prompts'. eval_loss is that of held-out problems, in nats per token. With --verifier,
    the verifier judges greedy answers as well.
    """
    from agents import processes

    from . import model_defaults, session, settings
    from .progress import Interrupt
    from .run import CHECKPOINT, Run, choose
    from .torchrun import own_run
    from .verifier_names import short_name

    if not settings.is_text(given["env_id"]):
        raise ValueError(f"{given['env_id']} has no demonstrations to learn from")
    judged = given["problems"] is None or given_by_user("verifier")
    given = given if judged else {**given, "verifier": "exact"}
    given["sft_steps"] = model_defaults.STEPS if given["sft_steps"] is None else given["sft_steps"]
    agent = _agent(given)
    given |= _amount(given, len(session.task_of(agent.env).stream.listed))
    shown = session.demonstrations(agent, given)
    evaluation = (given["env_id"], session.arguments_of(agent), agent.device)
    envs = session.held_out_envs(*evaluation, given["eval_episodes"]) if judged and given["eval_episodes"] else None
    held_out = None if shown is None else _held_out(agent, envs, partial(session.evaluation_envs, *evaluation), given)
    source = short_name(given["verifier"]) if judged else Path(given["problems"]).stem
    place = processes.on_main(lambda: choose(given["log_dir"], given["overwrite"], f"sft-{source}"))
    run, given = own_run(Run(place), given)
    run.create(settings.resolved(given), given["overwrite"])
    started, before = time.perf_counter(), _loss(agent, held_out, given)
    with Interrupt() as interrupt:
        imitation = session.Imitation if given["epochs"] is None else session.EpochImitation
        losses = [] if shown is None else imitation(agent, shown, given).run(interrupt)
    seconds = time.perf_counter() - started
    agent.save(run.path / CHECKPOINT)
    result = {
        "run_dir": str(run.path),
        "env": given["env_id"],
        "seed": given["seed"],
        "steps": len(losses),
        "examples": given["sft_examples"],
        "loss": losses[-1] if losses else None,
        "initial_eval_loss": before,
        "eval_loss": _loss(agent, held_out, given),
        "seconds": round(seconds, 3),
        "eval": session.run_evaluation(agent, envs, given["eval_episodes"], given["seed"])[0]
        if envs is not None
        else None,
        "interrupted": bool(interrupt.asked),
    }
    _show(run, result, 0 if held_out is None else len(held_out), given["as_json"])
    if interrupt.asked:
        click.echo(f"Interrupted; checkpoint written to {run.path / CHECKPOINT}", err=True)
        sys.exit(128 + interrupt.asked)


def _agent(given: dict[str, Any]) -> Any:
    """Return an agent with the model that the options describe; it is never asked to learn from rewards.

    Raises:
        ValueError: if there are fewer episodes to evaluate than processes.
    """
    from agents import processes

    from . import model_defaults, session
    from .torchrun import join

    device = join(given["device"], given["process_timeout"])
    if 0 < given["eval_episodes"] < processes.size():
        few = f"--eval-episodes {given['eval_episodes']} is too few for {processes.size()} processes"
        raise ValueError(f"{few}: each evaluates one at least")
    given["micro_batch_tokens"] = model_defaults.passes_of_imitation(given)
    with processes.alone():  # its share of the episodes of an update does not matter: there are none
        agent = session.build_agent("reinforce", given | {"device": device})
    processes.same_start(agent.policy)
    model_defaults.announce(agent, given)
    return agent


def _show(run: Any, result: dict[str, Any], held_out: int, as_json: bool) -> None:
    """Write the result into the run folder, and print it."""
    from . import session
    from .progress import say
    from .run import RESULT

    run.write(RESULT, result)
    if held_out:
        before, after = result["initial_eval_loss"], result["eval_loss"]
        say(f"loss on {held_out} held-out answers: {before:.3f} before, {after:.3f} after, in nats per token")
    if as_json:
        click.echo(json.dumps(result))
    else:
        said = "" if result["eval"] is None else f"{session.describe(result['eval'])}\n"
        click.echo(f"{said}Run folder: {result['run_dir']}")


def _amount(given: dict[str, Any], listed: int) -> dict[str, Any]:
    """Return how many examples and steps there are: of a file, all its training problems, in epochs if asked for.

    Raises:
        ValueError: for --epochs without a file, or together with --sft-steps.
    """
    if given["problems"] is None:
        if given["epochs"] is not None:
            raise ValueError("--epochs counts passes over a file: pass --problems, or --sft-steps instead")
        return {}
    examples = min(given["sft_examples"], listed) if given_by_user("sft_examples") else listed
    if given["epochs"] is None:
        return {"sft_examples": examples}
    if typed("sft_steps"):
        raise ValueError("--epochs and --sft-steps exclude each other")
    return {"sft_examples": examples, "sft_steps": given["epochs"] * -(-examples // max(given["sft_batch_size"], 1))}


def _held_out(agent: Any, envs: Any, make: Callable[[int, str], Any], given: dict[str, Any]) -> Any:
    """Return demonstrations of problems in the test split; None if it is empty.

    Args:
        agent: for its device.
        envs: of the evaluation, used if they are of the test split; None without one.
        make: makes environments of a split, with so many slots.
        given: the options.
    """
    from rlenv.stream import EmptySplitError

    from . import session

    judged = envs is not None and session.task_of(envs).split == "test"
    try:
        own = envs if judged else make(1, "test")
    except EmptySplitError:
        return None
    task = session.task_of(own)
    count = min(len(task.stream.listed) or HELD_OUT, HELD_OUT)
    try:
        return session.first_demonstrations(task, count, given["seed"], agent.device)
    finally:
        if not judged:
            own.close()


def _loss(agent: Any, held_out: Any, given: dict[str, Any]) -> float | None:
    from agents.training.supervised import demonstration_loss

    if held_out is None:
        return None
    return demonstration_loss(agent.policy, held_out, given["sft_batch_size"], agent.micro_batch_tokens)
