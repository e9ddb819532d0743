"""A widget's engine asked in node, for the tests that compare it with Python."""

import json
import shutil
import subprocess
from typing import Any

import pytest

from course_lib.view.html import minify


def said_by_node(engine: str, data: dict[str, Any], expression: str) -> Any:
    """The value of a JavaScript expression behind the engine and its data; skips where there is no node."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node here")
    script = f"var data={json.dumps(data)};{minify(engine)};console.log(JSON.stringify({expression}))"
    ran = subprocess.run([node, "-"], input=script, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)
