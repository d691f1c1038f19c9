"""Processes that the tests of several processes share: starting them takes longer than most of these tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ranks import Ranks


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(2, tmp_path_factory.mktemp("two"))
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ranks]:
    ranks = Ranks(4, tmp_path_factory.mktemp("four"))
    yield ranks
    ranks.close()
