"""The example of a TextWorld game, played with TextWorld where it is installed."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from rlenv.verifiers import make_verifier
from rlenv.verifiers.base import is_success

pytestmark = [pytest.mark.neighbours, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("textworld")


def test_a_quest_is_paid_and_other_commands_are_not(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    command = ["custom", "--world-size", "1", "--nb-objects", "3", "--quest-length", "2", "--seed", "3", "--output"]
    maker, file = Path(sys.executable).with_name("tw-make"), tmp_path / "game.z8"
    subprocess.run([sys.executable, maker, *command, file], check=True, capture_output=True)
    verifier = make_verifier("gym:textworld_game:TextWorld-v0", game=str(file))
    problem = verifier.sample(random.Random(0))
    assert "-= Bedroom =-" in problem.prompt and ">" not in problem.prompt
    dialogue = verifier.dialogue(problem)
    first = [dialogue.reply(turn) for turn in ("fly", "inventory", "take latchkey")]
    assert [reply.reward for reply in first] == [0, 0, 0]
    assert first[1].content == "You are carrying nothing.\n"
    last = dialogue.reply("unlock safe with latchkey")
    assert last.reward + last.verdict.reward == 1 and is_success(verifier, last.verdict)
