"""The command line that stands for options."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from .parameters import KeyValue


def rlenv_command(command: click.Command, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the program and the arguments that run a command of `rlenv`, such as `train`.

    Options are by parameter name; those that the command does not take, or that equal its default, are left out.
    """
    arguments = [sys.executable, "-m", "rlenv", str(command.name)]
    for parameter in command.params:
        value = options.get(str(parameter.name))
        if value is False and parameter.secondary_opts and parameter.default is not False:
            arguments.append(parameter.secondary_opts[-1])
        if value is None or value is False or value == parameter.default:
            continue
        flag = parameter.opts[-1]
        if isinstance(parameter.type, KeyValue):
            arguments += [f"{flag}={key}={json.dumps(setting)}" for key, setting in dict(value).items()]
        elif parameter.multiple:
            arguments += [f"{flag}={each}" for each in value]
        else:
            arguments.append(flag if value is True else f"{flag}={value}")
    return tuple(arguments)
