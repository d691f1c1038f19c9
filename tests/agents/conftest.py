"""Processes that the tests of several processes share: starting them takes longer than most of these tests."""

import pytest
from ranks import Ranks


@pytest.fixture(scope="session")
def two(tmp_path_factory):
    ranks = Ranks(2, tmp_path_factory.mktemp("two"))
    yield ranks
    ranks.close()


@pytest.fixture(scope="session")
def four(tmp_path_factory):
    ranks = Ranks(4, tmp_path_factory.mktemp("four"))
    yield ranks
    ranks.close()
