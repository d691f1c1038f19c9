"""Every test runs offline, on one thread, and leaves no random state behind that another could read."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RLENV_REPORT", "0")  # drawing takes longer than the small runs of the tests

import signal

import pytest
import torch
from commands import forking, start

__all__ = ["forking", "start"]  # fixtures

torch.set_num_threads(1)
for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:  # as under nohup, or in the background of a script
        signal.signal(number, heard)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
