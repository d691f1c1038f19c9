"""kill -9 at random instants, before the first checkpoint, within a save: what was acknowledged is never lost."""

import itertools
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import time

import processes
import pytest
from inprocess import done
from runs import SHARED, arguments, differences, everything, finished_run

from rlenv._scripts.jobs.callbacks import ShowProgress
from rlenv._scripts.main import main
from rlenv._scripts.run.folder import RunFolder, choose
from rlenv.agents import Agent, files
from rlenv.agents.training.checkpoint import read_facts

SETTINGS = "--episodes-per-update 2 --eval-episodes 2 --log-interval 1 --seed 1 --device cpu --json"
POLE = "--env CartPole-v1 --env-arg max_episode_steps=40 --episodes 12 --num-envs 2 --save-every-updates 1"
WARM = "--episodes 4 --sft-steps 8 --sft-examples 8 --sft-batch-size 4 --verifier-arg digits=1 --group-size 2"
TINY = {
    "CartPole": POLE,
    "warm start": f"{WARM} --save-every 0",  # saves all the time, also within the warm start
    "workers": f"{WARM} --episodes 8 --verifier-workers 2 --save-every 0",
    "late replies": "--episodes 8 --sft-steps 0 --group-size 2 --verifier guess --verifier-arg largest=8 "
    "--verifier-workers 2 --save-every-updates 1",
}
PER_RUN = 5  # kills
ORPHANS = 1.0  # seconds after a kill at which no child may be left
ACKNOWLEDGED = re.compile(r"^checkpoint after (\d+) updates$", re.MULTILINE)
FORKS = multiprocessing.get_context("forkserver")  # imports once what each run of the command would import for seconds
FORKS.set_forkserver_preload(["torch", "transformers", "agents", "rlenv", "rlenv._scripts.main"])


def run_command(arguments, errors, mark):
    os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.environ[processes.MARK] = mark
    os.fsync = lambda descriptor: None  # a kill is not a power cut
    sys.argv = ["rlenv", *arguments]
    main()


class Campaign:
    """Runs of a command that are killed at random instants and resumed, and what has to be true after each kill."""

    def __init__(self, folder, world, rng):
        self.command, self.folder, self.rng = ["train", *TINY[world].split(), *SETTINGS.split()], folder, rng
        self.kills, self.acknowledged, self.failures = 0, 0, []
        self.fastest = math.inf  # seconds of a run without a break: later kills hit nothing

    def once(self, run, fresh, kill=False):
        """Begin or resume a run and kill it if asked; return its exit code and what it said."""
        mark, begun, errors = processes.new_mark(), time.monotonic(), run.with_suffix(".errors")
        line = [*self.command, "--log-dir", run] if fresh else ["train", "--resume", run, "--json"]
        process = FORKS.Process(target=run_command, args=([str(each) for each in line], errors, mark))
        process.start()
        if kill:
            time.sleep(self.rng.uniform(0, 0.7 * self.fastest))
            process.kill()
        process.join(240)
        if process.exitcode == 0 and fresh:
            self.fastest = min(self.fastest, time.monotonic() - begun)
        if process.exitcode == -signal.SIGKILL:
            self.kills += 1
            if not processes.eventually(lambda: not processes.processes_of(mark), ORPHANS):
                self.failures.append(f"orphans after kill {self.kills}: {processes.processes_of(mark)}")
                processes.kill_all(mark)
        return process.exitcode, errors.read_text() if errors.is_file() else ""

    def through(self, run, kills):
        """Take a run through so many kills to its end; where it was faster, go on with another. Return the last."""
        promised, fresh, last = -1, True, self.kills + kills
        while not self.failures:
            more = self.kills < last
            code, said = self.once(run, fresh, more)
            promises = [int(number) for number in ACKNOWLEDGED.findall(said)]
            self.acknowledged += len(promises)
            promised = max([promised, *promises])
            if code == 2 and not fresh and "is complete; to go on" in said:  # killed after the last line was written
                code = 0 if (run / "result.json").is_file() else code
            if "Traceback" in said or code not in (0, -signal.SIGKILL):
                self.failures.append(f"{code}: {said}")
            fresh = not (run / "config.json").is_file()
            if not fresh:
                self.check(run, promised)
            if code == 0 and not more:
                break
            if code == 0:
                run, fresh, promised = run.with_name(f"{run.name}+"), True, -1
        return run

    def check(self, run, promised):
        """Note a run whose newest checkpoint does not load, or is older than one that was acknowledged."""
        try:
            newest = RunFolder(run).newest()
            updates = -1 if newest is None else Agent.load(newest, device="cpu").num_updates
        except Exception as error:
            self.failures.append(f"unloadable: {type(error).__name__}: {error}")
            return
        if updates < promised:
            self.failures.append(f"lost: {updates} updates of {promised} in {run}")


