"""Processes of one `torch.distributed` group on this machine, which do what a test asks for."""

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from datetime import timedelta

import cloudpickle

SECONDS = 120  # for one task of all processes
# Forked from the tests, which have imported everything, they start at once; an import takes seconds.
START = "fork" if sys.platform == "linux" else "spawn"


class Ranks:
    """`size` processes that wait for work, and find each other by a file in a folder."""

    def __init__(self, size, folder):
        context = multiprocessing.get_context(START)
        self.pipes, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            serve = (theirs, rank, size, f"file://{folder / 'store'}")
            self.processes.append(context.Process(target=_serve, args=serve, daemon=True))
            self.processes[-1].start()
            theirs.close()
            self.pipes.append(ours)

    def __call__(self, work, *args):
        """Call this in every process at once; return the results in order of rank."""
        for pipe in self.pipes:
            pipe.send_bytes(cloudpickle.dumps((work, args)))
        outcomes = []
        for rank, pipe in enumerate(self.pipes):
            assert pipe.poll(SECONDS), f"process {rank} did not answer"
            outcomes.append(cloudpickle.loads(pipe.recv_bytes()))
        failures = [f"process {rank}: {said}" for rank, (said, _) in enumerate(outcomes) if said]
        assert not failures, "\n".join(failures)
        return [result for _, result in outcomes]

    def close(self):
        for process in self.processes:  # all at once: one that is left alone in an exchange aborts with a long message
            process.kill()
        for process in self.processes:
            process.join()


def _end_with(parent):
    """End this process once its parent has ended, however it ended: a fork holds the other ends of its own pipes."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)


def _serve(pipe, rank, size, store):
    import torch

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # a fork begins with the state that it finds
    patience = timedelta(seconds=SECONDS)
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=size, timeout=patience)
    while True:
        work, args = cloudpickle.loads(pipe.recv_bytes())
        try:
            pipe.send_bytes(cloudpickle.dumps(("", work(*args))))
        except BaseException:
            pipe.send_bytes(cloudpickle.dumps((traceback.format_exc(), None)))
