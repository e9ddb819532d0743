"""Every link, anchor, file, command and name that lessons, docs and README mention, held against
what there is.
"""

from __future__ import annotations

import functools
import html
import importlib.util
import pydoc
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import nbformat

from classroom.records import ledger
from tools.notebooks import ROOT

PACKAGES = ("course_lib", "classroom", "lab")
FOLDERS = (*PACKAGES, "data", "docs", "notebooks", "slides", "tests", "tools")
# Endings that make `train.tsv` a file of the reader's and no attribute of a module.
ENDINGS = {
    *(
        "bio",
        "conll",
        "conllu",
        "csv",
        "de",
        "en",
        "hdf5",
        "html",
        "ipynb",
        "json",
        "jsonl",
        "md",
        "parquet",
        "pdf",
    ),
    *("png", "py", "raw", "story", "toml", "tsv", "txt", "yaml", "zip"),
}

_FENCE = re.compile(r"^ *(```+|~~~+)(\w*)[^\n]*\n(.*?)^ *\1", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)")
_HTML = re.compile(r"""<(?:a|img)\b[^>]*?\b(?:href|src)=["']([^"']*)["']""")
_ID = re.compile(r"""<\w+\b[^>]*?\b(?:id|name)=["']([^"']+)["']""")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_IMPORT = re.compile(
    rf"^from ((?:{'|'.join(PACKAGES)})[\w.]*) import (?:\(([^)]*)\)|(.*)$)", re.MULTILINE
)
_DOTTED = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+)")


@dataclass(frozen=True)
class Document:
    """A text to check: where it stands, its Markdown, the HTML that its cells show, and what names
    in it mean.

    names: those that a notebook's code imports from the course -> their full names; "" for what it
    defines itself."""

    path: Path
    text: str
    shown: str = ""
    names: dict[str, str] = field(default_factory=dict)

    @property
    def prose(self) -> str:
        """The Markdown without fenced code."""
        return _FENCE.sub("", self.text)

    @property
    def code(self) -> str:
        """All that stands in code font: spans and fenced blocks, a line each."""
        return "\n".join([*_SPAN.findall(self.prose), *(m[3] for m in _FENCE.finditer(self.text))])


def documents(root: Path = ROOT) -> list[Document]:
    """README, CONTRIBUTING, docs, lessons, decks and homework."""
    texts = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("*.md"))]
    folders = (root / "notebooks", root / "slides", root / "notebooks" / "homework")
    books = [path for folder in folders for path in sorted(folder.glob("*.ipynb"))]
    return [open_document(path) for path in [*texts, *books] if path.exists()]


def open_document(path: Path) -> Document:
    """A Markdown file or a notebook."""
    if path.suffix != ".ipynb":
        text = path.read_text("utf-8")
        return Document(
            path,
            text,
            names=defined("\n".join(m[3] for m in _FENCE.finditer(text) if m[2] == "python")),
        )
    cells = nbformat.read(path, as_version=4).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    shown = "\n".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    return Document(
        path, text, shown, defined("\n".join(c.source for c in cells if c.cell_type == "code"))
    )


def defined(code: str) -> dict[str, str]:
    """What code imports of the course: the name in the code -> the full name; "" for what it
    defines itself.
    """
    own = re.findall(
        r"^ *(?:def |class |for |import )?([A-Za-z_][\w, ]*?)(?: = | in |\(|:|$)",
        code,
        re.MULTILINE,
    )
    own += re.findall(r"^ *def \w+\(([\w, ]+)\)", code, re.MULTILINE)
    return {name.strip(): "" for names in own for name in names.split(",")} | imports(code)


def imports(code: str) -> dict[str, str]:
    """What the code imports of the course: the name in the code -> the full name."""
    found: dict[str, str] = {}
    for module, bracket, line in _IMPORT.findall(code):
        for name in filter(
            None, (part.partition("#")[0].strip() for part in (bracket or line).split(","))
        ):
            full, _, short = name.partition(" as ")
            found[short or full] = f"{module}.{full}"
    return found


def links(document: Document) -> Iterator[str]:
    """Links that lead to no file or no anchor."""
    found = (
        _LINK.findall(_SPAN.sub("", document.prose))
        + _HTML.findall(document.prose)
        + _HTML.findall(document.shown)
    )
    for address in dict.fromkeys(html.unescape(address) for address in found):
        if _OUTSIDE.match(address) or not address:
            continue
        place, _, anchor = address.partition("#")
        target = (document.path.parent / unquote(place)) if place else document.path
        if not target.exists():
            yield f"the link {address} leads nowhere"
        elif anchor and target.is_file() and unquote(anchor) not in anchors(target.resolve()):
            yield f"the link {address} leads to no anchor of {target.name}"


