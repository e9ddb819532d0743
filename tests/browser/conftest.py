"""A JupyterLab with settings of its own."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def lab(tmp_path_factory):
    """A JupyterLab that sees no settings of the user's: (its address, the folder that it shows)."""
    folder, place = tmp_path_factory.mktemp("course"), tmp_path_factory.mktemp("settings")
    names = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTER_RUNTIME_DIR",
        "IPYTHONDIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
    )
    env = os.environ | {name: str(place / name.lower()) for name in names}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=",
        "--ServerApp.disable_check_xsrf=True",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        "--LabApp.news_url=None",
    ]
    address, log = f"http://127.0.0.1:{port}", place / "jupyter.log"
    with (
        log.open("wb") as said,
        subprocess.Popen(command, env=env, stdout=said, stderr=said) as server,
    ):
        try:
            await_answer(f"{address}/api", server, log)
            yield address, folder
        finally:
            server.terminate()
            try:
                server.wait(20)
            except subprocess.TimeoutExpired:
                server.kill()


def await_answer(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(3000):
        try:
            return urllib.request.urlopen(address, timeout=60).close()
        except OSError:
            assert server.poll() is None, log.read_text()
            time.sleep(0.2)
    raise AssertionError("JupyterLab did not start: " + log.read_text())
