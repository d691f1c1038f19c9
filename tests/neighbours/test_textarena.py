"""The games of the real package: the same for a seed, and kept apart."""

import importlib
import random
import re

import pytest

from rlenv.verifiers import make_verifier
from rlenv.verifiers.dialogues.textarena import GAMES

pytestmark = [pytest.mark.neighbours, pytest.mark.filterwarnings("ignore")]
textarena = pytest.importorskip("textarena")


@pytest.mark.parametrize("game", GAMES)
def test_a_game_repeats_for_its_seed_and_can_be_spelled(game):
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
    registry = importlib.import_module("textarena.envs.registration").ENV_REGISTRY
    for name in registry:
        base = name.partition("-v0")[0]
        if base not in GAMES:
            with pytest.raises(ValueError, match=re.escape(f"{name} is not supported")):
                make_verifier(f"textarena:{name}")
    assert set(GAMES) <= {name.partition("-v0")[0] for name in registry}
