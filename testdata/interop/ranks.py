"""Run a function on gloo ranks, each a fork of this process.

PyTorch, Gefen-X and its compiled kernel are loaded once, here, and inherited by
every rank: starting a rank takes no time. The process that forks must not have
computed with several threads, and never runs autograd.
"""

import multiprocessing
import os
import pathlib
import socket
import sys
import time
import traceback
from multiprocessing.connection import wait

import torch
import torch.distributed as dist
import torch.distributed.checkpoint  # noqa: F401  (for the forks)
from gefen import Gefen

# CPython 3.13 pickles paths under this name, which older ones do not have.
sys.modules.setdefault("pathlib._local", pathlib)

TIMEOUT = 150  # seconds; gloo can hang on a busy machine
TRIES = 2


class Failed(Exception):
    """A rank raised; the text is its traceback."""


def warm():
    """Compile what the optimizer compiles, so that no rank has to."""
    torch.set_num_threads(1)
    p = torch.nn.Parameter(torch.linspace(-1, 1, 4096).reshape(64, 64))
    p.grad = p.detach() ** 3
    Gefen([("p", p)], lr=1e-3, fused=False).step()


def run(world, work, *args):
    """Rank 0's result of work(rank, world, *args) on so many ranks.

    A world of 0 is one process without a process group. work is tried again where
    it does not end in time; it must bear that.
    """
    for attempt in range(TRIES):
        results = once(world, work, args)
        if results is not None:
            return results[0]
    raise Failed("%d ranks did not end within %d seconds, %d times" % (max(world, 1), TIMEOUT, TRIES))


def once(world, work, args):
    """The ranks' results, or None where they do not end in time."""
    fork = multiprocessing.get_context("fork")
    port = free_port()
    ranks = []
    for rank in range(max(world, 1)):
        ours, theirs = fork.Pipe()
        process = fork.Process(target=one, args=(rank, world, port, theirs, work, args))
        process.start()
        theirs.close()
        ranks.append((process, ours))
    results = {}
    deadline = time.monotonic() + TIMEOUT
    try:
        while len(results) < len(ranks):
            open_ = [c for i, (_, c) in enumerate(ranks) if i not in results]
            ready = wait(open_, max(0, deadline - time.monotonic()))
            if not ready:
                return None
            for i, (_, connection) in enumerate(ranks):
                if connection in ready:
                    try:
                        ok, results[i] = connection.recv()
                    except EOFError:
                        ok, results[i] = False, "rank %d died" % i
                    if not ok:
                        raise Failed(results[i])
        return results
    finally:
        for process, connection in ranks:
            process.kill()
            process.join()
            connection.close()


def one(rank, world, port, connection, work, args):
    """A rank: answers with its result and lives on until it is ended, because the
    others may still need it."""
    try:
        torch.set_num_threads(1)
        if world > 0:
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank),
                              WORLD_SIZE=str(world), USE_LIBUV="0")
            dist.init_process_group("gloo", rank=rank, world_size=world)
        connection.send((True, work(rank, world, *args)))
    except BaseException:
        connection.send((False, traceback.format_exc(limit=-8)))
    while True:
        time.sleep(60)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
