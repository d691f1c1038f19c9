"""The pages of the museum are what their command writes, and every entry names a test that exists."""

from pathlib import Path

import pytest
import torch
from loaded import loaded
from museum import MADE_UP, OURS, Test, entries, museum_tests

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def command():
    return loaded("docs/make_museum.py")


def test_the_pages_are_what_their_command_writes(command):
    docs = ROOT / "docs"
    kept = [docs / "museum.md", *(docs / "museum").iterdir()]
    assert {path.relative_to(docs).as_posix(): path.read_text(encoding="utf-8") for path in kept} == command.pages()


def test_every_entry_names_a_test_and_has_one_place_on_the_pages(command):
    every = entries()
    assert len({entry.name for entry in every}) == len(every)
    for entry in every:
        assert callable(Test(entry.caught_by).find()), entry.name
        kinds = [title for title, (_, numbers) in command.KINDS.items() if entry.number in numbers]
        assert len(kinds) == (0 if entry.reference in (OURS, MADE_UP) else 1), entry.name


def test_forty_kinds_of_bugs_of_others_and_more_are_planted():
    assert len({entry.number for entry in entries()} - {None}) >= 40


def test_every_bug_can_be_planted(tmp_path):
    """What it replaces exists, though the suite runs only a sample of the museum."""
    planted = [test for test in museum_tests() if hasattr(test, "plant")]
    assert len(planted) > 100
    for test in planted:
        (folder := tmp_path / test.__name__).mkdir()
        with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
            test.plant(patch, folder)
