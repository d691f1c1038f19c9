"""Users for the tests of the sandbox, which is built in one way for root and in another for everybody else."""

import pytest
from other_user import USERS, OtherUser, call, calls_by

from verifiers.isolation.sandbox import run as sandbox


@pytest.fixture(scope="session")
def ordinary_user():
    user = OtherUser()
    yield user
    user.close()


@pytest.fixture(params=USERS)
def user(request):
    """Run a test as each user: what it sends through `other_user.call` happens in a process of that user."""
    other = request.getfixturevalue("ordinary_user") if request.param == "ordinary" and "root" in USERS else None
    with calls_by(other):
        if other and call(sandbox.unavailable):
            pytest.skip(f"no sandbox for an ordinary user: {call(sandbox.unavailable)}")
        yield request.param
