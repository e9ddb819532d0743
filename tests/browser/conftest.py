"""Tabs of the headless Chromium, and a JupyterLab with settings of its own."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest


@pytest.fixture
def tab(browser):
    """A fresh tab; `tab.asked` holds every address that it asked for."""
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    page.close()


@pytest.fixture
def lab(tmp_path):
    """Start JupyterLab on a folder: lab(folder) -> its address. It sees no settings of the user's."""
    servers = []

    def start(folder: Path) -> str:
        env = dict(os.environ)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            env[name] = str(tmp_path / "settings" / name.lower())
        for name in ("JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR"):
            env[name] = str(tmp_path / "settings" / name.lower())
        config = Path(env["JUPYTER_CONFIG_DIR"]) / "labconfig"
        config.mkdir(parents=True)
        off = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
        (config / "page_config.json").write_text(json.dumps(off))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [
            sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1", f"--port={port}",
            "--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.disable_check_xsrf=True",
            f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]  # fmt: skip
        log = (tmp_path / "jupyter.log").open("wb")
        servers.append((subprocess.Popen(command, env=env, stdout=log, stderr=log), log))
        address = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{address}/api", timeout=5).close()
                return address
            except OSError:
                assert servers[-1][0].poll() is None, (tmp_path / "jupyter.log").read_text()
                time.sleep(0.2)
        raise AssertionError("JupyterLab did not start: " + (tmp_path / "jupyter.log").read_text())

    yield start
    for server, log in servers:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
        log.close()
