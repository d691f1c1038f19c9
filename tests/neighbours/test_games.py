"""The games of the real packages: those of TextArena, the same for a seed and kept apart; a quest of TextWorld."""

import importlib
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlenv.verifiers import make_verifier
from rlenv.verifiers.base import is_success
from rlenv.verifiers.dialogues.textarena import GAMES

pytestmark = [pytest.mark.neighbours, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("game", GAMES)
def test_a_game_repeats_for_its_seed_and_can_be_spelled(game):
    pytest.importorskip("textarena")
    verifier = make_verifier(f"textarena:{game}-v0")
    before = random.getstate()
    problem = verifier.sample(random.Random(3))
    first, second = verifier.dialogue(problem), verifier.dialogue(problem)
    assert first.opening == second.opening == problem.prompt and set(problem.prompt) <= set(verifier.alphabet)
    replies = [(first.reply("junk"), second.reply("junk")) for _ in range(2)]
    assert all(one == other for one, other in replies) and random.getstate() == before
    low, high = verifier.reward_range
    assert replies[0][0].verdict is None and low <= replies[1][0].verdict.reward <= high
    assert len(replies[0][0].content) <= verifier.turns.reply_length


def test_every_id_is_played_or_refused():
    pytest.importorskip("textarena")
    registry = importlib.import_module("textarena.envs.registration").ENV_REGISTRY
    for name in registry:
        base = name.partition("-v0")[0]
        if base not in GAMES:
            with pytest.raises(ValueError, match=re.escape(f"{name} is not supported")):
                make_verifier(f"textarena:{name}")
    assert set(GAMES) <= {name.partition("-v0")[0] for name in registry}


def test_a_quest_is_paid_and_other_commands_are_not(monkeypatch, tmp_path):
    pytest.importorskip("textworld")
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
