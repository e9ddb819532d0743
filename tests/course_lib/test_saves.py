"""A save that is killed at any of its steps leaves the old files or the new ones, whole."""

import hashlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn

from course_lib import families, files, peft, zoo
from course_lib.data.token_store import TokenStore, encode_corpus
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, atomic_write, locked, read_json, write_json
from course_lib.model.heads import MLM, Classifier
from course_lib.model.transformer import Transformer
from course_lib.training import run_state

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
# What changes files; opening is among them, for writing begins with it.
STEPS = ("open", "os.chmod", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.rmtree")


def child(work: Callable[[], object]) -> int:
    """The status of a process that does this work."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(100)
        code = 1
        try:
            work()
            code = 0
        except CourseError:
            code = 2
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1]


def is_killed(save: Callable[[], object], at: int) -> bool:
    """Kill a process at its step of that number; False if its save has fewer."""
    steps = 0

    def count(event: str, _: object) -> None:
        nonlocal steps
        if event in STEPS:
            steps += 1
            if steps == at:
                os.kill(os.getpid(), signal.SIGKILL)

    def work() -> None:
        sys.addaudithook(count)
        save()

    status = child(work)
    assert status in (0, signal.SIGKILL)
    return status != 0


def contents(folder: Path) -> dict[str, str]:
    """Every file but the lock, by its path, as a digest."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


class Kind(NamedTuple):
    """Something that is saved: how, in an old and a new version, and who opens it."""

    save: Callable[[Path, int], object]
    open: Callable[[Path], object]


def _plain(folder: Path, version: int) -> None:
    with atomic_write(folder / "a.json") as file:
        file.write(str(version))


def _together(folder: Path, version: int) -> None:
    with atomic_folder(folder) as new:
        write_json(new / "a.json", version)
        write_json(new / "inner" / "b.json", version)
        write_json(new / f"{version}.json", version)


TEXTS = ["the cat sat near the door", "a dog ran to the old house"]


def _tokenizer(version: int = 0) -> Tokenizer:
    return train_wordpiece(TEXTS[: version + 1], 60)


def _stack(version: int, tokenizer: Tokenizer | None = None) -> Transformer:
    torch.manual_seed(version)
    config = families.family("bert").config(
        60 if tokenizer is None else tokenizer.vocab.size,
        width=8 + 8 * version,
        layers=1,
        heads=2,
        length=8,
    )
    return Transformer(config)


def _model(folder: Path, version: int) -> None:
    tokenizer = _tokenizer(version)
    zoo.save_pretrained(MLM(_stack(version, tokenizer)), folder, tokenizer=tokenizer)


def _shipped(folder: Path, version: int) -> None:
    tokenizer = _tokenizer(version)
    zoo.export("tiny", MLM(_stack(version, tokenizer)), tokenizer, {"name": "tiny"}, folder)


def _tokens(folder: Path, version: int) -> None:
    encode_corpus(TEXTS[: version + 1], _tokenizer(), folder, note={"version": version})


def _adapter(folder: Path, version: int) -> None:
    model = Classifier(_stack(0), 2)
    peft.lora(model.stack, rank=1 + version)
    names = {"model_type": "bert", "architecture": "BertForSequenceClassification"}
    peft.save_pretrained(model, folder, **names)


def _state(folder: Path, version: int) -> None:
    torch.manual_seed(version)
    model = nn.Linear(3, 2)
    run_state.save(folder / "state.safetensors", model, torch.optim.AdamW(model.parameters()), 1)


KINDS = {
    "file": Kind(_plain, lambda folder: read_json(folder / "a.json")),
    "files together": Kind(_together, lambda folder: read_json(folder / "a.json")),
    "tokenizer": Kind(lambda folder, version: _tokenizer(version).save(folder), Tokenizer.load),
    "tokens": Kind(_tokens, TokenStore.open),
    "model": Kind(_model, zoo.open_model),
    "shipped": Kind(_shipped, lambda folder: zoo.load("tiny", folder=folder)),
    "adapter": Kind(_adapter, lambda folder: read_json(folder / "adapter_config.json")),
    "state": Kind(_state, lambda folder: run_state.steps_done(folder / "state.safetensors")),
}


QUICK = ("file", "files together")


@pytest.fixture(
    params=[pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KINDS]
)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


def test_a_save_killed_at_any_step_is_old_or_new(kind: Kind, tmp_path: Path) -> None:
    old = tmp_path / "old"
    kind.save(old, 0)
    shutil.copytree(old, tmp_path / "new")
    kind.save(tmp_path / "new", 1)
    whole = [contents(old), contents(tmp_path / "new")]
    assert whole[0] != whole[1]

    folder = tmp_path / "killed"
    at = 1
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(old, folder)
        if not is_killed(lambda: kind.save(folder, 1), at):
            break
        kind.open(folder)
        found = contents(folder)
        visible = {name: digest for name, digest in found.items() if ".tmp" not in name}
        assert visible in whole, (at, sorted(found))
        kind.save(folder, 1)
        assert contents(folder) == whole[1], at  # nothing is left beside them
        at += 1
    assert at > 3


def test_a_full_disk_loses_nothing(kind: Kind, tmp_path: Path) -> None:
    old = tmp_path / "old"
    kind.save(old, 0)
    before = contents(old)
    kind.save(tmp_path / "new", 1)
    largest = max(path.stat().st_size for path in (tmp_path / "new").rglob("*") if path.is_file())

    def save(room: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        kind.save(old, 1)

    for room in (0, largest // 2, largest - 1):
        assert os.waitstatus_to_exitcode(child(partial(save, room))) == 2  # a CourseError
        assert contents(old) == before


def test_two_processes_that_save_in_one_place_leave_one_whole(kind: Kind, tmp_path: Path) -> None:
    versions = []
    for version in (0, 1):
        kind.save(tmp_path / str(version), version)
        versions.append(contents(tmp_path / str(version)))

    folder = tmp_path / "both"

    def save(version: int) -> None:
        for _ in range(10):
            kind.save(folder, version)

    with ThreadPoolExecutor() as threads:
        statuses = threads.map(lambda version: child(partial(save, version)), (0, 1))
        assert list(statuses) == [0, 0]
    kind.open(folder)
    found = contents(folder)
    # Files of other names stay: the one version's, where the other has none.
    assert any(version.items() <= found.items() for version in versions), sorted(found)
    assert set(found) <= set(versions[0]) | set(versions[1])


def test_two_checkpoints_exported_at_once_are_both_in_the_manifest(tmp_path: Path) -> None:
    tokenizer = _tokenizer()
    model = MLM(_stack(0, tokenizer))

    def export(name: str) -> int:
        return child(lambda: zoo.export(name, model, tokenizer, {"name": name}, tmp_path))

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(export, "abcd")) == [0, 0, 0, 0]
    assert zoo.names(tmp_path) == list("abcd")


def test_a_link_stays_one(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "link.json").symlink_to(tmp_path / "far" / "file.json")
    write_json(tmp_path / "link.json", 3)
    assert (tmp_path / "link.json").is_symlink() and read_json(tmp_path / "far" / "file.json") == 3


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    with locked(tmp_path):

        def enter() -> None:
            with locked(tmp_path):
                pass

        assert os.waitstatus_to_exitcode(child(enter)) == 2


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks as Windows has them: one byte of a file, and an open file cannot be removed.

    They are played by the locks of this system, before they are taken away.
    """
    import fcntl

    open_files: list[int] = []
    unlink = Path.unlink

    def locking(file: int, mode: int, count: int) -> None:
        assert (mode, count) == (2, 1) and os.lseek(file, 0, os.SEEK_CUR) == files.LOCKED_BYTE
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        open_files.append(file)

    def unlink_closed(path: Path) -> None:
        for file in open_files:
            try:
                is_open = os.path.samestat(os.fstat(file), path.stat())
            except OSError:
                continue
            if is_open:
                raise PermissionError
        unlink(path)

    monkeypatch.setattr(Path, "unlink", unlink_closed)
    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setattr(files, "HAS_FLOCK", False)
    monkeypatch.setattr(files, "msvcrt", SimpleNamespace(locking=locking, LK_NBLCK=2))


def test_windows_locks_folders_too(windows: None, tmp_path: Path) -> None:
    folder = tmp_path / "out"

    def enter() -> None:
        with locked(folder):
            pass

    with locked(folder):
        assert os.waitstatus_to_exitcode(child(enter)) == 2
        with pytest.raises(CourseError, match=f"Process {os.getpid()} is writing in"):
            enter()
    assert os.waitstatus_to_exitcode(child(enter)) == 0
    assert not folder.exists(), "the lock is removed when its file is closed"


def test_windows_waits_for_a_lock(windows: None, tmp_path: Path) -> None:
    def wait() -> None:
        with locked(tmp_path, wait=True):
            (tmp_path / "entered").touch()

    with ThreadPoolExecutor() as threads:
        with locked(tmp_path):
            waiting = threads.submit(wait)
            time.sleep(0.3)
            assert not (tmp_path / "entered").exists()
        waiting.result(timeout=60)
        assert (tmp_path / "entered").exists()


@pytest.mark.parametrize("days", [-400, 400])
def test_what_a_killed_process_left_goes_whatever_the_clock_said(
    days: int, windows: None, tmp_path: Path
) -> None:
    """Without locks only its date tells: here the clock was set back or forth since."""
    left = tmp_path / ".file.json.killed.tmp"
    left.mkdir()
    then = time.time() + days * files.DAY
    os.utime(left, (then, then))
    write_json(tmp_path / "file.json", 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.json"]


def test_a_home_that_is_not_there_stays_a_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert files.expand_home("~/x") == Path("/somewhere/x")
    assert files.expand_home("~nobody_of_this_name/x") == Path("~nobody_of_this_name/x")