def check_kills(folder, world, kills):
    campaign, found = Campaign(folder, world, random.Random(world)), []
    assert campaign.once(folder / "whole", True) == (0, (folder / "whole.errors").read_text())
    wanted = everything(folder / "whole")
    for number in itertools.count():
        if campaign.kills >= kills or campaign.failures:
            break
        run = campaign.through(folder / f"run{number}", min(PER_RUN, kills - campaign.kills))
        if (run / "result.json").is_file():
            found += differences(wanted, everything(run))
    print(f"\n{world}: {vars(campaign)}; {len(found)} differences")
    assert campaign.failures + found == [] and campaign.kills == kills and campaign.acknowledged > 0


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("world", "kills"), [("CartPole", 200), ("warm start", 200), ("workers", 100), ("late replies", 50)]
)
def test_five_hundred_kills(world, kills, tmp_path):
    check_kills(tmp_path, world, kills)


def run(folder, *more):
    return finished_run(folder, *arguments(*SHARED["pole"]), *more)


def check_goes_on(folder, whole):
    """Resume a run and compare its end with that of a run without a break; return what it said."""
    outcome = done("train", "--resume", folder, "--json")
    assert differences(everything(whole), everything(folder)) == []
    return outcome.stderr.splitlines()


@pytest.mark.parametrize(("owner", "name", "call"), [(files, "_sync_tree", 3), (ShowProgress, "_on_step", 60)])
def test_a_process_killed_while_it_saves_or_steps_leaves_a_run_that_goes_on(owner, name, call, pole_run, tmp_path):
    """A fork of this process trains, and SIGKILL ends it: the third time that it has written a checkpoint's files."""
    folder, calls, function = tmp_path / "run", itertools.count(1), getattr(owner, name)

    def killed(*args):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)

    child = os.fork()
    if child == 0:
        try:
            setattr(owner, name, killed)
            run(folder)
        finally:
            os._exit(1)  # it was not killed
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    half_a_save = [path for path in folder.iterdir() if path.name.startswith(".checkpoint")]
    assert bool(half_a_save) == (owner is files) and not (folder / "result.json").exists()
    acknowledged = read_facts(folder / "checkpoint")["num_updates"]
    assert 0 < acknowledged < 8 and Agent.load(folder / "checkpoint", device="cpu").num_updates == acknowledged
    check_goes_on(folder, pole_run)


def test_a_run_that_is_killed_before_its_first_checkpoint_begins_again(pole_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(pole_run / "checkpoint", folder / ".checkpoint-new")  # killed in the first save
    for path in (*pole_run.glob("*/events*"), *pole_run.glob("progress.csv"), pole_run / "config.json"):
        copy = folder / path.relative_to(pole_run)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
    (folder / ".lock").touch()
    first, *_ = check_goes_on(folder, pole_run)
    assert first == f"'{folder}' has no checkpoint yet: the run starts again from its beginning"


def test_an_overwritten_run_that_is_killed_on_the_way_can_be_overwritten_again(pole_run, tmp_path, monkeypatch):
    class KilledError(BaseException):
        pass

    def kill(folder, **_):
        for path in folder.iterdir():
            if path.is_file():
                path.unlink()
        raise KilledError

    folder = tmp_path / "run"
    shutil.copytree(pole_run, folder)
    with monkeypatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(shutil, "rmtree", kill)
        run(folder, "--overwrite")
    run(folder, "--overwrite")
    assert differences(everything(pole_run), everything(folder)) == []


@pytest.mark.parametrize("left", [[".lock"], [".lock", ".config.json-new"]], ids=" and ".join)
def test_a_folder_of_a_run_that_was_killed_before_it_began_is_free(left, tmp_path):
    for name in left:
        (tmp_path / name).touch()
    assert choose(tmp_path, overwrite=False, name="run") == tmp_path
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ValueError, match="exists"):
        choose(tmp_path, overwrite=False, name="run")
