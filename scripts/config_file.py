"""Options from a file, YAML, TOML or JSON, or from a run folder: they become the defaults of the command."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import yaml

from .defaults import advice
from .parameters import KeyValue
from .run import LOCAL, runs_in


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
    names = {flag.lstrip("-"): option.name for option in ctx.command.params for flag in option.opts if option.name}
    config = {names.get(str(key).replace("_", "-"), str(key)): option for key, option in config.items()}
    known = [option.name for option in ctx.command.params if option.name]
    several = [one for one in ctx.command.params if getattr(one, "multiple", False)]
    repeated = [one.name for one in several if not isinstance(one.type, KeyValue)]
    if isinstance(config.get("verifier"), list):
        config["verifier"] = ",".join(map(str, config["verifier"]))
    for key, option in config.items():
        if isinstance(option, list) and key not in repeated:
            allowed = "a value, or a table for KEY=VALUE options"
            raise click.BadParameter(f"{value} sets {key!r} to a list; allowed: {allowed}")
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            hint = advice(key, ctx.command) or (f"did you mean {close[0]!r}?" if close else "see --help-all")
            raise click.BadParameter(f"{value} sets the unknown option {key!r}; {hint}")
    ctx.default_map = {
        **(ctx.default_map or {}),
        # click takes (key, value) pairs for repeated KEY=VALUE options
        **{key: list(option.items()) if isinstance(option, dict) else option for key, option in config.items()},
    }
    return value


def _parsed(path: Path) -> Any:
    """Return what a file holds: TOML or YAML by its suffix, else JSON."""
    parsers: dict[str, Callable[[str], Any]] = {".toml": tomllib.loads, ".yaml": yaml.safe_load, ".yml": yaml.safe_load}
    faults = (tomllib.TOMLDecodeError, yaml.YAMLError, json.JSONDecodeError, UnicodeDecodeError, RecursionError)
    try:
        return parsers.get(path.suffix, json.loads)(path.read_text(encoding="utf-8"))
    except faults as error:
        kind = path.suffix[1:].upper() if path.suffix in parsers else "JSON"
        reason = " ".join(str(error).split())  # YAML's messages have several lines
        raise click.BadParameter(f"{path} is not a valid {kind} file: {reason}") from error
