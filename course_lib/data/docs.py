"""Real English that every machine with the course already has: the docstrings of the installed libraries.

The sources are read as text and parsed (`ast`); nothing is imported or executed. About 40 MB.
"""

import ast
import hashlib
import inspect
import json
import os
import re
import sysconfig
import warnings
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TypedDict

from course_lib.errors import CourseError
from course_lib.files import atomic_write

FORMAT = 1  # part of the cache's name: count up when the cleaning below changes
LEAST_CHARACTERS = 200
SPLITS = {"validation": range(2), "test": range(2, 4), "train": range(4, 100)}  # of a hash modulo 100

# All come with the course's pinned requirements.
PACKAGES = """
    IPython PIL accelerate click datasets fsspec huggingface_hub ipykernel ipywidgets jinja2 joblib jsonschema
    jupyter_client jupyter_core jupyter_server jupyterlab matplotlib nbclient nbconvert nbformat networkx nltk numpy
    packaging pandas pyarrow pygments requests rich rouge_score sacrebleu safetensors scipy seqeval sklearn sympy
    tokenizers torch tornado tqdm traitlets transformers typer urllib3
"""
DISTRIBUTIONS = {"PIL": "pillow", "sklearn": "scikit-learn"}  # where the package is named otherwise
NOT_PROSE = {"test", "tests", "testing", "conftest", "_vendor", "vendored", "externals"}


class Docstring(TypedDict):
    """One document: its cleaned text and the qualified name of what it documents."""

    name: str
    text: str


def docstrings(split: str = "train", *, folder: Path | None = None) -> list[Docstring]:
    """All docstrings of a split, in an order that looks random and is always the same.

    Read once per set of library versions (about a minute), then from a file in the user's cache
    ($COURSE_CACHE, else ~/.cache/course_lib).

    Args:
        split: "train" (96%), "validation" or "test" (2% each), by a hash of the qualified name.
        folder: where packages lie; None: this interpreter's site-packages.

    Raises:
        CourseError: an unknown split, or no package to read.
    """
    if split not in SPLITS:
        raise CourseError(f"The docs corpus has no split {split!r}; choose one of {', '.join(SPLITS)}.")
    return [row for row in _everything(folder) if _hash(row["name"]) % 100 in SPLITS[split]]


def _everything(folder: Path | None) -> list[Docstring]:
    root = folder or Path(sysconfig.get_paths()["purelib"])
    names = [name for name in PACKAGES.split() if (root / name).is_dir()]
    if not names:
        raise CourseError(
            f"None of the libraries of the docs corpus lies in {root}; install the course's requirements."
        )
    key = hashlib.sha256(repr((FORMAT, str(root), [(n, _version(n)) for n in names])).encode()).hexdigest()[:16]
    cache = Path(os.environ.get("COURSE_CACHE") or Path.home() / ".cache" / "course_lib") / f"docs-{key}.jsonl"
    if folder is None and cache.is_file():
        try:
            return [json.loads(line) for line in cache.read_text(encoding="utf-8").splitlines()]
        except ValueError:
            pass  # a damaged cache is read anew
    rows: dict[str, Docstring] = {}
    for name in names:
        for qualified, text in _package(root / name):
            rows.setdefault(text, {"name": qualified, "text": text})  # the same text is often inherited
    ordered = sorted(rows.values(), key=lambda row: (_hash(row["name"] + "/order"), row["text"]))
    if folder is None:
        try:
            with atomic_write(cache) as file:
                file.writelines(json.dumps(row) + "\n" for row in ordered)
        except CourseError:
            pass  # a home that cannot be written only costs the minute again
    return ordered


def _package(root: Path) -> Iterator[tuple[str, str]]:
    """(qualified name, clean text) of every docstring worth reading in a package, test code left out."""
    for file in sorted(root.rglob("*.py")):
        inside = file.relative_to(root.parent).with_suffix("")
        if NOT_PROSE & set(inside.parts):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a library's invalid escapes are no concern of the reader's
                tree = ast.parse(file.read_bytes())
        except (SyntaxError, ValueError):
            continue  # templates of code
        module = ".".join(p for p in inside.parts if p != "__init__")
        for name, raw in _of(tree, module):
            text = clean(raw)
            if len(text) >= LEAST_CHARACTERS:
                yield name, text


def _of(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node, clean=False)
        if text:
            yield name, text
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _of(child, f"{name}.{child.name}")
        elif isinstance(child, ast.Expr) and isinstance(child.value, ast.Call):
            yield from _attached(child.value, name)
        else:
            yield from _of(child, name)


def _attached(call: ast.Call, name: str) -> Iterator[tuple[str, str]]:
    """Docstrings of compiled functions, which torch and numpy attach by `add_docstr` and `add_newdoc`."""
    if ast.unparse(call.func).rsplit(".", 1)[-1] not in ("add_docstr", "add_newdoc"):
        return
    about = ".".join(ast.unparse(a).strip("'\"") for a in call.args[:-1])
    for part in ast.walk(call):
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value) > LEAST_CHARACTERS:
            yield f"{name}.{about}", part.value


def clean(text: str) -> str:
    """A docstring as plain text: indentation and markup of references gone, at most one blank line in a row.

    >>> clean("Like :func:`torch.add`, but ``faster``. ")
    'Like torch.add, but faster.'
    """
    text = inspect.cleandoc(text)
    text = re.sub(r":[a-z:]+:`~?([^`<]*?)(?: <[^`]*>)?`", r"\1", text)  # :class:`~a.B` and :ref:`title <label>`
    text = re.sub(r"\[`~?([^`\]]*)`\]", r"\1", text)  # [`Trainer`]
    text = re.sub(r"`+([^`\n]+?)`+_?", r"\1", text)
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _version(name: str) -> str:
    try:
        return metadata.version(DISTRIBUTIONS.get(name, name))
    except metadata.PackageNotFoundError:
        return "unknown"


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