def ids(document: Document) -> Iterator[str]:
    """Anchors that stand twice in one document."""
    for name, count in Counter(_ID.findall(document.prose)).items():
        if count > 1:
            yield f"the anchor {name} stands {count} times"


def files(document: Document) -> Iterator[str]:
    """Files of the course, named in code font, that do not exist."""
    for span in dict.fromkeys(_SPAN.findall(document.prose)):
        name = re.sub(r":\d+$|/$", "", span)
        ours = "/" in name and name.split("/")[0] in FOLDERS and re.fullmatch(r"[\w./*-]+", name)
        if ours and not any(ROOT.glob(name)):
            yield f"there is no file {name}"


def commands(document: Document) -> Iterator[str]:
    """Commands of make, modules behind `python -m`, claims behind `claims run`, that do not
    exist.
    """
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for target in dict.fromkeys(
        re.findall(r"^(?:\$ |! *)?make ([a-z]+)\b", document.code, re.MULTILINE)
    ):
        if target not in targets:
            yield f"make {target} is no command of the Makefile"
    for module in dict.fromkeys(
        re.findall(rf"python -m ((?:{'|'.join(PACKAGES)}|tools)[\w.]*)", document.code)
    ):
        if not _module(module):
            yield f"there is no module {module}"
    claims = ledger.read()
    named = re.findall(r"claims run ([a-z][\w-]+)", document.code)
    named += re.findall(r"^#+ .*?\b[Cc]laim `([^`]+)`", document.prose, re.MULTILINE)
    for claim in dict.fromkeys(named):
        if claim not in claims:
            yield f"there is no claim {claim} in any lesson's claims.yaml"


def names(document: Document) -> Iterator[str]:
    """Names of the library in code font (course_lib.x.y, or figures.live after an import) that do
    not exist.
    """
    known = library() | document.names
    for dotted in dict.fromkeys(_names_in(document)):
        first, *rest = dotted.split(".")
        if first in PACKAGES:
            full = dotted
        elif known.get(first) and rest[-1] not in ENDINGS:
            full = ".".join([known[first], *rest])
        else:
            continue
        if not resolves(full):
            yield f"there is no {dotted} in the library"
    for block in (m[3] for m in _FENCE.finditer(document.text) if m[2] == "python"):
        for full in imports(block).values():
            if not resolves(full):
                yield f"there is no {full} to import"


def _names_in(document: Document) -> Iterator[str]:
    for span in _SPAN.findall(document.prose):
        if "/" not in span.split("(")[0] and "://" not in span:
            found = _DOTTED.finditer(span)
            yield from (m[1] for m in found if m.start() == 0 or m[1].split(".")[0] in PACKAGES)


@functools.cache
def library() -> dict[str, str]:
    """The library's modules and the classes that bear a name alone, by the short names that texts
    use for them.
    """
    rooms: dict[str, str] = {}
    files: dict[str, str] = {}
    classes: dict[str, list[str]] = {}
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    paths.sort(key=lambda path: path.name != "__init__.py")  # a room before a file of its name
    for path in paths:
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name in re.findall(r"^class (\w+)", path.read_text("utf-8"), re.MULTILINE):
            classes.setdefault(name, []).append(f"{module}.{name}")
        short = module.rpartition(".")[2]
        if module.count(".") == 1:
            rooms.setdefault(short, module)
        if module.count(".") == 2:  # a room's file; `zoo` is the room, not the file of commands
            files.setdefault(short, module)
    return files | rooms | {name: places[0] for name, places in classes.items() if len(places) == 1}


@functools.cache
def resolves(dotted: str) -> bool:
    """Whether a dotted name can be reached: modules, then attributes, fields of dataclasses too."""
    if pydoc.locate(dotted) is not None:
        return True
    owner, _, name = dotted.rpartition(".")
    kinds = getattr(pydoc.locate(owner), "__mro__", ())
    return any(name in getattr(kind, "__annotations__", {}) for kind in kinds)


@functools.cache
def _module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        return False


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of a document: those set by hand, and those of its headings as its viewer makes
    them.
    """
    document = open_document(path)
    found = set(_ID.findall(document.prose))
    for heading in re.findall(r"^#+ +(.*?) *#*$", document.prose, re.MULTILINE):
        plain = re.sub(r"[`*]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading))
        if path.suffix == ".ipynb":
            found.add(plain.replace(" ", "-"))
        else:
            found.add(re.sub(r"[^\w -]", "", plain.lower()).replace(" ", "-"))
    return frozenset(found)


Rule = Callable[[Document], Iterator[str]]
RULES: tuple[Rule, ...] = (links, ids, files, commands, names)


def problems(document: Document) -> list[str]:
    """Everything that is wrong in a document, one line each."""
    return [line for rule in RULES for line in rule(document)]
