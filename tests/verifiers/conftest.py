import pytest
from processes import MARK, eventually, kill_all, new_mark, processes_of


@pytest.fixture
def mark(monkeypatch):
    """Return the mark of the processes that the test starts; none is left afterwards."""
    made = new_mark()
    monkeypatch.setenv(MARK, made)
    try:
        yield made
        assert eventually(lambda: not processes_of(made), 20)
    finally:
        kill_all(made)
