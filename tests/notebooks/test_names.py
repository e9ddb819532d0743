"""What a lesson calls exists, also in branches that the stored run never takes."""

import ast
import importlib
import importlib.util
from types import ModuleType

import nbformat
import pytest

from course_lib.files import COURSE

OURS = ("course_lib", "classroom", "lab", "tools")
FILES = sorted([*COURSE.glob("notebooks/**/*.ipynb"), *COURSE.glob("slides/*.ipynb")])


def modules_and_names(tree):
    """What the imports of a notebook bind: modules of the course, and names that they should
    have.
    """
    bound, missing = {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OURS:
            module = importlib.import_module(node.module)
            for name in node.names:
                if hasattr(module, name.name):
                    bound[name.asname or name.name] = getattr(module, name.name)
                elif importlib.util.find_spec(f"{node.module}.{name.name}"):
                    bound[name.asname or name.name] = importlib.import_module(
                        f"{node.module}.{name.name}"
                    )
                else:
                    missing.append(f"{node.module}.{name.name}")
    return {
        name: value for name, value in bound.items() if isinstance(value, ModuleType | type)
    }, missing


def missing(source):
    """Attributes that a module or class of the course is asked for and has not."""
    tree = ast.parse(source)
    bound, wrong = modules_and_names(tree)
    rebound = {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
    }
    rebound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}

    def value(node):
        if isinstance(node, ast.Name) and node.id not in rebound:
            return bound.get(node.id)
        owner = value(node.value) if isinstance(node, ast.Attribute) else None
        found = getattr(owner, node.attr, None) if owner is not None else None
        return found if isinstance(found, ModuleType) else None

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (owner := value(node.value)) is not None:
            fields = getattr(owner, "__annotations__", {})
            if not hasattr(owner, node.attr) and node.attr not in fields:
                wrong.append(f"{owner.__name__}.{node.attr}")
    return wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_name_exists(path):
    cells = nbformat.read(path, as_version=4).cells
    lines = [
        line for cell in cells if cell.cell_type == "code" for line in cell.source.splitlines()
    ]
    assert (
        missing("\n".join(line for line in lines if not line.lstrip().startswith(("%", "!")))) == []
    )


def test_a_renamed_class_is_found():
    source = "from course_lib.analysis import analogies\nanalogies.Analogies(0.0, 0.0, 0)"
    assert missing(source) == ["course_lib.analysis.analogies.Analogies"]
    assert missing("from course_lib.families import no_such_file") == [
        "course_lib.families.no_such_file"
    ]
    assert missing(source.replace("Analogies(", "AnalogyScores(")) == []
