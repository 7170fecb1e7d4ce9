"""Worker processes that end at once when Ctrl-C ends the command."""

from __future__ import annotations

import os
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from signal import SIG_BLOCK, SIG_SETMASK, SIGINT, pthread_sigmask, raise_signal, signal


@contextmanager
def worker_pool() -> Generator[ProcessPoolExecutor]:
    """Give a process for every core; an interrupt waits for none of them, nor for what is queued.

    Submit under `interrupts_held`.
    """
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in active_children():
                worker.terminate()
            raise


@contextmanager
def interrupts_held() -> Generator[None]:
    """Keep an interrupt back until the end of the block.

    Processes that are started in it never get one: Ctrl-C goes to all processes of the terminal,
    and each of them would print a traceback of its own. Here a thread of a library may take the
    signal, whatever this one blocks, so the handler waits too.
    """
    held: list[int] = []
    handler = signal(SIGINT, lambda number, _: held.append(number))
    before = pthread_sigmask(SIG_BLOCK, {SIGINT})
    try:
        yield
    finally:
        pthread_sigmask(SIG_SETMASK, before)
        signal(SIGINT, handler)
        if held:
            raise_signal(SIGINT)
