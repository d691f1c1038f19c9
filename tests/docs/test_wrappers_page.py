"""docs/wrappers.md says what becomes of TextGen-v0 in each of Gymnasium's wrappers, and that is so."""

import re
from pathlib import Path

import pytest
from gymnasium import wrappers
from gymnasium.wrappers import vector
from loaded import loaded

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def maker():
    return loaded("docs/make_wrappers.py")


def test_every_wrapper_of_gymnasium_is_tried(maker):
    assert list(maker.SINGLE) == [name for name in wrappers.__all__ if name != "vector"]
    assert list(maker.VECTOR) == list(vector.__all__)


def test_the_tables_are_what_happens(maker):
    assert maker.page() == maker.PAGE.read_text(encoding="utf-8"), "run python docs/make_wrappers.py"


def test_the_wrappers_people_use_work(maker):
    """A table that says "refused" everywhere would be true as well."""
    for name in ("RecordEpisodeStatistics", "TransformReward", "ClipReward", "NormalizeReward"):
        assert {maker.outcome(kind, name) for kind in maker.KINDS} == {"works"}


def test_a_reward_that_is_not_the_expected_one_is_noticed(maker, monkeypatch):
    broken = maker.Case(lambda env: wrappers.TransformReward(env, lambda reward: -reward))
    monkeypatch.setitem(maker.SINGLE, "TransformReward", broken)
    with pytest.raises(AssertionError, match=r"TransformReward \(single\): rewards \[-1.0\], expected 1.0"):
        maker.outcome("single", "TransformReward")


def test_the_example_runs(maker, capsys):
    [code] = re.findall(r"```py\n(.*?)```", maker.PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, "wrappers.md", "exec"), {})
    assert "'r':" in capsys.readouterr().out
