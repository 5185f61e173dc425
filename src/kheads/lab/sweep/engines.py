"""Where runs are executed: in this process, in local ones, or on a Ray cluster. All give futures of `perform`."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import torch

# How often a run may lose its process before it counts as failed.
ATTEMPTS = 3

Perform = Callable[..., str]


class LostProcessError(RuntimeError):
    """The process of a run died."""


class Engine(Protocol):
    """What executes runs."""

    @property
    def slots(self) -> int:
        """How many runs it takes at a time."""

    @property
    def attempts(self) -> int:
        """How often a run whose process was lost is to be submitted in all."""

    def submit(self, perform: Perform, *args: Any) -> Future[str]:
        """Starts a run. The future raises `LostProcessError` if its process dies."""

    def close(self) -> None:
        """Ends what is still running."""


class Here:
    """One run after another, in this process."""

    slots = 1
    attempts = 1

    def submit(self, perform: Perform, *args: Any) -> Future[str]:
        """Runs it at once."""
        future: Future[str] = Future()
        future.set_result(perform(*args))
        return future

    def close(self) -> None:
        """Nothing is running."""


class Processes:
    """Several processes of this machine. Each has a pool of its own, so that one that dies takes no other with it."""

    attempts = ATTEMPTS

    def __init__(self, workers: int):
        if workers < 1:
            raise ValueError(f"`--workers` must be 1 or more; got {workers}.")
        self.slots = workers
        self._devices = _devices()
        self._pools: dict[int, ProcessPoolExecutor] = {}
        self._free = list(range(workers))

    def submit(self, perform: Perform, *args: Any) -> Future[str]:
        """Gives the run to a free process."""
        index = self._free.pop()
        outer: Future[str] = Future()
        pool = self._pools.get(index) or self._pool(index)
        self._pools[index] = pool
        inner = pool.submit(perform, *args)
        inner.add_done_callback(lambda done: self._pass_on(index, done, outer))
        return outer

    def close(self) -> None:
        """Ends the processes; what they were at is resumed by the next sweep."""
        for index, pool in list(self._pools.items()):
            for process in list((pool._processes or {}).values()) if index not in self._free else []:
                process.terminate()
            pool.shutdown()

    def _pass_on(self, index: int, inner: Future[str], outer: Future[str]) -> None:
        error = inner.exception()
        if isinstance(error, BrokenProcessPool):
            self._pools.pop(index, None)
            error = LostProcessError("its process died (killed, or out of memory)")
        self._free.append(index)
        if error is not None:
            outer.set_exception(error)
        else:
            outer.set_result(inner.result())

    def _pool(self, index: int) -> ProcessPoolExecutor:
        # Spawned, because a forked process cannot use a GPU or threads that its parent has used.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(
            1, context, initializer=_start_worker, initargs=(self.slots, self._devices[index % len(self._devices)])
        )


def _devices() -> list[str | None]:
    """The GPUs to share out, by the names that CUDA_VISIBLE_DEVICES takes; [None] where there is no choice."""
    given = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    found = given or [str(index) for index in range(torch.cuda.device_count())]
    return list(found) if len(found) > 1 else [None]


def _start_worker(workers: int, device: str | None) -> None:
    """Takes a share of the cores and a GPU, and ends when the sweep does, also when that is killed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # As many as torch would take, which OMP_NUM_THREADS says, unless the workers would stand in each other's way.
    torch.set_num_threads(max(1, min(torch.get_num_threads(), (os.cpu_count() or 1) // workers)))
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class Ray:
    """A Ray cluster, or a Ray of this machine. Ray starts a run again whose worker is lost.

    Args:
        address: "local" starts Ray here; "auto" or an address joins a running one.
        cpus: cores of a run.
        gpus: GPUs of a run; 0.25 puts four on one; None is one, or none where the cluster has none.
    """

    attempts = 1  # Ray has tried again before it gives up

    def __init__(self, address: str = "local", cpus: float = 1, gpus: float | None = None):
        try:
            import ray
        except ImportError as error:
            raise ValueError("`--ray` needs Ray; install it with: pip install 'kheads[ray]'") from error
        self._ray: Any = ray
        self._cpus = cpus
        self._started = not ray.is_initialized()
        if self._started:
            if address == "local":
                os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # a Ray of ours tells nobody
            try:
                ray.init(address=address, include_dashboard=False, log_to_driver=False)
            except (ConnectionError, ValueError) as error:
                raise ValueError(f"`--ray {address}` found no Ray: {' '.join(str(error).split())}") from error
        self._gpus = min(1.0, self._ray.cluster_resources().get("GPU", 0.0)) if gpus is None else gpus

    @property
    def slots(self) -> int:
        """As many runs as the cluster has room for now; it may grow."""
        room = self._ray.cluster_resources()
        by_gpu = room.get("GPU", 0) / self._gpus if self._gpus else float("inf")
        return max(1, int(min(room.get("CPU", 1) / self._cpus, by_gpu)))

    def submit(self, perform: Perform, *args: Any) -> Future[str]:
        """Sends the run to the cluster."""
        task = self._ray.remote(perform).options(
            num_cpus=self._cpus, num_gpus=self._gpus, max_retries=ATTEMPTS - 1, retry_exceptions=False
        )
        outer: Future[str] = Future()
        task.remote(*args).future().add_done_callback(lambda done: self._pass_on(done, outer))
        return outer

    def close(self) -> None:
        """Leaves Ray as it was found."""
        if self._started:
            self._ray.shutdown()

    def _pass_on(self, inner: Future[str], outer: Future[str]) -> None:
        lost = (self._ray.exceptions.WorkerCrashedError, self._ray.exceptions.OutOfMemoryError)
        error = inner.exception()
        if isinstance(error, (*lost, self._ray.exceptions.NodeDiedError)):
            error = LostProcessError(f"its worker was lost ({' '.join(str(error).split())[:200]})")
        if error is not None:
            outer.set_exception(error)
        else:
            outer.set_result(inner.result())
