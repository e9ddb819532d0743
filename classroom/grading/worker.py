"""The program in the box: runs a student's cells in an IPython shell and calls their functions,
when asked to.

Whatever a student does in this process can hurt this process only: the grader outside holds the
clock, the inputs and the comparisons. Started as `python -m classroom.grading.worker LIMITS`,
LIMITS as JSON."""

import base64
import builtins
import contextlib
import copy
import io
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from classroom.checks.base import plain, same
from classroom.grading import wire
from classroom.grading.memory import DESCRIPTORS

LARGEST_TEXT = 20_000  # characters of one cell's outputs that are kept
LARGEST_PICTURE = 2_000_000
OWN = os.getpid()
HOME = str(Path.cwd())  # where the student's files lie


def limit(limits: dict[str, int]) -> None:
    """Give up the superuser's rights, and set limits that cannot be lifted again.

    Args:
        limits: "memory" and "file" in bytes, "processes" (0: any number), and the number of the
            "user" to become (0: stay).
    """
    if limits["user"]:
        os.setgroups([])
        os.setgid(limits["user"])
        os.setuid(limits["user"])
    try:
        import resource
    except ImportError:  # Windows: the grader's clock is the only limit
        return
    wanted = {
        resource.RLIMIT_AS: limits["memory"],
        resource.RLIMIT_FSIZE: limits["file"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: DESCRIPTORS,
    }
    if limits["processes"]:
        wanted[resource.RLIMIT_NPROC] = limits["processes"]
    for which, value in wanted.items():
        with contextlib.suppress(ValueError, OSError):  # already lower, or not on this system
            resource.setrlimit(which, (value, value))


def allow(seconds: float) -> None:
    """Limit the processor time from now on; the kernel ends a process that takes more."""
    # on Windows the grader's clock is the only limit
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        until = math.ceil(time.process_time() + seconds)  # the kernel counts whole seconds
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))


class CellOutputs:
    """The outputs of one cell in a notebook's form, cut where there is too much."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.room = LARGEST_TEXT  # characters of text that may still come
        self.picture_room = LARGEST_PICTURE

    def stream(self, name: str, text: str) -> None:
        """Text on stdout or stderr."""
        if self.room <= 0:
            return
        kept = text[: self.room]
        self.room -= len(text)
        if self.room <= 0:
            kept += "\n... (cut: too much output)\n"
        if self.items and self.items[-1].get("name") == name:
            self.items[-1]["text"] += kept
        else:
            self.items.append({"output_type": "stream", "name": name, "text": kept})

    def show(self, data: dict[str, Any]) -> None:
        """A result or a display: its text, and its PNG where there is one."""
        kept: dict[str, str] = {}
        text, picture = data.get("text/plain"), data.get("image/png")
        if isinstance(text, str) and self.room > 0:
            kept["text/plain"] = text[: self.room]
            self.room -= len(text)
        if isinstance(picture, str) and len(picture) < self.picture_room:
            kept["image/png"] = picture
            self.picture_room -= len(picture)
        if kept:
            self.items.append({"output_type": "display_data", "data": kept, "metadata": {}})

    def error(self, name: str, value: str, lines: list[str]) -> None:
        """An exception with its traceback."""
        text = "\n".join(lines)
        if len(text) > 8000:
            text = text[:4000] + "\n...\n" + text[-4000:]
        self.items.append(
            {"output_type": "error", "ename": name, "evalue": value[:1000], "traceback": [text]}
        )


class Stream(io.TextIOBase):
    """stdout or stderr of the student's code."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.outputs = CellOutputs()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.outputs.stream(self.name, str(text))
        return len(text)


def _lab_shell() -> Any:
    """IPython's shell with what JupyterLab's adds to it: its magics, and pictures below cells."""
    from ipykernel.zmqshell import KernelMagics
    from IPython.core.interactiveshell import InteractiveShell

    plain_shell: Any = InteractiveShell

    class LabShell(plain_shell):  # type: ignore[misc]
        def enable_gui(self, gui: Any = None) -> None:
            """Nothing: there is no window here, and no event loop to run beside the cells."""

        def enable_matplotlib(self, gui: Any = None) -> Any:
            """Draw below the cell, whichever of the notebook's ways is asked for."""
            return super().enable_matplotlib("inline")

        def init_magics(self) -> None:
            super().init_magics()
            self.register_magics(KernelMagics)

    return LabShell


