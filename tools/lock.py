"""Write requirements.lock: every package of the course at one exact version, for Linux, macOS and Windows.

    python -m tools.lock            # rewrite requirements.lock from what is installed in this environment

The direct packages and their versions come from pyproject.toml. What they pull in is found by walking the
installed packages' own metadata once per platform and Python version, so that a package which only some
machines need gets the environment marker that says so. No registry's address is written: pip uses its own.
"""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from course_lib.files import atomic_write

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
PLATFORMS = {
    "linux": {"os_name": "posix", "platform_system": "Linux", "platform_machine": "x86_64"},
    "darwin": {"os_name": "posix", "platform_system": "Darwin", "platform_machine": "arm64"},
    "win32": {"os_name": "nt", "platform_system": "Windows", "platform_machine": "AMD64"},
}
# Needed only on other systems or Pythons than the one that wrote the lock, where no metadata is at hand:
# (version, what it needs).
ELSEWHERE: dict[str, tuple[str, tuple[str, ...]]] = {
    "appnope": ("0.1.4", ()),  # macOS
    "pywinpty": ("3.1.2", ()),  # Windows
    # Python 3.12 only
    "aiohttp": ("3.14.5", ("aiohappyeyeballs", "aiosignal", "frozenlist", "multidict", "propcache", "yarl")),
    "aiohappyeyeballs": ("2.7.1", ()),
    "aiosignal": ("1.4.0", ()),
    "frozenlist": ("1.8.0", ()),
    "multidict": ("7.2.1", ()),
    "propcache": ("0.5.4", ()),
    "yarl": ("1.25.1", ()),
}
# pip brings what its own torch build needs (CUDA on Linux); the lock leaves that choice open.
LEFT_TO_TORCH = ("nvidia-", "triton", "cuda-")

HEADER = """\
# Every package of the course at one version. Written by `python -m tools.lock`; do not edit by hand.
# The first block is what pyproject.toml asks for, the second what those packages pull in.
"""

Environment = tuple[str, str]  # platform, Python version
ENVIRONMENTS: tuple[Environment, ...] = tuple(itertools.product(PLATFORMS, PYTHONS))


def direct() -> dict[str, str]:
    """Name -> version of every package that pyproject.toml names, the `dev` ones included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = map(Requirement, project["dependencies"] + project["optional-dependencies"]["dev"])
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in asked}


def walk(environment: Environment) -> set[str]:
    """Names of all packages that a machine with this platform and Python needs."""
    platform, python = environment
    values = {str(k): str(v) for k, v in default_environment().items()}
    values |= PLATFORMS[platform] | {"sys_platform": platform, "python_version": python}
    values |= {"python_full_version": f"{python}.0", "implementation_version": f"{python}.0"}
    seen: set[tuple[str, str]] = set()
    todo = [(name, "") for name in direct()]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        todo.extend(_required(*node, values))
    return {name for name, _ in seen}


def _required(name: str, extra: str, values: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The (package, extra) pairs that one package with one of its extras asks for."""
    lines = ELSEWHERE[name][1] if name in ELSEWHERE else metadata.requires(name) or []
    for requirement in map(Requirement, lines):
        wanted = canonicalize_name(requirement.name)
        if wanted.startswith(LEFT_TO_TORCH):
            continue
        if requirement.marker is None or requirement.marker.evaluate(values | {"extra": extra}):
            yield wanted, ""
            yield from ((wanted, e) for e in requirement.extras)


def marker(where: set[Environment]) -> str:
    """The environment marker, " ; ..." or "", that holds in the given environments (or in a few more)."""
    platforms = [p for p in PLATFORMS if any((p, v) in where for v in PYTHONS)]
    pythons = [v for v in PYTHONS if any((p, v) in where for p in PLATFORMS)]
    first, last = pythons[0], pythons[-1]
    parts = []
    if platforms == ["linux", "darwin"]:
        parts.append('sys_platform != "win32"')
    elif len(platforms) < len(PLATFORMS):
        parts.append(" or ".join(f'sys_platform == "{p}"' for p in platforms))
    if first == last:
        parts.append(f'python_version == "{first}"')
    elif first != PYTHONS[0]:
        parts.append(f'python_version >= "{first}"')
    elif last != PYTHONS[-1]:
        parts.append(f'python_version <= "{last}"')
    return " ; " + " and ".join(parts) if parts else ""


def version(name: str) -> str:
    """The version to pin: the installed one without its build tag (2.13.0+cpu is 2.13.0)."""
    return ELSEWHERE[name][0] if name in ELSEWHERE else metadata.version(name).partition("+")[0]


def text() -> str:
    """The whole lock file."""
    needs = {environment: walk(environment) for environment in ENVIRONMENTS}
    lines = {}
    for name in sorted(set().union(*needs.values())):
        lines[name] = f"{name}=={version(name)}{marker({e for e in ENVIRONMENTS if name in needs[e]})}"
    asked = sorted(direct(), key=lambda name: (name != "torch", name))
    block = [lines.pop(name) for name in asked]
    return HEADER + "\n" + "\n".join(block) + "\n\n" + "\n".join(lines.values()) + "\n"


def main() -> None:
    """Write the lock."""
    with atomic_write(LOCK) as file:
        file.write(text())
    print(f"wrote {LOCK.name}: {sum('==' in line for line in LOCK.read_text().splitlines())} packages")


if __name__ == "__main__":
    main()
