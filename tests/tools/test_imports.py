"""Who may import whom: the contracts of pyproject.toml, and no circle of modules anywhere."""

import os
import subprocess
import sys

import grimp
import networkx

from tools.notebooks import ROOT

PACKAGES = ("course_lib", "classroom", "lab", "tools", "tests")


def circles(graph):
    """Sets of modules that import each other, directly or around corners."""
    arrows = [(a, b) for a in graph.modules for b in graph.find_modules_directly_imported_by(a)]
    found = networkx.strongly_connected_components(networkx.DiGraph(arrows))
    return sorted(sorted(modules) for modules in found if len(modules) > 1)


def lint(*options):
    """The lines of import-linter's own command, and whether a contract is broken."""
    program = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", program, "--no-cache", *options]
    wide = os.environ | {"COLUMNS": "200"}
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=wide)
    return run.stdout + run.stderr, run.returncode


def test_the_contracts_are_kept():
    said, broken = lint()
    assert not broken, said


def test_a_broken_contract_is_seen(tmp_path):
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for old, new in (
        ('"classroom", "course_lib"]', '"course_lib", "classroom"]'),
        ('    "zoo",\n    "data",', '    "data",\n    "zoo",'),
        ('source_modules = ["course_lib"]', 'source_modules = ["classroom"]'),
        ('ignore_imports = ["course_lib.__main__ -> typer", "course_lib.commands.* -> typer"]', ""),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    said, broken = lint("--config", str(tmp_path / "pyproject.toml"))
    assert broken and "4 broken" in said, said


def test_no_circle_of_modules():
    """Names of types, which no program imports, may point back."""
    assert (
        circles(grimp.build_graph(*PACKAGES, cache_dir=None, exclude_type_checking_imports=True))
        == []
    )


def test_a_circle_is_seen():
    graph = grimp.ImportGraph()
    for a, b in (("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")):
        graph.add_import(importer=a, imported=b)
    assert circles(graph) == [["a", "b", "c"]]