class Shell:
    """IPython's shell with its outputs collected.

    Cells see what they see in a notebook, but nobody answers input().
    """

    def __init__(self) -> None:
        from traitlets.config import Config

        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        config.InteractiveShell.xmode = "Context"
        self.inner = cast(Any, _lab_shell().instance(config=config))
        self.outputs = CellOutputs()
        self.out, self.err = Stream("stdout"), Stream("stderr")
        self._collect_errors()
        self._collect_displays()

    def _collect_errors(self) -> None:
        """Have IPython hand over its tracebacks."""
        original = self.inner.showtraceback

        def showtraceback(*args: Any, **named: Any) -> None:
            leave_if_forked()
            original(*args, **named)

        def keep(etype: Any, evalue: Any, lines: Any) -> None:
            name = getattr(etype, "__name__", "Error")
            self.outputs.error(name, str(evalue), [str(line) for line in lines])

        self.inner.showtraceback = showtraceback
        self.inner._showtraceback = keep

    def _collect_displays(self) -> None:
        """Have IPython hand over what is displayed and what a cell's last line gives."""
        publisher, hook = self.inner.display_pub, self.inner.displayhook
        publisher.publish = lambda data, *args, **named: self.outputs.show(data)
        publisher.clear_output = lambda wait=False: self.outputs.items.clear()
        hook.write_format_data = lambda data, metadata=None: self.outputs.show(data)
        # what a terminal would print around it
        hook.start_displayhook = hook.write_output_prompt = hook.finish_displayhook = lambda: None

    @contextlib.contextmanager
    def collecting(self) -> Iterator[CellOutputs]:
        """Everything that is written or displayed inside goes into these outputs."""
        outputs = CellOutputs()
        self.outputs = self.out.outputs = self.err.outputs = outputs
        with contextlib.redirect_stdout(self.out), contextlib.redirect_stderr(self.err):
            yield outputs

    def run(self, source: str) -> dict[str, Any]:
        """Run one cell: {"outputs"}."""
        with self.collecting() as outputs:
            self.inner.run_cell(source, store_history=False)
        return {"outputs": outputs.items}

    def call(self, name: str, args: list[Any]) -> dict[str, Any]:
        """Call a function of the student's.

        Returns:
            {"value"}, or {"error"}: "missing", "stub", "changed" with the number of the
            "argument", or "raised" with the exception's "type" and "text" and the student's "line".
        """
        if name not in self.inner.user_ns:
            return {"error": "missing"}
        given = copy.deepcopy(args)
        with self.collecting():
            try:
                value = plain(self.inner.user_ns[name](*given))
            except NotImplementedError:
                return {"error": "stub"}
            except BaseException as error:  # noqa: BLE001  SystemExit as well
                return {
                    "error": "raised",
                    "type": type(error).__name__,
                    "text": str(error)[:300],
                    "line": own_line(error),
                }
        for number, (after, before) in enumerate(zip(given, args, strict=True)):
            if not same(after, before):
                return {"error": "changed", "argument": number}
        return {"value": value}


def own_line(error: BaseException) -> str:
    """The last line of the student's own code on the way to an exception; "" without one.

    That is code of a cell, or of a file beside the notebook.
    """
    line = ""
    for frame in traceback.extract_tb(error.__traceback__):
        in_a_cell = "ipykernel_" in frame.filename or frame.filename.startswith("<ipython-input")
        if in_a_cell or frame.filename.startswith(HOME):
            line = frame.line or line
    return line


def put(name: str, data: str) -> dict[str, Any]:
    """Write a file of the student's, which comes in base64, beside the notebook."""
    path = Path(HOME, name)
    # no room, or there is a folder of this name: what needs the file says so
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(data))
    return {}


def leave_if_forked() -> None:
    """End a copy of this process that the student's code has forked off.

    It must not join the conversation.
    """
    if os.getpid() != OWN:
        os._exit(0)


def refuse_input(prompt: object = "") -> str:
    """In the place of input()."""
    raise EOFError(
        "nobody can answer input() while the homework is graded; write the value into the cell"
    )


def serve(inbox: IO[bytes], outbox: IO[bytes], alone: bool) -> None:
    """Answer requests until the grader hangs up.

    Args:
        inbox: of requests.
        outbox: of answers.
        alone: this process sees none but its own descendants (`--unshare-pid`). What is left of
            them after a request is ended, or a fork bomb would take the processor from all that
            follows.
    """
    shell = Shell()
    builtins.input = refuse_input
    wire.write(outbox, {"id": 0})
    while True:
        request = wire.read(inbox)
        if request is None:
            return
        allow(request["seconds"])
        began = time.process_time()
        if request["do"] == "file":
            answer = put(request["name"], request["data"])
        elif request["do"] == "run":
            answer = shell.run(request["source"])
        else:
            answer = shell.call(request["name"], request["args"])
        leave_if_forked()
        if alone:
            with contextlib.suppress(OSError):  # there is none
                os.kill(-1, signal.SIGKILL)
        try:
            wire.write(outbox, {"id": request["id"], "took": time.process_time() - began, **answer})
        except Exception as error:  # noqa: BLE001  a result that cannot be sent is the student's error
            failed = {"error": "raised", "type": "ResultError", "text": str(error)[:300]}
            wire.write(outbox, {"id": request["id"], **failed})


if __name__ == "__main__":
    # The conversation moves to files of its own; what the student's code or its children print goes
    # nowhere.
    conversation = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    limits = json.loads(sys.argv[1])
    limit(limits)
    serve(*conversation, alone=limits["processes"] > 0)  # which is counted in a box only
