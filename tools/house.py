"""Draw the course's packages and rooms with their lines of code and their imports, for docs/architecture.md.

python -m tools.house
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import grimp
import networkx as nx
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from tools.notebooks import ROOT

PACKAGES = ("tools", "experiments", "classroom", "course_lib")
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH, ROW, HEAD = 100.0, 8.0, 6.0  # of a package, of a row of rooms, above the first row
FILLS = {"tools": "#f1f3f4", "experiments": "#fdf0e1", "classroom": "#e8f3ec", "course_lib": "#e3eef8"}


def size(path: Path) -> tuple[int, int]:
    """Files and lines of Python in a folder (or of a single file), as `wc -l` counts them."""
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    return len(files), sum(file.read_text("utf-8").count("\n") for file in files)


def rooms(package: str) -> dict[str, Path]:
    """The rooms of a package and the files beside them, by name."""
    inside = sorted((ROOT / package).iterdir())
    return {path.stem: path for path in inside if (path / "__init__.py").exists() or path.suffix == ".py"}


def structure() -> dict[str, list[list[str]]]:
    """Package -> [room, the rooms beside it that it imports, ...] for each of its rooms and files but `__init__`."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None, exclude_type_checking_imports=True)
    found = {}
    for package in PACKAGES:
        graph_of_rooms = nx.DiGraph()
        graph_of_rooms.add_nodes_from(name for name in rooms(package) if not name.startswith("__init__"))
        for a in graph.find_descendants(package):
            for b in graph.find_modules_directly_imported_by(a):
                if b.startswith(f"{package}."):
                    graph_of_rooms.add_edge(a.split(".")[1], b.split(".")[1])
        graph_of_rooms.remove_edges_from(list(nx.selfloop_edges(graph_of_rooms)))
        found[package] = [[name, *sorted(graph_of_rooms[name])] for name in sorted(graph_of_rooms)]
    return found


def rows(imports: list[list[str]]) -> list[list[str]]:
    """Rooms from top to bottom: each below all that import it; rooms in a circle stand side by side."""
    graph = nx.DiGraph((name, used) for name, *uses in imports for used in uses)
    graph.add_nodes_from(name for name, *_ in imports)
    folded = nx.condensation(graph)
    depth = {node: level for level, nodes in enumerate(nx.topological_generations(folded)) for node in nodes}
    levels: dict[int, list[str]] = {}
    for node, level in depth.items():
        levels.setdefault(level, []).extend(sorted(folded.nodes[node]["members"]))
    return [levels[level] for level in sorted(levels)]


def arrows(imports: list[list[str]]) -> list[tuple[str, str]]:
    """The imports between rooms that do not follow from others, and all within a circle."""
    graph = nx.DiGraph((name, used) for name, *uses in imports for used in uses)
    folded = nx.condensation(graph)
    circle = folded.graph["mapping"]
    kept = {(circle[a], circle[b]): (a, b) for a, b in sorted(graph.edges, reverse=True)}
    within = [(a, b) for a, b in graph.edges if circle[a] == circle[b]]
    return sorted([kept[edge] for edge in nx.transitive_reduction(folded).edges] + within)


def draw(found: dict[str, list[list[str]]]) -> Figure:
    """The picture: packages from top to bottom, each knows only those below it."""
    heights = {package: HEAD + ROW * len(rows(imports)) + 1 for package, imports in found.items()}
    figure = Figure(figsize=(10, 0.1 * (sum(heights.values()) + 6 * len(heights))))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-2, WIDTH + 2), ylim=(-sum(heights.values()) - 6 * len(heights) + 5, 1))
    axes.axis("off")
    top = 0.0
    for package, imports in found.items():
        _package(axes, package, imports, top, heights[package])
        top -= heights[package] + 6
        if package != PACKAGES[-1]:
            _arrow(axes, (WIDTH / 2, top + 6), (WIDTH / 2, top), width=3)
    return figure


def _package(axes: Axes, package: str, imports: list[list[str]], top: float, height: float) -> None:
    axes.add_patch(_box((0, top - height), WIDTH, height, FILLS[package]))
    files, lines = size(ROOT / package)
    axes.text(2, top - 3.5, package, size=15, weight="bold", va="center")
    axes.text(WIDTH - 2, top - 3.5, f"{lines:,} lines in {files} files", size=11, va="center", ha="right")
    place, where = {}, rooms(package)
    for level, names in enumerate(rows(imports)):
        for i, name in enumerate(names):
            x, y = WIDTH * (i + 0.5) / len(names), top - HEAD - ROW * level - ROW / 2 + 1.5
            place[name] = (x, y)
            wide = min(17.0, WIDTH / len(names) - 1)
            axes.add_patch(_box((x - wide / 2, y - 2.1), wide, 4.2, "white", zorder=3))
            label = name if where[name].is_dir() else f"{name}.py"
            axes.text(x, y + 0.7, label, size=10, ha="center", va="center", zorder=4)
            axes.text(x, y - 1.1, f"{size(where[name])[1]:,}", size=8, ha="center", va="center", zorder=4)
    for a, b in arrows(imports):
        (x, y), (x2, y2) = place[a], place[b]
        _arrow(axes, (x, y - 2.1), (x2, y2 + 2.1) if y2 < y else (x2, y2 - 2.1), bend=0 if y2 < y else 0.15)


def _box(corner: tuple[float, float], width: float, height: float, fill: str, zorder: int = 1) -> FancyBboxPatch:
    style = "round,pad=0,rounding_size=1"
    return FancyBboxPatch(corner, width, height, boxstyle=style, fc=fill, ec="#5f6368", lw=1, zorder=zorder)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], width: float = 1, bend: float = 0) -> None:
    look: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 8 + 6 * width, "connectionstyle": f"arc3,rad={bend}"}
    axes.add_patch(FancyArrowPatch(start, end, lw=width, color="#5f6368", zorder=2, **look))


def drawn(path: Path = PICTURE) -> Any:
    """The structure that a picture was drawn of."""
    said = re.search(r"<dc:description>(.*?)</dc:description>", path.read_text("utf-8"), re.DOTALL)
    return json.loads(said[1].replace("&quot;", '"')) if said else None


def main() -> None:
    """Write the picture."""
    found = structure()
    about = {"Date": None, "Creator": None, "Title": "The packages of the course", "Description": json.dumps(found)}
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "course", "font.family": "DejaVu Sans"}):
        draw(found).savefig(PICTURE, metadata=about)


if __name__ == "__main__":
    main()
