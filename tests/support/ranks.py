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
    """`size` processes that wait for work.

    Args:
        size: W.
        folder: for the file by which they find each other.
        patience: seconds that they wait for each other in an exchange.
    """

    def __init__(self, size, folder, patience=SECONDS):
        context = multiprocessing.get_context(START)
        self.pipes = []
        self.processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs, rank, size, str(folder / "store"), patience), daemon=True
            )
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def __call__(self, work, *args):
        """Call this in every process at once; return the results in order of rank, or raise the first error."""
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


def _serve(pipe, rank, size, store, patience):
    import torch

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(1)
    torch.manual_seed(0)  # a fork begins with the state that it finds
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timedelta(seconds=patience)
    )
    while True:
        try:
            work, args = cloudpickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            pipe.send_bytes(cloudpickle.dumps(("", work(*args))))
        except BaseException:
            pipe.send_bytes(cloudpickle.dumps((traceback.format_exc(), None)))
