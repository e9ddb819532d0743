"""Execute a notebook by papermill: as a user's own run, or the way it is built, without a network
and measured.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import papermill
import psutil
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.manager import AsyncKernelManager
from nbformat import NotebookNode
from papermill.exceptions import PapermillExecutionError
from traitlets import Type

from course_lib.errors import CourseError
from course_lib.memory import KEEP_LARGE_BUFFERS

# Two threads are what the lessons are timed on; a fixed number also fixes the order of
# floating-point sums.
THREADS = 2
# seconds; a guard against a hang, not a budget: a shared machine may be twenty times slower
CELL_TIMEOUT = 1800

# Python runs this before the notebook's own code where the system cannot cut the network for a
# process.
SITECUSTOMIZE = """\
import socket


def cut(call, address_of):
    def guarded(*given, **named):
        address = address_of(given)
        if isinstance(address, (tuple, str)):
            host = address if isinstance(address, str) else str(address[0])
            if host not in ("", "127.0.0.1", "::1", "localhost"):
                raise OSError(101, "Network is unreachable (cut for this run)")
        return call(*given, **named)

    return guarded


socket.socket.connect = cut(
    socket.socket.connect, lambda given: given[1] if isinstance(given[1], tuple) else None
)
socket.socket.sendto = cut(
    socket.socket.sendto, lambda given: given[-1] if isinstance(given[-1], tuple) else None
)
socket.getaddrinfo = cut(socket.getaddrinfo, lambda given: given[0])
"""


@dataclass
class Measure:
    """What an execution took.

    Attributes:
        seconds: by the clock.
        cpu_seconds: of all threads together, which other programs disturb less.
        peak_mb: the most memory that the kernel and its children held at once.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0


@functools.cache
def cut_prefix() -> tuple[str, ...]:
    """The command that starts a process without a network (Linux), or () where the system does not
    allow it.
    """
    for prefix in (("unshare", "-n", "--"), ("unshare", "-rn", "--")):
        if shutil.which(prefix[0]):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if (
                    subprocess.run([*prefix, "true"], capture_output=True, timeout=60).returncode
                    == 0
                ):
                    return prefix
    return ()


@contextlib.contextmanager
def environment(threads: int = THREADS) -> Iterator[None]:
    """This process has the environment of a kernel whose run can be repeated; undone afterwards."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True) as folder:
        os.environ |= {
            **KEEP_LARGE_BUFFERS,
            "CUDA_VISIBLE_DEVICES": "",
            "HF_DATASETS_CACHE": folder,
            "HF_HUB_OFFLINE": "1",
            "IPYTHONDIR": folder,
            "MKL_NUM_THREADS": str(threads),
            "NO_COLOR": "1",
            "OMP_NUM_THREADS": str(threads),
            # Waiting threads spin for a moment, then leave the core to others: spinning on brings a
            # busy machine to a
            # stand, never spinning costs a quiet one two thirds of its speed.
            "GOMP_SPINCOUNT": "20000",
            "PYTHONHASHSEED": "0",
            "TOKENIZERS_PARALLELISM": "false",
            "TQDM_DISABLE": "1",
        }
        if not cut_prefix():
            (Path(folder) / "sitecustomize.py").write_text(SITECUSTOMIZE, "utf-8")
            os.environ["PYTHONPATH"] = os.pathsep.join(
                filter(None, (folder, os.environ.get("PYTHONPATH")))
            )
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


class PatientChannel(AsyncZMQSocketChannel):
    """Looks each second whether a message has come.

    The socket signals a message once, and `Session.send`, which goes past the asyncio socket, may
    take that signal: a widget's cell, in which both sides send, then waits for a reply that lies
    there (one such cell in eighty)."""

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:  # type: ignore[override]
        """The next message; `queue.Empty` if none comes within so many seconds."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return await super().get_msg(min(1.0, max(0.0, end - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= end:
                    raise


class PatientClient(AsyncKernelClient):
    """A client whose replies come by a `PatientChannel`."""

    shell_channel_class = Type(PatientChannel)


