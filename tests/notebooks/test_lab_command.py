"""`make lab`: a server that answers at the address that is printed, and ends when it is told to."""

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from course_lib.errors import CourseError
from tools import lab

pytestmark = pytest.mark.slow


def test_the_printed_address_opens_the_first_lesson(tmp_path):
    env = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    env |= {"http_proxy": "http://127.0.0.1:9", "no_proxy": ""}  # nothing answers there
    env |= {
        name: str(tmp_path / name)
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    command = [sys.executable, "-m", "tools.lab"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=env, cwd=lab.ROOT
    ) as server:
        stop = threading.Timer(1200, server.kill)
        stop.start()
        try:
            said = ""
            for line in server.stdout:
                said += line
                if "ssh -N -L" in line:  # the last line where there is no screen
                    break
            address = re.search(
                r"http://127\.0\.0\.1:\d+/lab/tree/student/00_start_here\.ipynb\?token=\w+", said
            )
            assert address, said
            with urllib.request.urlopen(address[0], timeout=600) as answer:
                assert "JupyterLab" in answer.read().decode()
            # nobody else gets in
            with pytest.raises(urllib.error.HTTPError, match=r"40[13]|Forbidden"):
                urllib.request.urlopen(address[0].split("/lab/")[0] + "/api/contents", timeout=600)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(600)
            stop.cancel()
    assert server.returncode is not None


def test_a_server_that_ends_early_is_reported():
    server = subprocess.Popen([sys.executable, "-c", ""])
    with server, pytest.raises(CourseError, match="ended while it started"):
        lab.wait("http://127.0.0.1:9/api", server, seconds=600)


def test_screen(monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    for given, seen in (
        ({}, False),
        ({"DISPLAY": ":0"}, True),
        ({"DISPLAY": ":0", "SSH_CONNECTION": "x"}, False),
    ):
        monkeypatch.setattr(os, "environ", given)
        assert lab.has_screen() == seen
