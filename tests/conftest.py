"""Every test runs offline, on one thread, and leaves no random state behind that another could read."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # threads that spin while they wait keep other tests from working
os.environ.setdefault("RLENV_REPORT", "0")  # drawing takes longer than the small runs of the tests

import tempfile

_CACHE = tempfile.TemporaryDirectory(prefix="datasets-")
os.environ["HF_DATASETS_CACHE"] = _CACHE.name  # where files are mapped from

import gc

gc.disable()  # until everything is imported and collected

import itertools
import shutil
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

os.fsync = lambda descriptor: os.fstat(descriptor) and None  # no test is about a power cut; a closed file is an error

for number, heard in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) == signal.SIG_IGN:  # as under nohup, or in the background of a script
        signal.signal(number, heard)


unseeded = itertools.count()
SMALL = {  # of the preset "tiny" in the fast tests: a tenth of its weights, enough to find rewards in a few updates
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "initializer_range": 0.04,
}  # fmt: skip
LEFT_OUT = {"slow", "gpu", "real", "neighbours", "engine"}  # by `make test`: some of these learn to a threshold


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Prepare what tests run with; the process that starts the workers of `-n` runs none, and is spared the imports."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        prepare()


def prepare() -> None:
    import torch
    from drawn import FEW, MANY
    from gymnasium.utils import seeding
    from hypothesis import settings

    import rlenv.verifiers.builtin  # noqa: F401 (before a test replaces the registry for a while)

    torch.set_num_threads(1)
    # The fast tests draw the same examples every time; finds of `--hypothesis-profile random` belong to who asked.
    settings.register_profile("same", derandomize=True, max_examples=FEW, deadline=None)
    settings.register_profile("random", database=None, max_examples=MANY, deadline=None, print_blob=True)
    settings.load_profile("same")
    with_seed = seeding.np_random

    def same_draws(seed: int | None = None) -> Any:
        """Seed what a test does not seed, such as an environment, by the number of such generators before it."""
        return with_seed(next(unseeded) if seed is None else seed)

    seeding.np_random = same_draws


def pytest_collection_finish() -> None:
    """Spare modules and collected tests, which live to the end, from garbage collection: a tenth of all the time."""
    gc.freeze()  # with the little garbage among them
    gc.set_threshold(10_000)  # 700 by default
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Collect garbage in the process that starts the workers: it collects no tests."""
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give the tests of a file with a fixture or a cache for all of them to one process, so that it is made once.

    The cases of another test stay together, too: fewer messages, and fewer pieces of work to look through.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFixture(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if makes_once(config.rootpath / file) else nodeid.partition("[")[0]

    return ByFixture(config, log) if config.getoption("dist") == "load" else None


@cache
def makes_once(file: Path) -> bool:
    text = file.read_text(encoding="utf-8")
    return 'scope="module"' in text or "\n@cache\n" in text


def pytest_runtest_setup(item: pytest.Function) -> None:
    """Count from zero, so that the draws of a test do not depend on the tests before it; size the preset "tiny"."""
    global unseeded
    unseeded = itertools.count()
    presets, shipped = sizes()
    is_left_out = {mark.name for mark in item.iter_markers()} & LEFT_OUT and item.path.parent.name != "reliability"
    is_true = is_left_out or "true_sizes" in item.fixturenames  # reliability compares with the runs below
    presets["tiny"] = shipped if is_true else SMALL


@cache
def sizes() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the sizes of the presets, to be changed, and those of "tiny" as it is shipped."""
    from rlenv.agents.policies.presets import SIZES

    return SIZES, SIZES["tiny"]


@pytest.fixture
def true_sizes() -> None:
    """Have the preset "tiny" as it is shipped, as the tests that `make test` leaves out always have it."""


@pytest.fixture(scope="session")
def text_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a finished run of a language model: a critic, a reference, a warm start, two checkpoints.

    Copy it before you change it, as `text_copy` does.
    """
    yield from _shared(tmp_path_factory, "text")


@pytest.fixture(scope="session")
def pole_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return the folder of a finished run of control, as `text_run`."""
    yield from _shared(tmp_path_factory, "pole")


def _shared(factory: pytest.TempPathFactory, world: str) -> Iterator[Path]:
    from inprocess import done
    from runs import SHARED, arguments, content

    folder = factory.mktemp("shared") / "run"
    with patch.dict(sizes()[0], tiny=SMALL):  # whichever test is the first
        done(*arguments(*SHARED[world]), "--log-dir", folder)
    before = content(folder)
    yield folder
    assert content(folder) == before, "a test has changed a run that others share"


@pytest.fixture
def text_copy(text_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(text_run, tmp_path / "run"))


@pytest.fixture
def pole_copy(pole_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pole_run, tmp_path / "pole"))


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Any]:
    """Return what starts commands under torchrun in `tmp_path`."""
    from processes import Jobs

    started = Jobs(tmp_path)
    yield started
    started.close()


@pytest.fixture
def generator() -> Any:
    import torch

    return torch.Generator().manual_seed(0)
