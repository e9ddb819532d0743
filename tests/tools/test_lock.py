"""pyproject.toml, the lock and environment.yml say the same versions, and the lock is whole."""

import re
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tools import lock
from tools.lock import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def read(text):
    return [
        Requirement(line) for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]


LOCKED = read(lock.LOCK.read_text("utf-8"))
HERE = [r for r in LOCKED if r.marker is None or r.marker.evaluate()]
VERSIONS = {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in HERE}


def test_every_line_is_one_exact_version_and_no_address():
    for requirement in LOCKED:
        assert re.fullmatch(r"==[\w.!+-]+", str(requirement.specifier)), requirement
        assert requirement.url is None
    text = lock.LOCK.read_text("utf-8")
    assert "://" not in text and "--" not in text
    assert (
        not re.search(r"^(nvidia|cuda|triton)", text, re.MULTILINE)
        and len(VERSIONS) == len(HERE) > 150
    )


def test_the_lock_lies_in_pyproject_s_ranges():
    extras = PROJECT["optional-dependencies"]
    for requirement in map(Requirement, PROJECT["dependencies"] + extras["course"] + extras["dev"]):
        version = VERSIONS[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement}: the lock has {version}"


def test_the_library_alone_brings_no_notebook():
    names = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert names.isdisjoint({"jupyterlab", "ipywidgets", "ipykernel", "ipython", "matplotlib"})
    assert "torch" in names


def test_conda_says_the_lock_s_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    *conda, last = environment["dependencies"]
    # conda brings Python and pip only; everything else comes from the same lock.
    assert [re.split(r"[<>=]", word)[0] for word in conda] == ["python", "pip"]
    assert last["pip"] == [f"--requirement {lock.LOCK.name}", "--editable ."]
    python = SpecifierSet(conda[0].removeprefix("python"))
    assert python == SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("requirement", HERE, ids=str)
def test_what_is_installed_is_what_is_locked(requirement):
    installed = metadata.version(requirement.name).partition("+")[0]
    assert installed == str(requirement.specifier).removeprefix("=="), "make ready"


def test_the_lock_is_closed():
    """What a locked package needs on this machine is locked too, at a version that it accepts."""
    for requirement in HERE:
        for need in map(Requirement, metadata.requires(requirement.name) or []):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                wanted = canonicalize_name(need.name)
                if not lock.LEFT_OUT.match(wanted):
                    assert wanted in VERSIONS, f"{requirement.name} needs {need}"
                    assert need.specifier.contains(VERSIONS[wanted], prereleases=True), (
                        f"{requirement.name}: {need}"
                    )


def test_torch_comes_first_and_what_is_asked_for_before_the_rest():
    lines = ["a==1", "numpy==2 ; os_name == 'nt'", "torch==3", "z==4"]
    first, rest = lock.text(lines).removeprefix(lock.HEADER).strip().split("\n\n")
    assert first.splitlines() == [
        "torch==3",
        "numpy==2 ; os_name == 'nt'",
    ] and rest.splitlines() == ["a==1", "z==4"]
    locked = lock.LOCK.read_text("utf-8")
    assert lock.text([line for line in locked.splitlines() if "==" in line]) == locked, (
        "python -m tools.lock"
    )
