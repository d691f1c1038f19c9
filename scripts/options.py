"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def options(*decorators: Decorator) -> Decorator:
    """Join click options into one decorator, shown in this order."""

    def apply(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


class KeyValue(click.ParamType):
    """KEY=VALUE, where VALUE is read as JSON and, where it is none, as text."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """Split at the first equals sign."""
        if isinstance(value, (tuple, list)):
            return value[0], value[1]
        key, equals, text = value.partition("=")
        if not equals or not key:
            self.fail(f"{value!r} is not of the form KEY=VALUE", param, ctx)
        try:
            return key, json.loads(text)
        except json.JSONDecodeError:
            return key, text


class ColumnName(KeyValue):
    """OURS=THEIRS: what a file calls one of our columns; a name that looks like a number is a name."""

    name = "OURS=THEIRS"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Split at the first equals sign; a JSON string is taken for what it says."""
        ours, theirs = super().convert(value, param, ctx)
        if isinstance(theirs, str):
            return ours, theirs
        if not isinstance(value, str):
            self.fail(f"the name of a column must be text, got {theirs!r}", param, ctx)
        return ours, value.partition("=")[2]


def _read_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Make a configuration file the defaults of the command; what stands on the command line wins."""
    if value is None:
        return None
    try:
        text = value.read_text(encoding="utf-8")
        config = tomllib.loads(text) if value.suffix == ".toml" else json.loads(text)
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{value} is no valid JSON or TOML file: {error}") from error
    if not isinstance(config, dict):
        raise click.BadParameter(f"{value} holds no table of options")
    names = {flag.lstrip("-"): option.name for option in ctx.command.params for flag in option.opts if option.name}
    config = {names.get(key.replace("_", "-"), key): option for key, option in config.items()}
    known = [option.name for option in ctx.command.params if option.name]
    for key, option in config.items():
        if isinstance(option, list):
            raise click.BadParameter(
                f"{value} sets {key!r} to a list; allowed: a value, or a table for KEY=VALUE options"
            )
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise click.BadParameter(f"{value} sets the unknown option {key!r}{hint}")
    ctx.default_map = {
        **(ctx.default_map or {}),
        # click takes (key, value) pairs for repeated KEY=VALUE options
        **{key: list(option.items()) if isinstance(option, dict) else option for key, option in config.items()},
    }
    return value


def one_budget(given: dict[str, Any]) -> dict[str, Any]:
    """Return the options with one of --timesteps and --episodes at most; the command line wins over a file.

    Raises:
        ValueError: if both come from the same place.
    """
    both = [name for name in ("timesteps", "episodes") if given[name] is not None]
    if len(both) < 2:
        return given
    context = click.get_current_context()
    from_file = [name for name in both if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE]
    if len(from_file) != 1:
        raise ValueError("--timesteps and --episodes exclude each other")
    return {**given, from_file[0]: None}


common = options(
    click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of everything random in the run."),
    click.option("--device", default="auto", help="auto, cpu, cuda, cuda:1, ..."),
    click.option(
        "--config",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        is_eager=True,
        expose_value=False,
        callback=_read_config,
        help="JSON or TOML file with options of this command; the command line wins.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object on the last line."),
)

run_folder = options(
    click.option(
        "--log-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=None,
        show_default="runs/NAME",
        help="The run folder.",
    ),
    click.option("--overwrite", is_flag=True, help="Replace an existing run folder."),
)

environment = options(
    click.option("--env", "env_id", default="TextGen-v0", help="Gymnasium environment id, or package:Name-v0."),
    click.option("--env-arg", "env_args", type=KeyValue(), multiple=True, help="Argument of the environment."),
)

problem_file = options(
    click.option(
        "--problems",
        type=click.Path(resolve_path=True),
        default=None,
        show_default="the verifier's own",
        help="Problems: a .jsonl, .json, .csv, .tsv or .parquet file, or a folder that datasets has saved.",
    ),
    click.option(
        "--column",
        "column_args",
        type=ColumnName(),
        multiple=True,
        help="What the file calls one of our columns (prompt, answer, split, level), such as prompt=question.",
    ),
    click.option(
        "--prompt-template",
        default=None,
        show_default="the prompt column",
        help="Prompts made from the file's columns, such as 'Q: {question} A:'; taken as it is, without escapes.",
    ),
)

text = options(
    click.option("--verifier", default="arith", help='Verifier: a name or "module:Name".'),
    click.option("--verifier-arg", "verifier_args", type=KeyValue(), multiple=True, help="Argument of the verifier."),
    click.option(
        "--verifier-workers",
        type=click.IntRange(min=0),
        default=None,
        show_default="one a core where the verifier wants them",
        help="Worker processes that judge; 0 for none.",
    ),
    click.option(
        "--verifier-timeout",
        type=float,
        default=None,
        show_default="what the verifier says",
        help="Seconds a verdict may take; the worker process is killed then.",
    ),
    click.option(
        "--verifier-memory-mb", type=int, default=None, show_default="2048", help="Memory of a worker process, in MiB."
    ),
    click.option(
        "--unsafe-local-exec",
        is_flag=True,
        help="Let the verifier code run programs with your rights where it has no sandbox.",
    ),
    problem_file,
    click.option(
        "--test-fraction", type=float, default=None, show_default="0.2", help="Share of the problems to measure on."
    ),
    click.option(
        "--long-prompts",
        default=None,
        show_default="error",
        help="What happens to prompts above --max-prompt-tokens: error, skip.",
    ),
    click.option(
        "--curriculum",
        type=float,
        default=None,
        show_default="all levels from the start",
        help="Begin with the easiest level; the next one comes at this success rate, such as 0.8.",
    ),
    click.option(
        "--tokenizer", default=None, show_default="the model's own, else one token a character", help="Folder or id."
    ),
    click.option(
        "--max-prompt-tokens",
        type=int,
        default=None,
        show_default="what the problems need, at most 4096",
        help="Longest prompt.",
    ),
    click.option(
        "--max-new-tokens",
        type=int,
        default=None,
        show_default="what the answers need, at most 4096",
        help="Longest completion.",
    ),
    click.option("--temperature", type=float, default=1.0, help="Of the softmax, in acting and training alike."),
)

warm_start = options(
    click.option("--sft-steps", type=int, default=500, help="Steps of the supervised warm start; 0 for none."),
    click.option("--sft-examples", type=int, default=650, help="Demonstrated problems the warm start sees."),
    click.option("--sft-batch-size", type=int, default=128, help="Demonstrations a step."),
    click.option("--sft-learning-rate", type=float, default=2e-3, help="It falls linearly to a tenth."),
)
TEXT_ONLY = (
    "verifier", "verifier_args", "verifier_workers", "verifier_timeout", "verifier_memory_mb", "unsafe_local_exec",
    "problems", "column_args", "prompt_template", "test_fraction", "long_prompts", "curriculum", "tokenizer",
    "max_prompt_tokens", "max_new_tokens", "temperature",
    "sft_steps", "sft_examples", "sft_batch_size", "sft_learning_rate",
)  # fmt: skip
