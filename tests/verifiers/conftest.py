"""Users for the tests of the sandbox, which is built in one way for root and in another for everybody else."""

import pytest
from other_user import USERS, OtherUser, call, calls_by

from verifiers.sandbox import run as sandbox


@pytest.fixture(scope="session")
def ordinary_user():
    user = OtherUser()
    yield user
    user.close()


@pytest.fixture(params=[USERS[0], *(pytest.param(user, marks=pytest.mark.slow) for user in USERS[1:])])
def user(request):
    """Run a test as each user: what it sends through `other_user.call` happens in a process of that user.

    The user who runs the tests is the one of the fast suite. A test marked with `each_user` is fast as each.
    """
    other = request.getfixturevalue("ordinary_user") if request.param == "ordinary" and "root" in USERS else None
    with calls_by(other):
        if other and call(sandbox.unavailable):
            pytest.skip(f"no sandbox for an ordinary user: {call(sandbox.unavailable)}")
        yield request.param
