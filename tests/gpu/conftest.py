"""These tests run on a CUDA device with `make test-gpu`; without one, the fast tests run them on a pretend one."""

import pytest
import torch
from pretend_device import pretend_device

REAL = torch.cuda.is_available()


def pytest_itemcollected(item):
    if REAL:
        item.add_marker("gpu")


@pytest.fixture(autouse=True)
def device():
    """The pretend device, which counts; None on a real one."""
    if REAL:
        yield None
    else:
        with pretend_device() as pretended:
            yield pretended
