"""The templates of reports and cards, which are files beside this module."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from rlenv.version import __version__

from ..process.terminal import plain

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, /, **facts: Any) -> str:
    """Return the text of a template with these facts, which are data in it.

    jinja2 escapes them in HTML and SVG, and their control characters are spelled out.

    Args:
        template: its file, such as "page.html".
        facts: which the template names.
    """
    return _environment().get_template(template).render(facts)


@functools.cache
def _environment() -> Environment:
    """Return the environment of the templates, which compiles each once."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape  # on use: they take long

    environment = Environment(
        loader=PackageLoader(__name__.rpartition(".")[0], "."),
        autoescape=select_autoescape(["html", "svg"]),
        undefined=StrictUndefined,
        finalize=lambda value: plain(value) if type(value) is str else value,  # markup of the page is another type
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals |= {"version": __version__, "json": json.dumps}
    return environment
