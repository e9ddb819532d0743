"""The town's rows in the forms that `course_lib.analysis` reads."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from course_lib.analysis.analogies import AnalogyQuestion

ENDS = (".", "?", "!")
ANALOGY = re.compile(r"(.+) is to (.+) as (.+) is to")


def sentences(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The sentences of documents with their trees, each once.

    Heads count from 0 in the sentence; -1 is its root."""
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        start = 0
        ends = [i + 1 for i, token in enumerate(document["tokens"]) if token in ENDS]
        for end in ends:
            row = {
                name: list(document[name][start:end])
                for name in ("tokens", "tags", "heads", "deprels")
            }
            row["heads"] = [head - start if head >= 0 else -1 for head in row["heads"]]
            found.setdefault(" ".join(row["tokens"]), row)
            start = end
    return list(found.values())


def analogy_questions(rows: Iterable[Mapping[str, Any]]) -> list[AnalogyQuestion]:
    """Rows of the task `analogies` as questions, in lower case."""
    found = []
    for row in rows:
        a, b, c = ANALOGY.findall(row["text"].lower())[0]
        choices = [word.lower() for word in row["choices"]]
        d = choices.pop(row["label"])
        found.append(AnalogyQuestion(a, b, c, d, tuple(choices)))
    return found
