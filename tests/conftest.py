"""Every test runs offline, on one thread, and leaves no random state behind that another could read."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("RLENV_REPORT", "0")  # drawing takes longer than the small runs of the tests

import signal

import pytest
import torch
from commands import forking, start
from drawn import FEW, MANY
from hypothesis import settings

import verifiers.builtin  # noqa: F401 (before a test replaces the registry for a while)

__all__ = ["forking", "start"]  # fixtures

torch.set_num_threads(1)
os.fsync = lambda descriptor: os.fstat(descriptor) and None  # no test is about a power cut; a closed file is an error

# The fast tests draw the same examples every time; finds of `--hypothesis-profile random` belong to who asked for them.
settings.register_profile("same", derandomize=True, max_examples=FEW, deadline=None)
settings.register_profile("random", database=None, max_examples=MANY, deadline=None, print_blob=True)
settings.load_profile("same")

for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:  # as under nohup, or in the background of a script
        signal.signal(number, heard)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
