"""Golden runs: commands as a person runs them in a folder of small inputs, and what they leave."""

from __future__ import annotations

import csv
import json
import shlex
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from _rlenv_scripts.main import main
from click.testing import CliRunner, Result
from inprocess import result_of
from tiny_models import write_chat_model

WORDS = [f"{a}{b}" for a in "abcdef" for b in "abcdef"]
MODULES = {
    "rewards.py": """
def vowels(prompts, completions, **columns):
    return [float(sum(letter in "aeiou" for letter in str(completion))) for completion in completions]
""",
    "my_tools.py": '''
def double(x: int) -> int:
    """Double a number.

    Args:
        x: any.
    """
    return 2 * x
''',
    "worlds.py": """
import gymnasium
import numpy as np

class Squares(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 255, (3, 36, 36), np.uint8)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.low.copy(), {}
    def step(self, action):
        self.steps += 1
        return self.observation_space.high.copy(), float(action), self.steps == 4, False, {}

class Echo(gymnasium.Env):
    observation_space = action_space = gymnasium.spaces.Text(8)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turns = 0
        return "say 1: ", {}
    def step(self, action):
        self.turns += 1
        return "again: ", 0.5 * ("1" in action), self.turns == 2, False, {}

gymnasium.register("Squares-v0", entry_point=Squares)
gymnasium.register("Echo-v0", entry_point=Echo)
""",
    "numbers_world.py": '''
class Numbers:
    def reset(self, **columns):
        self.reward = 0.0
        return "a number? "
    def guess(self, number: int) -> str:
        """Guess.

        Args:
            number: any.
        """
        self.reward = float(number == 7)
        return "thanks"
    def get_reward(self):
        return self.reward
''',
}
PLUGIN = """
from verifiers import Problem, Verdict, Verifier

class Letters(Verifier):
    alphabet, prompt_length, answer_length = "abcdefgh", 2, 2
    def sample(self, rng):
        letters = rng.choice("abcdefgh") + rng.choice("abcdefgh")
        return Problem(letters, letters)
    def verify(self, problem, completion):
        return Verdict(float(completion == problem.answer))
"""


@dataclass(frozen=True)
class Run:
    """A command and what must be left of it.

    Attributes:
        line: as typed after `rlenv`; {out} is a new folder, {text} and {pole} are finished runs.
        keys: of the JSON that it prints, all of them.
        figures: by dotted names of the JSON, or by metrics of progress.csv, of the first row that has them.
        files: patterns behind {out}, as "/config.json" or ".jsonl".
        columns: of progress.csv, all of them.
        typed: lines on standard input.
        said: texts that it prints.
        code: that it ends with.
    """

    line: str
    keys: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)
    files: str = ""
    columns: str = ""
    typed: str = ""
    said: tuple[str, ...] = ()
    code: int = 0


def write_inputs(folder: Path) -> None:
    """Write what the commands read: problems, conversations, pairs, a model, a plugin's wheel and modules."""
    rows = [{"q": f"{word}>", "a": word[::-1], "split": "test" if word[0] == "c" else "train"} for word in WORDS]
    pairs = [
        {"prompt": row["q"], "chosen": row["a"], "rejected": f"{row['a']}x", "split": row["split"]} for row in rows
    ]
    talks = [{"messages": [{"role": "user", "content": word}], "answer": word} for word in WORDS]
    for name, lines in {"words": rows, "pairs": pairs, "talks": talks}.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for name, text in MODULES.items():
        (folder / name).write_text(text)
    write_chat_model(folder / "model")
    with zipfile.ZipFile(folder / "letters-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("letters.py", PLUGIN)
        wheel.writestr("letters-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: letters\nVersion: 1.0\n")
        wheel.writestr("letters-1.0.dist-info/entry_points.txt", "[rlenv.verifiers]\nletters = letters:Letters\n")


def forget_modules() -> None:
    for name in [name for name in sys.modules if f"{name.partition('.')[0]}.py" in MODULES or name == "letters"]:
        del sys.modules[name]
    for name in ("Squares-v0", "Echo-v0"):
        gymnasium.registry.pop(name, None)


def command(line: str, typed: str = "", **places: Any) -> Result:
    words = [word.format(**places) for word in shlex.split(line)]
    return CliRunner().invoke(main, words, input=typed)


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "progress.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check(run: Run, **places: Path) -> None:
    """Run a command and compare all that its row says."""
    out, outcome = places["out"], command(run.line, run.typed, **places)
    assert outcome.exit_code == run.code, f"{outcome.output}{outcome.exception!r}"
    for text in run.said:
        assert text in outcome.output, f"{text!r} is not in {outcome.output}"
    missing = [name for name in run.files.split() if not list(out.parent.glob(f"{out.name}{name}"))]
    assert not missing, sorted(path.relative_to(out.parent).as_posix() for path in out.parent.glob(f"{out.name}*/**"))
    found = result_of(outcome, run.code) if run.keys else {}
    rows = rows_of(out) if run.columns else []
    for kind, left, listed in (("keys", found, run.keys), ("columns", rows[0] if rows else {}, run.columns)):
        gone, new = {*listed.split()} - {*left}, {*left} - {*listed.split()}
        assert not gone and not new, f"{kind}: {sorted(gone)} are gone, {sorted(new)} are new"
    figures = {name: figure(name, found, rows) for name in run.figures}
    assert figures == dict(run.figures), f"{figures} instead of {run.figures}"


def figure(name: str, found: Any, rows: list[dict[str, str]]) -> Any:
    """Return a figure of the JSON, or of the first row of progress.csv that has it."""
    if "/" in name:
        return next(float(row[name]) for row in rows if row[name])
    for part in name.split("."):
        found = found[part]
    return found


def about(value: float, share: float = 0.02) -> Any:
    """Return what equals a figure that another machine rounds differently."""
    return pytest.approx(value, rel=share, abs=1e-6)
