"""Options from a file, YAML or JSON, or from a run folder: they become the defaults of the command."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import click
import yaml

from ..run.folder import LOCAL, runs_in
from .defaults import advice
from .parameters import KeyValue


def read_run(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Read the options of a run that is resumed as the defaults of the command, except those of one invocation."""
    if value is None:
        return None
    if not (value / "config.json").is_file():
        missing = f"{str(value)!r} is not a run folder: there is no config.json in it"
        raise click.BadParameter(runs_in(value) or missing)
    read_config(ctx, param, value / "config.json")
    ctx.default_map = {name: option for name, option in (ctx.default_map or {}).items() if name not in LOCAL}
    return value


def read_config(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Read a configuration file as the defaults of the command; the command line wins."""
    if value is None:
        return None
    if ctx.default_map:
        raise click.BadParameter("--config and --resume exclude each other")
    config = _parsed(value)
    if not isinstance(config, dict):
        raise click.BadParameter(f"{value} must hold a table of options")
    flags = {flag.lstrip("-").replace("-", "_"): each for each in ctx.command.params for flag in each.opts}
    known = flags | {str(each.name): each for each in ctx.command.params}
    ctx.default_map = {}
    for key, given in config.items():
        option = known.get(str(key).replace("-", "_"))
        if option is None:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = advice(str(key), ctx.command) or (f"did you mean {close[0]!r}?" if close else "see --help-all")
            raise click.BadParameter(f"{value} sets the unknown option {key!r}; {hint}")
        if isinstance(given, list) and option.name == "verifier":
            given = ",".join(map(str, given))
        if isinstance(given, list) and (isinstance(option.type, KeyValue) or not getattr(option, "multiple", False)):
            allowed = "a value, or a table for KEY=VALUE options"
            raise click.BadParameter(f"{value} sets {key!r} to a list; allowed: {allowed}")
        ctx.default_map[str(option.name)] = list(given.items()) if isinstance(given, dict) else given
    return value


def _parsed(path: Path) -> Any:
    """Return the content of a file: YAML by its suffix, else JSON."""
    kind, parse = ("YAML", yaml.safe_load) if path.suffix in (".yaml", ".yml") else ("JSON", json.loads)
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = " ".join(str(error).split())  # YAML's messages have several lines
        raise click.BadParameter(f"{path} is not a valid {kind} file: {reason}") from error
