"""Open JupyterLab on a student's copies of the lessons, or print the address where there is no
screen: `make lab`.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from course_lib.errors import CourseError
from course_lib.memory import KEEP_LARGE_BUFFERS
from tools import home, student

ROOT = Path(__file__).resolve().parent.parent
FIRST = "student/00_start_here.ipynb"
PORTS = range(8888, 8988)


def has_screen() -> bool:
    """True where a browser can open a window."""
    if os.environ.get("SSH_CONNECTION") or os.environ.get("NO_BROWSER"):
        return False
    return sys.platform in ("darwin", "win32") or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def free_port() -> int:
    """The first port that nobody has taken; CourseError where all hundred are taken.

    A program may hold a port and not listen on it yet. So we try to take it ourselves.
    """
    for port in PORTS:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise CourseError(
        f"All ports from {PORTS[0]} to {PORTS[-1]} are in use; close a JupyterLab and try again."
    )


def command(port: int) -> list[str]:
    """The server's command line."""
    words = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--ServerApp.root_dir={ROOT}",
        "--Application.log_level=WARN",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        words.append("--allow-root")
    return words


def wait(address: str, server: subprocess.Popen[bytes], seconds: float = 600) -> None:
    """Until the server answers; CourseError where it ends or stays silent."""
    end = time.monotonic() + seconds
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < end:
        if server.poll() is not None:
            raise CourseError("JupyterLab ended while it started; its last lines above say why.")
        try:
            direct.open(address, timeout=60).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise CourseError(f"JupyterLab did not answer within {seconds:.0f} seconds.")


def main() -> int:
    """Start the server, show where it is, wait for its end."""
    try:
        told = home.ensure()
        if told is not None:
            print(told)
        print("\n".join(student.update()), flush=True)
        port = free_port()
        token = secrets.token_hex(16)
        # The kernels inherit the server's environment.
        environment = {**KEEP_LARGE_BUFFERS, **os.environ, "JUPYTER_TOKEN": token}
        server = subprocess.Popen(command(port), env=environment, cwd=ROOT)
        # Both get the terminal's Ctrl-C; the server asks whether it is meant, and this process
        # waits for the answer.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        try:
            wait(f"http://127.0.0.1:{port}/api", server)
        except CourseError:
            server.terminate()  # it would run on unseen
            raise
        address = f"http://127.0.0.1:{port}/lab/tree/{FIRST}?token={token}"
        print(f"The lessons are open at\n\n    {address}\n\nStop with Ctrl-C.", flush=True)
        if has_screen():
            import webbrowser

            webbrowser.open(address)
        else:
            print(
                f"From another machine, first: ssh -N -L {port}:127.0.0.1:{port} <this machine>",
                flush=True,
            )
        return server.wait()
    except CourseError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
