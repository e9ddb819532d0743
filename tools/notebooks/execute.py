"""Execute a notebook the way it is built: no network, no clock in its outputs, two threads, measured."""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_client.manager import AsyncKernelManager, KernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from course_lib.errors import CourseError

# Two threads are what the lessons are timed on; a fixed number also fixes the order of floating-point sums.
THREADS = 2
CELL_TIMEOUT = 600  # seconds; a guard against a hang, not a budget

# Python runs this before the notebook's own code where the system cannot cut the network for a process.
SITECUSTOMIZE = """\
import socket

_connect, _sendto = socket.socket.connect, socket.socket.sendto


def _inside(address):
    return not isinstance(address, tuple) or str(address[0]) in ("127.0.0.1", "::1", "localhost")


def connect(self, address):
    if not _inside(address):
        raise OSError(101, "Network is unreachable (cut for this run)")
    return _connect(self, address)


def sendto(self, data, *rest):
    if not _inside(rest[-1]):
        raise OSError(101, "Network is unreachable (cut for this run)")
    return _sendto(self, data, *rest)


def getaddrinfo(host, *rest, **named):
    if host not in (None, "", "localhost", "127.0.0.1", "::1"):
        raise socket.gaierror(-3, "Temporary failure in name resolution (network cut for this run)")
    return _getaddrinfo(host, *rest, **named)


_getaddrinfo = socket.getaddrinfo
socket.socket.connect, socket.socket.sendto, socket.getaddrinfo = connect, sendto, getaddrinfo
"""


@dataclass
class Measure:
    """What an execution took.

    seconds: by the clock. cpu_seconds: of all threads together, which other programs disturb less.
    peak_mb: the most memory that the kernel and its children held at once.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0


@functools.cache
def cut_prefix() -> tuple[str, ...]:
    """The command that starts a process without a network (Linux), or () where the system does not allow it."""
    for prefix in (("unshare", "-n", "--"), ("unshare", "-rn", "--")):
        if shutil.which(prefix[0]):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if subprocess.run([*prefix, "true"], capture_output=True, timeout=10).returncode == 0:
                    return prefix
    return ()


@contextlib.contextmanager
def environment() -> Iterator[dict[str, str]]:
    """The environment of a kernel whose run can be repeated; its folder is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        env = dict(os.environ)
        env |= {
            "CUDA_VISIBLE_DEVICES": "",
            "HF_DATASETS_CACHE": folder,
            "HF_HUB_OFFLINE": "1",
            "IPYTHONDIR": folder,
            "MKL_NUM_THREADS": str(THREADS),
            "NO_COLOR": "1",
            "OMP_NUM_THREADS": str(THREADS),
            # Waiting threads spin for a moment, then leave the core to others: spinning on brings a busy machine to a
            # stand, never spinning costs a quiet one two thirds of its speed.
            "GOMP_SPINCOUNT": "20000",
            "PYTHONHASHSEED": "0",
            "TOKENIZERS_PARALLELISM": "false",
            "TQDM_DISABLE": "1",
        }
        if not cut_prefix():
            (Path(folder) / "sitecustomize.py").write_text(SITECUSTOMIZE, "utf-8")
            env["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, env.get("PYTHONPATH"))))
        yield env


class _Offline:
    """Mixed into a kernel manager: the kernel is started in this Python and, where the system can, without a network.

    The messages go through files (ipc) instead of local ports, which a process without a network cannot open to us.
    """

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        if cut_prefix():
            self.transport = "ipc"
            self.ip = str(Path(tempfile.mkdtemp(prefix="course-")) / "kernel")

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        """The kernel's command line."""
        command = super().format_kernel_cmd(extra_arguments)  # type: ignore[misc]
        return [*cut_prefix(), sys.executable, *command[1:]]

    def cleanup_connection_file(self) -> None:
        """Remove the messages' files with the connection's."""
        super().cleanup_connection_file()  # type: ignore[misc]
        if self.transport == "ipc":
            shutil.rmtree(Path(self.ip).parent, ignore_errors=True)


class OfflineKernelManager(_Offline, KernelManager):
    """A blocking kernel manager whose kernel has no network."""


class AsyncOfflineKernelManager(_Offline, AsyncKernelManager):
    """An asynchronous kernel manager whose kernel has no network."""


def execute(notebook: NotebookNode, where: Path) -> tuple[NotebookNode, Measure]:
    """Execute a copy of the notebook in the folder `where`; returns it with its measure.

    Raises:
        CourseError: a cell failed or ran past CELL_TIMEOUT; says which, and the error's last line.
    """
    copy = nbformat.from_dict(notebook)
    measure = Measure()
    with environment() as env:
        client = NotebookClient(
            copy,
            kernel_name="python3",
            kernel_manager_class=AsyncOfflineKernelManager,
            timeout=CELL_TIMEOUT,
            startup_timeout=120,
            iopub_timeout=60,  # for the last outputs of a cell; nbclient drops what comes later than 4 s
            record_timing=False,
            coalesce_streams=True,
            resources={"metadata": {"path": str(where)}},
        )
        with watched(measure, lambda: getattr(getattr(client.km, "provisioner", None), "pid", None)):
            try:
                client.execute(env=env)
            except CellExecutionError as error:
                raise CourseError(f"A cell failed with {error.ename}: {error.evalue}\n{error}") from None
            except (TimeoutError, RuntimeError) as error:
                raise CourseError(f"The notebook did not run to its end: {error}") from None
    return copy, measure


@contextlib.contextmanager
def watched(measure: Measure, pid_of: Callable[[], int | None]) -> Iterator[None]:
    """Measure a process and its children, ten times a second while the block runs; pid_of: None where it is not yet."""
    done = threading.Event()
    start = time.monotonic()

    def watch() -> None:
        while not done.wait(0.1):
            pid = pid_of()
            if pid is not None:
                megabytes, cpu_seconds = _tree(pid)
                measure.peak_mb = max(measure.peak_mb, megabytes)
                measure.cpu_seconds = max(measure.cpu_seconds, cpu_seconds)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        measure.seconds = time.monotonic() - start


def _tree(pid: int) -> tuple[float, float]:
    """Resident megabytes and seconds of processor time of a process and its children."""
    size = seconds = 0.0
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            with contextlib.suppress(psutil.Error):
                size += process.memory_info().rss / 2**20
                times = process.cpu_times()
                seconds += times.user + times.system
    return size, seconds


def hardware() -> dict[str, Any]:
    """The machine in words: processor, cores, memory (GB), system."""
    name = platform.processor()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    return {
        "processor": name or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": platform.system(),
        "threads": THREADS,
    }
