"""The code blocks of README.md and docs/**/*.md, and how they run in tests.

A comment over a block, alone on its line, says what a test does with it:

    <!-- not run: WHY -->      Python is compiled only
    <!-- slow: WHY -->         run by the slow tests only
    <!-- in tests: A -> B -->  the fast tests write B for every A in the block; several are separated by ";"
    <!-- file: NAME -->        the block is written to this file instead
    <!-- run -->               a shell block is run; without this its commands are checked only
    <!-- run: exit code 1 -->  the same, for commands that end with this code
    <!-- output -->            what the last Python block that was run printed; numbers may differ by 2 %

A page's Python shares one namespace and one temporary folder. The slow tests run a page as it is printed; the fast
ones compare no output after the first replacement.
"""

import contextlib
import io
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from _rlenv_scripts.main import main
from click.testing import CliRunner
from tiny_models import write_chat_model

ROOT = Path(__file__).resolve().parents[2]
MODEL = Path("path/to/model")  # in examples: the reader's, for which tests make one
PYTHON, SHELL = ("python", "py"), ("", "sh", "bash", "shell", "console")
COMMANDS = ("rlenv", "python", "make", "pip", "cp", "torchrun")
DIRECTIVE = re.compile(r"<!-- (not run|slow|in tests|file|run|output)(?:: (.+))? -->")
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass
class Block:
    """A code block: its language, its text, its first line on the page, and what the comments over it say."""

    language: str
    text: str
    line: int
    directives: dict[str, str] = field(default_factory=dict)

    def runs(self, slow: bool) -> bool:
        wanted = self.language in PYTHON or {"run", "file"} & set(self.directives)
        return bool(wanted) and "not run" not in self.directives and (slow or "slow" not in self.directives)

    def source(self, slow: bool) -> str:
        """Return the text that is run, with the replacements of the fast tests."""
        text = self.text
        for pair in [] if slow else filter(None, self.directives.get("in tests", "").split(";")):
            printed, arrow, smaller = (part.strip() for part in pair.partition("->"))
            assert arrow and printed in text, f"line {self.line}: {printed!r} is not in the block"
            text = text.replace(printed, smaller)
        return text


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(text: str) -> list[Block]:
    """Return the fenced blocks, and the indented ones that begin with a command or a comment."""
    found, lines, directives, at = [], text.splitlines(), {}, 0
    while at < len(lines):
        line, begin = lines[at], at
        at += 1
        if mark := DIRECTIVE.fullmatch(line.strip()):
            directives[mark[1]] = mark[2] or ""
            continue
        if fence := re.match(r"(\s*)(```+)\s*(\w*)", line):
            while at < len(lines) and not lines[at].strip().startswith(fence[2]):
                at += 1
            body = [each.removeprefix(fence[1]) for each in lines[begin + 1 : at]]
            found.append(Block(fence[3], "\n".join(body) + "\n", begin + 1, directives))
            at += 1
        elif line.startswith("    ") and line.split()[0] in (*COMMANDS, "#"):
            while at < len(lines) and lines[at].startswith("    "):
                at += 1
            body = "\n".join(each[4:] for each in lines[begin:at])
            found.append(Block("", body + "\n", begin + 1, directives))
        if line.strip():
            directives = {}
    return found


def commands(block: Block) -> list[list[str]]:
    """Return the words of each command of a shell block."""
    if block.language not in SHELL:
        return []
    lines = block.text.replace("\\\n", " ").splitlines()
    parts = [part for line in lines for part in re.split(r" (?:&&|;|\|) ", line.removeprefix("$ "))]
    words = [shlex.split(part, comments=True) for part in parts]
    words = [[word for n, word in enumerate(each) if n or not re.match(r"\w+=", word)] for each in words]
    return [each for each in words if each and Path(each[0]).name in COMMANDS]


