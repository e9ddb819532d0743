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
    return [Requirement(line) for line in text.splitlines() if line.strip() and not line.startswith("#")]


LOCKED = read(lock.LOCK.read_text("utf-8"))
VERSIONS = {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in LOCKED}


def test_every_line_is_one_exact_version_and_no_address():
    for requirement in LOCKED:
        assert re.fullmatch(r"==[\w.!+-]+", str(requirement.specifier)), requirement
        assert requirement.url is None
    text = lock.LOCK.read_text("utf-8")
    assert "://" not in text
    assert "--" not in text
    assert not re.search(r"^(nvidia|cuda|triton)", text, re.MULTILINE)
    assert len(VERSIONS) == len(LOCKED)


def test_pyproject_says_the_lock_s_versions():
    asked = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
    for requirement in map(Requirement, asked):
        name = canonicalize_name(requirement.name)
        assert str(requirement.specifier) == f"=={VERSIONS[name]}", requirement


def test_conda_says_the_lock_s_versions():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    *conda, last = environment["dependencies"]
    # conda brings Python and pip only; everything else comes from the same lock.
    assert [re.split(r"[<>=]", word)[0] for word in conda] == ["python", "pip"]
    assert last["pip"] == [f"--requirement {lock.LOCK.name}", "--editable ."]
    python = SpecifierSet(conda[0].removeprefix("python"))
    assert python == SpecifierSet(PROJECT["requires-python"])


@pytest.mark.parametrize("requirement", [r for r in LOCKED if r.marker is None or r.marker.evaluate()], ids=str)
def test_what_is_installed_is_what_is_locked(requirement):
    installed = metadata.version(requirement.name).partition("+")[0]
    assert installed == str(requirement.specifier).removeprefix("=="), "make ready"


def test_the_lock_is_closed():
    """What a locked package needs on any system is locked too, at a version that it accepts."""
    for environment in lock.ENVIRONMENTS:
        assert lock.walk(environment) <= VERSIONS.keys()
    for name in VERSIONS.keys() - lock.ELSEWHERE.keys():
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue  # belongs to another Python version
        for need in map(Requirement, needs):
            wanted = canonicalize_name(need.name)
            if need.marker is None and wanted in VERSIONS:
                assert need.specifier.contains(VERSIONS[wanted], prereleases=True), f"{name} needs {need}"


def test_markers():
    every = set(lock.ENVIRONMENTS)
    assert lock.marker(every) == ""
    assert lock.marker({e for e in every if e[0] == "win32"}) == ' ; sys_platform == "win32"'
    assert lock.marker({e for e in every if e[0] != "win32"}) == ' ; sys_platform != "win32"'
    assert lock.marker({e for e in every if e[1] == "3.12"}) == ' ; python_version == "3.12"'
    assert lock.marker({e for e in every if e[1] >= "3.12"}) == ' ; python_version >= "3.12"'
