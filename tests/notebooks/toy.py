"""A small notebook that has everything the tools must handle, made fresh for each test; it needs no torch."""

from pathlib import Path

import nbformat
from nbformat import NotebookNode, v4

OPENING = """# A lesson about numbers

| | |
|---|---|
| **You will be able to** | square a number |
| **You need first** | numbers |
| **Time to read** | a minute |
| **Time to run** | seconds |
"""
FIGURE = """
import matplotlib.pyplot as plt
from IPython.display import HTML, display
fig, ax = plt.subplots(figsize=(2, 1.5))
ax.plot([1, 4, 9])
display(fig, metadata={"image/png": {"alt": "A line that rises faster and faster"}})
plt.close(fig)
display(HTML("<p>The squares of one, two and three.</p>"))
"""
EXERCISE = """### Exercise {n} · Again

`difficulty ●○○ · importance ●●○ · about {n} minutes`
"""
HELP = """<details><summary>Hint 1</summary>one</details>
<details><summary>Hint 2</summary>two</details>
<details><summary>Answer</summary>three</details>"""
LIVE = """
from IPython.display import clear_output
handle = display("step 1", display_id=True)
handle.update("step 2")
print("seen for a moment")
clear_output(wait=True)
print("seen in the end")
"""
NETWORK = """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5).close()
    print("there is a network")
except OSError as error:
    print("cut" if error.errno == 101 else error)
"""
NAMES = """
import types
check = types.SimpleNamespace(square=lambda f: print("not written yet"))
view = types.SimpleNamespace(quiz=lambda *_: print("a question"))
"""


def code(source: str, *tags: str) -> NotebookNode:
    return v4.new_code_cell(source.strip("\n"), metadata={"tags": list(tags)} if tags else {})


def cells() -> list[NotebookNode]:
    say = v4.new_markdown_cell
    exercises = []
    for n in (1, 2, 3):
        exercises += [
            say(EXERCISE.format(n=n)),
            code("def square(x):\n    ...", "exercise"),
            code("check.square(square)"),
        ]
        exercises += [say(HELP), code("view.quiz('?')")]
    return [
        say(OPENING),
        code('SCALE = "lesson"\nSEED = 0\nDEVICE = "auto"\nDATA = "world"\nOUT = ""', "parameters"),
        say("With $\\mathrm{softmax}(x)_i = e^{x_i} / \\sum_j e^{x_j}$ we begin."),
        code(NAMES),
        say("Numbers that are always the same, and the scale."),
        code("print(SCALE, 'sum', sum(range(10)), 'mean', 0.123456 + SEED)"),
        say("Numbers from a training, nearly the same."),
        code("print('loss', 2.3456)", "loose"),
        say("Times, never the same."),
        code("import time\nprint(f'took {time.perf_counter_ns() % 10**6} ns')", "timing"),
        say("A picture."),
        code(FIGURE),
        say("A live output, an address, the network."),
        code(LIVE),
        code("object()"),
        code(NETWORK),
        *exercises,
        say("## What to remember\n\nThat.\n\n## Read on\n\nThere."),
    ]


def write(path: Path, made: list[NotebookNode] | None = None) -> Path:
    """Write the notebook, not executed."""
    notebook = v4.new_notebook(cells=cells() if made is None else made)
    for i, cell in enumerate(notebook.cells):
        cell.id = f"cell-{i}"
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path