def check_command(words: list[str]) -> None:
    """Check that a command could be run.

    Raises:
        click.UsageError: for an option or a value that rlenv does not take.
        AssertionError: for a file, target or extra that the repository lacks.
    """
    name, *rest = words
    if name == "torchrun" or rest[:2] == ["-m", "rlenv"]:
        name, rest = "rlenv", rest[rest.index("-m") + 2 :]
    if name.endswith("rlenv"):
        check_rlenv(rest)
    elif name == "python" and rest[0].endswith(".py") and "/" in rest[0]:
        assert (ROOT / rest[0]).exists(), f"{rest[0]} does not exist"
    elif name == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert rest[0] in targets, f"make {rest[0]}: the Makefile has no such target"
    elif name == "pip":
        known = re.findall(r"^([\w-]+) =$", (ROOT / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE)
        for extra in re.findall(r"\[([\w,-]+)\]", " ".join(rest)):
            assert set(extra.split(",")) <= set(known), f"setup.cfg has no extra {extra}"


def check_rlenv(words: list[str]) -> tuple[click.Command, dict[str, Any]]:
    """Parse the words with the click command that would run; return it and the options that were given.

    Files and folders need not exist.
    """
    command, context = main, click.Context(main, info_name="rlenv")
    while isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if not rest:
            return command, {}
        _, command, words = command.resolve_command(context, rest)
        context = click.Context(command, parent=context, info_name=command.name)
    values, left, _ = command.make_parser(context).parse_args(list(words))
    if left:
        raise click.UsageError(f"unexpected words: {' '.join(left)}", context)
    found = {}
    for parameter in command.params:
        value = values.get(parameter.name)
        given = isinstance(value, (str, list, tuple)) and len(value) > 0  # else click's own mark of a missing value
        if isinstance(parameter, click.Argument) and parameter.required and not given:
            raise click.MissingParameter(ctx=context, param=parameter)
        if given and not isinstance(parameter.type, click.Path):
            found[parameter.name] = parameter.type_cast_value(context, value)
    return command, found


def run_page(text: str, name: str, slow: bool) -> int:
    """Run the blocks of a page in the current folder; return how many."""
    scope, printed, count, as_printed = {"__name__": "page"}, None, 0, True
    if any(block.runs(slow) and str(MODEL) in block.source(slow) for block in blocks(text)):
        write_chat_model(MODEL, context=256)
    for block in blocks(text):
        if "output" in block.directives:
            if printed is not None:
                assert_alike(block.text, printed, f"{name}, line {block.line}")
            continue
        if not block.runs(slow):
            printed = None if block.language in PYTHON else printed
            continue
        count += 1
        source = block.source(slow)
        as_printed = as_printed and source == block.text
        if "file" in block.directives:
            Path(block.directives["file"]).write_text(source, encoding="utf-8")
        elif block.language in PYTHON:
            with contextlib.redirect_stdout(io.StringIO()) as caught:
                exec(compile("\n" * block.line + source, name, "exec"), scope)
            printed = caught.getvalue() if as_printed else None
        else:
            for words in commands(Block(block.language, source, block.line)):
                run_command(words, f"{name}, line {block.line}", int(block.directives["run"][-1:] or 0))
    return count


def run_command(words: list[str], place: str, code: int = 0) -> None:
    """Run an rlenv command in this process, `python FILE` in this folder, or copy a file of the repository."""
    if words[0] == "rlenv":
        outcome = CliRunner().invoke(main, words[1:], catch_exceptions=False)
        assert outcome.exit_code == code, f"{place}: {shlex.join(words)}\n{outcome.output}"
    elif words[0] == "cp":
        shutil.copy(ROOT / words[1], words[2])
    elif words[0] == "python":
        path = Path(words[1]) if Path(words[1]).exists() else ROOT / words[1]
        exec(compile(path.read_text(encoding="utf-8"), words[1], "exec"), {"__name__": "__main__"})
    else:
        raise AssertionError(f"{place}: tests run rlenv, python and cp, not {words[0]}")


def assert_alike(expected: str, found: str, place: str) -> None:
    """Compare two texts; numbers may differ by 2 %, or by one in the last digit that the page prints."""
    words = [NUMBER.sub("#", text).split() for text in (expected, found)]
    assert words[0] == words[1], f"{place}: the page says\n{expected}\nbut the block printed\n{found}"
    for wanted, number in zip(NUMBER.findall(expected), NUMBER.findall(found), strict=True):
        value, other = (float(each.replace(",", "")) for each in (wanted, number))
        digits = len(wanted.partition("e")[0].partition(".")[2])
        assert abs(value - other) <= max(0.02 * abs(value), 1.01 * 10**-digits), (
            f"{place}: the page says {wanted}, the block printed {number}\n{found}"
        )