class LocalKernelManager(AsyncKernelManager):
    """Kernels whose messages go through files (ipc): a port that was free when chosen may be
    another program's when the kernel binds it, which then may neither answer nor end; and a process
    without a network cannot open one to us."""

    client_factory = Type(PatientClient)

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        if os.name == "posix":
            self.transport = "ipc"
            self.ip = str(Path(tempfile.mkdtemp(prefix="course-")) / "kernel")

    def cleanup_connection_file(self) -> None:
        """Remove the messages' files with the connection's."""
        super().cleanup_connection_file()
        if self.transport == "ipc":
            shutil.rmtree(Path(self.ip).parent, ignore_errors=True)


class OfflineKernelManager(LocalKernelManager):
    """Starts the kernel in this Python and, where the system can, without a network."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """The kernel's command line."""
        command = super().format_kernel_cmd(extra_arguments)
        return [*cut_prefix(), sys.executable, *command[1:]]


def execute(
    notebook: NotebookNode | Path, where: Path, threads: int = THREADS
) -> tuple[NotebookNode, Measure]:
    """Execute a copy of the notebook in the folder `where`, as lessons are built and tested.

    Returns:
        the executed notebook and what it took.

    Raises:
        CourseError: a cell failed, or the kernel died; says which cell, and the error's last line.
    """
    with environment(threads):
        return papermilled(
            notebook,
            where,
            None,
            kernel_manager_class=OfflineKernelManager,
            request_save_on_cell_execute=False,
            coalesce_streams=True,
            # for the last outputs of a cell; nbclient drops what comes later than 4 s
            iopub_timeout=60,
        )


def papermilled(
    notebook: NotebookNode | Path,
    where: Path,
    out: Path | None,
    parameters: Mapping[str, Any] | None = None,
    **named: Any,
) -> tuple[NotebookNode, Measure]:
    """Execute by papermill, in this process's environment; `out`: the executed notebook's place, if
    it has one.
    """
    logging.getLogger("papermill").setLevel(logging.ERROR)
    try:
        with _measured() as measure, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            executed = papermill.execute_notebook(
                notebook,
                out,
                dict(parameters or {}),
                kernel_name="python3",
                language="python",
                cwd=where,
                start_timeout=600,
                execution_timeout=CELL_TIMEOUT,
                extra_arguments=[
                    "--IPKernelApp.log_level=50",  # what it says of ports and of its end is no news
                    # imports make many objects
                    '--IPKernelApp.exec_lines=__import__("gc").set_threshold(50_000)',
                ],
                **{"progress_bar": False, "kernel_manager_class": LocalKernelManager} | named,
            )
    except PapermillExecutionError as error:
        more = f" (all of it: {out})" if out else f"\n{error}"
        raise CourseError(
            f"Cell {error.cell_index} failed with {error.ename}: {error.evalue}{more}"
        ) from None
    except (TimeoutError, RuntimeError) as error:
        raise CourseError(f"The notebook did not run to its end: {error}") from None
    return executed, measure


@contextlib.contextmanager
def _measured() -> Iterator[Measure]:
    """Measure the process that the block starts, the kernel, and its children, four times a
    second.
    """
    measure, done, start = Measure(), threading.Event(), time.monotonic()
    mine = psutil.Process()
    before = {process.pid for process in mine.children()}

    def watch() -> None:
        kernel = None
        while not done.wait(0.25):
            kernel = kernel or next(
                (process for process in mine.children() if process.pid not in before), None
            )
            if kernel is not None:
                megabytes, cpu_seconds = _tree(kernel)
                measure.peak_mb = max(measure.peak_mb, megabytes)
                measure.cpu_seconds = max(measure.cpu_seconds, cpu_seconds)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield measure
    finally:
        done.set()
        thread.join()
        measure.seconds = time.monotonic() - start


def _tree(parent: psutil.Process) -> tuple[float, float]:
    """Resident megabytes and seconds of processor time of a process and its children."""
    size = seconds = 0.0
    with contextlib.suppress(psutil.Error):
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                size += process.memory_info().rss / 2**20
                times = process.cpu_times()
                seconds += times.user + times.system
    return size, seconds
