"""Lesson 04: wrong answers are named, its map of words is whole, its figures are data, what it calls exact is exact."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib import check, view
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.models import static

ROOT = Path(__file__).resolve().parents[2]


def pairs(words: list[str], window: int) -> list[tuple[str, str]]:
    places = range(len(words))
    return [(words[i], words[j]) for i in places for j in places if i != j and abs(i - j) <= window]


def loss(v: Tensor, u: Tensor, noise: Tensor, sign: float = -1.0) -> Tensor:
    drawn = torch.einsum("bd,bkd->bk", v, noise)
    return -(F.logsigmoid((v * u).sum(-1)) + F.logsigmoid(sign * drawn).sum(-1)).mean()


def share(weights: Tensor) -> Tensor:
    return weights / weights.sum()


def weigh(x: Tensor) -> Tensor:
    return (x / 100).pow(0.75).clamp(max=1)


def difference(w: Tensor, c: Tensor, b: Tensor, d: Tensor, x: Tensor) -> Tensor:
    return (w * c).sum(-1) + b + d - x.log()


def solve(vectors: Tensor, a: int, b: int, c: int, out: str = "abc", turned: bool = False) -> int:
    units = F.normalize(vectors, dim=-1)
    cosines = F.cosine_similarity(units, (units[a] - units[b] if turned else units[b] - units[a]) + units[c])
    cosines[[{"a": a, "b": b, "c": c}[name] for name in out]] = -2
    return int(cosines.argmax())


RIGHT: dict[str, Callable[..., Any]] = {
    "context_pairs": lambda words, window: [list(pair) for pair in pairs(words, window)],
    "negative_loss": loss,
    "noise_distribution": lambda counts: share(counts.double() ** 0.75).float(),
    "glove_loss": lambda *given: (weigh(given[-1]) * difference(*given) ** 2).sum(),
    "analogy": lambda *given: torch.tensor(solve(*given)),
}
WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("context_pairs", lambda words, n: [(a, b) for a, b in pairs(words, n) if a != b], "comes twice"),
    ("context_pairs", lambda words, n: sorted([*pairs(words, n), *((w, w) for w in words)]), "It should return"),
    ("context_pairs", lambda words, n: [(b, a) for a, b in pairs(words, n)], "turned round"),
    ("context_pairs", lambda words, n: [(w, v) for i, w in enumerate(words) for v in words[i + 1 : i + n + 1]], "only the words after"),  # noqa: E501
    ("context_pairs", lambda words, n: [(w, v) for i, w in enumerate(words) for v in words[max(0, i - n) : i]], "only the words before"),  # noqa: E501
    ("context_pairs", lambda words, n: [(w, v) for i, w in enumerate(words) for v in words[max(0, i - n) : i + n + 1]], "itself"),  # noqa: E501
    ("context_pairs", lambda words, n: [(words[i], words[j]) for i in range(len(words)) for j in range(max(0, i - n), min(len(words), i + n)) if i != j], "off by one"),  # noqa: E501
    ("context_pairs", lambda words, n: [(words[i], words[i + o]) for i in range(len(words)) for o in range(-n, n + 1) if o and i + o < len(words)], "wraps round"),  # noqa: E501
    ("context_pairs", lambda words, n: [p for i in range(n, len(words) - n) for p in pairs(words, n) if p[0] == words[i]], ""),  # noqa: E501
    ("negative_loss", lambda v, u, noise: loss(v, u, noise, 1.0), "sign of the seen"),
    ("negative_loss", lambda v, u, noise: loss(-v, u, noise), "two signs"),
    ("negative_loss", lambda v, u, noise: -loss(v, u, noise), "minus sign"),
    ("negative_loss", lambda v, u, noise: loss(v, u, noise) * len(v), "added up"),
    ("negative_loss", lambda v, u, noise: loss(v, u, noise[:, :0]), "left out"),
    ("negative_loss", lambda v, u, noise: -(F.logsigmoid((v * u).sum(-1)) + F.logsigmoid(-torch.einsum("bd,bkd->bk", v, noise)).mean(-1)).mean(), "averaged"),  # noqa: E501
    ("negative_loss", lambda v, u, noise: -torch.einsum("bd,bkd->bk", v, torch.cat([u[:, None], noise], 1)).log_softmax(-1)[:, 0].mean(), "softmax"),  # noqa: E501
    ("negative_loss", lambda v, u, noise: -((v * u).sum(-1).sigmoid() + (-torch.einsum("bd,bkd->bk", v, noise)).sigmoid().sum(-1)).mean(), "logarithm"),  # noqa: E501
    ("noise_distribution", lambda counts: share(counts.float()), "power is missing"),
    ("noise_distribution", lambda counts: counts.float() ** 0.75, "divided by their sum"),
    ("noise_distribution", lambda counts: share(counts.float()) ** 0.75, "divided by their sum again"),
    ("noise_distribution", lambda counts: (counts.float() ** 0.75).softmax(0), "softmax of the powers"),
    ("noise_distribution", lambda counts: share(counts.float() ** (4 / 3)), "1 / 0.75"),
    ("noise_distribution", lambda counts: share(counts.float() ** -0.75), "negative"),
    ("glove_loss", lambda *given: difference(*given).square().sum(), "weighting"),
    ("glove_loss", lambda *given: ((given[-1] / 100) ** 0.75 * difference(*given) ** 2).sum(), "clamp"),
    ("glove_loss", lambda *given: (weigh(given[-1]) * difference(*given)).square().sum(), "inside the square"),
    ("glove_loss", lambda *given: (weigh(given[-1]) * difference(*given).square()).mean(), "mean"),
    ("glove_loss", lambda w, c, b, d, x: (weigh(x) * difference(w, c, 0 * b, 0 * d, x) ** 2).sum(), "biases"),
    ("glove_loss", lambda w, c, b, d, x: (weigh(x) * ((w * c).sum(-1) + b + d - x) ** 2).sum(), "logarithm"),
    ("glove_loss", lambda w, c, b, d, x: (weigh(x) * difference(w, c, b, d, x + 1) ** 2).sum(), "log(1 + x)"),
    ("analogy", lambda *given: solve(*given, out=""), "may be answers"),
    ("analogy", lambda *given: solve(*given, out="c"), "Only c"),
    ("analogy", lambda *given: solve(*given, out="bc"), "Only b and c"),
    ("analogy", lambda *given: solve(*given, turned=True), "turned round"),
    ("analogy", lambda v, a, b, c: solve(v, c, b, a), "b + a - c"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer"), RIGHT.items())
def test_the_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    assert getattr(check, name)(answer).passed


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_a_wrong_answer_is_named(name: str, answer: Callable[..., Any], says: str) -> None:
    verdict = getattr(check, name)(answer)
    assert not verdict.passed
    assert says.lower() in verdict.message.lower()


def test_lengths_cannot_change_an_analogy() -> None:
    """Only directions count, so an answer by cosines of the given vectors and one by unit vectors are both right."""
    assert check.analogy(lambda v, a, b, c: solve(v * 3, a, b, c)).passed


def test_a_map_of_words_is_whole_without_its_script() -> None:
    shown = view.word_map(torch.eye(3)[:, :2], ["bank", "<b>", "river"], {"bank": [("river", 0.5), ("money", 0.25)]})
    assert "&lt;b&gt;" in shown.html
    assert "river 0.50, money 0.25" in shown.html
    assert "river 0.50, money 0.25" in shown.text


@pytest.mark.parametrize(
    ("points", "near", "says"),
    [
        (torch.zeros(3, 3), {"a": []}, "a point [2] for each of the 3 words"),
        (torch.zeros(3, 2), {"d": []}, "'d' can be chosen"),
        (torch.zeros(3, 2), {}, "near is empty"),
    ],
)
def test_a_map_that_cannot_be_drawn(points: Tensor, near: dict[str, Any], says: str) -> None:
    with pytest.raises(CourseError) as error:
        view.word_map(points, ["a", "b", "c"], near)
    assert says in str(error.value)


@pytest.mark.parametrize("kind", ["skip-gram", "cbow"])
def test_the_loss_begins_at_one_bit_a_question(kind: Any) -> None:
    """The output vectors begin at zero, so every one of the 1 + K questions is answered by a coin."""
    text = static.count([["a", "b", "c", "a", "c"]], least=1)
    model = static.Word2Vec(text, static.Word2VecConfig(kind, size=3, negative=2))
    contexts = torch.tensor([[1, 3], [0, 2]])  # 3: no word
    drawn = torch.tensor([[1, 2], [0, 2]])
    terms = model.step(torch.tensor([0, 1]), contexts, drawn, 0.1)
    questions = torch.tensor([3.0, 6.0 if kind == "skip-gram" else 3.0])
    torch.testing.assert_close(terms, questions * torch.log(torch.tensor(2.0)))


def test_the_lesson_holds_its_claim_and_the_papers_figures() -> None:
    cells = nbformat.read(ROOT / "notebooks" / "04_word_embeddings.ipynb", as_version=4).cells
    text = "\n".join(cell.source for cell in cells)
    assert '<a id="static-mixes-senses"></a>' in text
    paper = read_json(ROOT / "data" / "papers" / "04_word_embeddings.json")
    rows = paper["static-mixes-senses"]["rows"]
    assert min(rows.values()) == rows["one vector per word (chance)"] == 50
    table = paper["analogies-glove"]["rows"]
    assert max(table, key=lambda name: table[name]["total"]) == "GloVe"


def test_a_folded_answer_passes_its_check() -> None:
    import re

    cells = nbformat.read(ROOT / "notebooks" / "04_word_embeddings.ipynb", as_version=4).cells
    folded = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    answers = re.findall(r"<summary>Answer</summary>\s*```python\n(.*?)```", folded, re.DOTALL)
    space: dict[str, Any] = {"torch": torch, "F": F}
    for answer in answers:
        exec(answer, space)
    assert len(answers) == len(RIGHT)
    for name in RIGHT:
        assert getattr(check, name)(space[name]).passed, name
