"""The code blocks of README.md and docs/**/*.md, and how they run in tests.

A comment over a block, alone on its line, says what a test does with it:

    <!-- not run: WHY -->      Python is compiled only
    <!-- slow: WHY -->         run by the slow tests only
    <!-- in tests: A -> B -->  the fast tests write B for every A in the block; several are separated by ";"
    <!-- file: NAME -->        the block is written to this file instead
    <!-- run -->               a shell block is run; without this its commands are checked only
    <!-- run: exit code 1 -->  the same, for commands that end with this code
    <!-- warns: TEXT -->       with the numbers of the page, a Python block warns of this
    <!-- output -->            what the last Python block printed; numbers may differ by a tenth

A page's Python shares one namespace and one temporary folder. The slow tests run a page as it is printed; the fast
ones compare no output of a page with replacements.
"""

import contextlib
import io
import re
import shlex
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner
from tiny_models import write_chat_model

from rlenv._scripts.main import main

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path("path/to/model")  # in examples: the reader's, for which tests make one
COMMANDS = ("rlenv", "python", "make", "pip", "torchrun")
DIRECTIVE = re.compile(r"\s*<!-- (not run|slow|in tests|warns|file|run|output)(?:: (.+))? -->")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


class Block(NamedTuple):
    """A code block: its language, its text, its first line on the page, and what the comments over it say."""

    language: str
    text: str
    line: int
    directives: dict[str, str]

    def runs(self, slow):
        wanted = self.language == "python" or {"run", "file"} & set(self.directives)
        return bool(wanted) and "not run" not in self.directives and (slow or "slow" not in self.directives)

    def source(self, slow):
        """Return the text that is run, with the replacements of the fast tests."""
        text = self.text
        for pair in [] if slow else filter(None, self.directives.get("in tests", "").split(";")):
            printed, smaller = (part.strip() for part in pair.split("->"))
            assert printed in text, f"line {self.line}: {printed!r} is not in the block"
            text = text.replace(printed, smaller)
        return text


def blocks(text):
    """Return the fenced blocks, and the indented ones that begin with a command or a comment."""
    found, lines, directives, at = [], text.splitlines(), {}, 0
    while at < len(lines):
        line, begin = lines[at], at
        at += 1
        if mark := DIRECTIVE.fullmatch(line):
            directives[mark[1]] = mark[2] or ""
        elif fence := re.match(r"(\s*)(```+)\s*(\w*)", line):
            while not lines[at].strip().startswith(fence[2]):
                at += 1
            body = [each.removeprefix(fence[1]) for each in lines[begin + 1 : at]]
            found.append(Block(fence[3], "\n".join(body) + "\n", begin + 1, directives))
            directives, at = {}, at + 1
        elif line.startswith("    ") and line.split()[0] in (*COMMANDS, "#"):
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            found.append(Block("", "\n".join(each[4:] for each in lines[begin:at]) + "\n", begin + 1, directives))
            directives = {}
    return found


def commands(block):
    """Return the words of each command of a shell block."""
    if block.language not in ("", "sh", "bash", "shell", "console"):
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    parts = [part for line in lines for part in re.split(r" (?:&&|;|\|) ", line.removeprefix("$ "))]
    words = [shlex.split(re.sub(r"^\w+=\S+ ", "", part), comments=True) for part in parts]
    return [each for each in words if each and Path(each[0]).name in COMMANDS]


def check_rlenv(words):
    """Parse words with the click command that would run; return it and the options given. Files need not exist."""
    command, context = main, click.Context(main, info_name="rlenv")
    while isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not rest:
            return command, {}
        _, command, words = command.resolve_command(context, rest)
        context = click.Context(command, parent=context, info_name=command.name)
    values, left, _ = command.make_parser(context).parse_args(list(words))
    assert not left, f"unexpected words: {' '.join(left)}"
    given = {name: value for name, value in values.items() if isinstance(value, (str, list, tuple)) and value}
    asked = {parameter.name: parameter for parameter in command.params}
    missing = [name for name, each in asked.items() if isinstance(each, click.Argument) and each.required]
    assert given.keys() >= {*missing}, f"{missing} are needed"
    typed = [name for name in given if not isinstance(asked[name].type, click.Path)]
    return command, {name: asked[name].type_cast_value(context, given[name]) for name in typed}


def run_page(text, name, slow):
    """Run the blocks of a page in the current folder; return how many."""
    scope, printed, count = {"__name__": "page"}, None, 0
    as_printed = slow or not any("in tests" in block.directives for block in blocks(text))
    if str(MODEL) in text or "in tests: smollm2" in text:
        write_chat_model(MODEL, context=256)
    for block in blocks(text):
        place, source = f"{name}, line {block.line}", block.source(slow)
        if "output" in block.directives and printed is not None and as_printed:
            assert_alike(block.text, printed, place)
        if not block.runs(slow):
            printed = None if block.language == "python" else printed
            continue
        count += 1
        if "file" in block.directives:
            Path(block.directives["file"]).write_text(source, encoding="utf-8")
        elif block.language == "python":
            warned = block.directives.get("warns") if as_printed else None
            expected = pytest.warns(UserWarning, match=warned) if warned else contextlib.nullcontext()
            with contextlib.redirect_stdout(io.StringIO()) as caught, expected:
                exec(compile("\n" * block.line + source, name, "exec"), scope)
            printed = caught.getvalue()
        else:
            for words in commands(block._replace(text=source)):
                run_command(words, place, int(block.directives["run"][-1:] or 0))
    return count


def run_command(words, place, code):
    """Run an rlenv command, or `python FILE`, in this process."""
    if words[0] == "rlenv":
        outcome = CliRunner().invoke(main, words[1:], catch_exceptions=False)
        assert outcome.exit_code == code, f"{place}: {shlex.join(words)}\n{outcome.output}"
    else:
        path = Path(words[1]) if Path(words[1]).exists() else ROOT / words[1]
        exec(compile(path.read_text(encoding="utf-8"), words[1], "exec"), {"__name__": "__main__"})


def assert_alike(expected, found, place):
    """Compare two texts; numbers may differ by a tenth, or by one in the last digit that the page prints.

    Another processor rounds otherwise, which a training amplifies.
    """
    assert NUMBER.sub("#", expected).split() == NUMBER.sub("#", found).split(), f"{place}: the block printed\n{found}"
    for wanted, number in zip(NUMBER.findall(expected), NUMBER.findall(found), strict=True):
        digits = len(wanted.partition("e")[0].partition(".")[2])
        value = float(wanted.replace(",", ""))
        near = pytest.approx(value, rel=0.1, abs=1.01 * 10**-digits)
        assert float(number.replace(",", "")) == near, f"{place}: the page says {wanted}\n{found}"
