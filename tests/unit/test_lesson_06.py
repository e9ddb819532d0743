"""Lesson 06: typical slips in its answers are named; each half of a biLM sees its own side and nothing else."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import yaml
from torch import Tensor

from course_lib import check, data, trace
from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.claims.record import figure
from course_lib.data.world import World
from course_lib.files import read_json
from course_lib.models import elmo
from tests.unit.lessons import answer, cells_of

ROOT = Path(__file__).resolve().parents[2]


def features(x: Tensor, filters: list[Tensor], pool: Any = lambda y: y.max(-1).values, act: Any = torch.relu) -> Tensor:
    return torch.cat([act(pool(F.conv1d(x, weight))) for weight in filters], dim=1)


def features_by_loops(x: Tensor, filters: list[Tensor]) -> Tensor:
    rows = []
    for word in x:
        row = []
        for weight in filters:
            wide = weight.shape[2]
            for one in weight:
                row.append(max(float((word[:, p : p + wide] * one).sum()) for p in range(word.shape[1] - wide + 1)))
        rows.append(row)
    return torch.tensor(rows).clamp(min=0)


def labels(ids: Tensor, lengths: Tensor, none: int = -100, cut: bool = True) -> Tensor:
    found = torch.full((len(ids), 2, ids.shape[1]), none)
    for b, length in enumerate(lengths.tolist()):
        end = length if cut else ids.shape[1]
        found[b, 0, : end - 1] = ids[b, 1:end]
        found[b, 1, 1:end] = ids[b, : end - 1]
    return found


def turn(x: Tensor, lengths: Tensor) -> Tensor:
    place = torch.arange(x.shape[1])
    mirrored = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    return x.gather(1, mirrored[..., None].expand_as(x))


def mix(layers: Tensor, scores: Tensor, gamma: float) -> Tensor:
    return gamma * sum(share * layer for share, layer in zip(scores.softmax(0), layers, strict=True))


def nearest(vectors: Tensor, texts: Tensor, query: int) -> int:
    units = F.normalize(vectors, dim=1)
    cosines = units @ units[query]
    cosines[texts == texts[query]] = -2
    return int(cosines.argmax())


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("char_features", features),
    ("char_features", features_by_loops),
    ("bilm_labels", labels),
    ("turn_rows", turn),
    ("elmo_mix", mix),
    ("elmo_mix", lambda h, s, g: torch.tensordot(g * s.exp() / s.exp().sum(), h, dims=1)),
    ("nearest_use", nearest),
    ("nearest_use", lambda *given: torch.tensor(nearest(*given))),
]
WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("char_features", lambda x, w: features(x, w, act=lambda y: y), "ReLU is missing"),
    ("char_features", lambda x, w: features(x, w, pool=lambda y: y.mean(-1)), "mean over the places"),
    ("char_features", lambda x, w: features(x, w, pool=lambda y: y.relu().mean(-1)), "mean over the places"),
    ("char_features", lambda x, w: features(x, w, pool=lambda y: y.sum(-1)), "added up"),
    ("char_features", lambda x, w: features(x, w, pool=lambda y: y.max(1).values), "over the filters"),
    ("char_features", lambda x, w: features(x, w, pool=lambda y: y[:, :, -1]), "last place"),
    ("char_features", lambda x, w: features(x, w[:1]), "first width"),
    ("char_features", lambda x, w: features(x, w, act=torch.tanh), "Tanh"),
    ("char_features", lambda x, w: torch.cat([F.conv1d(x, f, padding=f.shape[2] - 1).amax(2).relu() for f in w], 1), "padded"),  # noqa: E501
    ("char_features", lambda x, w: features(x, [f.flip(2) for f in w]), "backwards"),
    ("char_features", lambda x, w: features(x.transpose(1, 2), w), "raises RuntimeError"),
    ("bilm_labels", lambda ids, n: labels(ids, n).flip(1), "changed places"),
    ("bilm_labels", lambda ids, n: labels(ids, n)[:, [0, 0]], "predict the next word"),
    ("bilm_labels", lambda ids, n: labels(ids, n)[:, [1, 1]], "predict the word before"),
    ("bilm_labels", lambda ids, n: torch.stack([ids.roll(-1, 1), ids.roll(1, 1)], 1), "wrap round"),
    ("bilm_labels", lambda ids, n: labels(ids, n, cut=False), "Padding is predicted"),
    ("bilm_labels", lambda ids, n: labels(ids, n, none=0), "hold 0"),
    ("bilm_labels", lambda ids, n: labels(ids, n, none=-1), "hold -1"),
    ("bilm_labels", lambda ids, n: labels(ids, n)[:, 0], "shape"),
    ("turn_rows", lambda x, n: x.flip(1), "whole row"),
    ("turn_rows", lambda x, n: x, "nothing is turned"),
    ("turn_rows", lambda x, n: x.flip(0), "dimension 1"),
    ("turn_rows", lambda x, n: x.flip(2), "components"),
    ("turn_rows", lambda x, n: turn(x, n) * (torch.arange(x.shape[1]) < n[:, None])[..., None], "zeros"),
    ("turn_rows", lambda x, n: turn(x, n - 1), "last real place"),
    ("turn_rows", lambda x, n: x.mul_(2), "in place"),
    ("elmo_mix", lambda h, s, g: g * torch.einsum("l,lbtf->btf", s, h), "softmax is missing"),
    ("elmo_mix", lambda h, s, g: mix(h, s, 1.0), "gamma is missing"),
    ("elmo_mix", lambda h, s, g: mix(h, g * s, 1.0), "inside the softmax"),
    ("elmo_mix", lambda h, s, g: mix(h, s, 1.0) + g, "added"),
    ("elmo_mix", lambda h, s, g: g * torch.einsum("l,lbtf->btf", s / s.sum(), h), "divided by their sum"),
    ("elmo_mix", lambda h, s, g: g * torch.einsum("l,lbtf->btf", s.sigmoid(), h), "sigmoid"),
    ("elmo_mix", lambda h, s, g: mix(h, s, g) / len(h), "mean of the weighted"),
    ("elmo_mix", lambda h, s, g: g * h.mean(0), "no part"),
    ("elmo_mix", lambda h, s, g: g * h[-1], "top layer"),
    ("nearest_use", lambda v, t, q: int(F.cosine_similarity(v, v[q][None]).argmax()), "itself: nothing is nearer"),
    ("nearest_use", lambda v, t, q: nearest(v, torch.arange(len(v)), q), "other uses of the same text"),
    ("nearest_use", lambda v, t, q: int((v @ v[q]).masked_fill(t == t[q], -1e9).argmax()), "dot products"),
    ("nearest_use", lambda v, t, q: int((v - v[q]).norm(dim=1).masked_fill(t == t[q], 1e9).argmin()), "distances"),
    ("nearest_use", lambda v, t, q: int(F.cosine_similarity(v, v[q][None]).masked_fill(t == t[q], 2).argmin()), "farthest"),  # noqa: E501
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer"), RIGHT)
def test_the_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    assert getattr(check, name)(answer).passed


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_a_wrong_answer_is_named(name: str, answer: Callable[..., Any], says: str) -> None:
    verdict = getattr(check, name)(answer)
    assert not verdict.passed
    assert says.lower() in verdict.message.lower(), verdict.message


CLAIMS = ("elmo-shallow-bidirectional", "elmo-picks-sense", "elmo-layer-mix", "elmo-improves-baselines")


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    return cells_of("06_elmo")


@pytest.fixture
def lesson(cells: list[Any]) -> dict[str, Any]:
    """A tiny biLM under the lesson's names, and what its cells define by `define`."""
    torch.manual_seed(0)
    config = elmo.ElmoConfig(0, width=3, hidden=8, filters=((1, 4), (2, 4)), length=12, dropout=0.0)
    return {"torch": torch, "F": F, "elmo": elmo, "trace": trace, "re": re, "tiny": elmo.Elmo(config).eval()}


def define(cells: list[Any], space: dict[str, Any], *names: str) -> None:
    for name in names:
        exec(next(cell.source for cell in cells if cell.id == name), space)


@pytest.mark.parametrize("name", sorted({name for name, _ in RIGHT}))
def test_a_folded_answer_passes_its_check(cells: list[Any], name: str) -> None:
    assert getattr(check, name)(answer(cells, name)).passed


def test_every_claim_has_its_place_and_the_papers_figures(cells: list[Any]) -> None:
    text = "\n".join(cell.source for cell in cells)
    paper = read_json(ROOT / "data" / "papers" / "06_elmo.json")
    for name in CLAIMS:
        assert f'<a id="{name}"></a>' in text
        assert f'claims.summary("{name}")' in text
        assert name in paper
    rows = yaml.safe_load((ROOT / "data" / "claims.yaml").read_text(encoding="utf-8"))
    ledger = {row["id"]: row for row in rows if row["lesson"] == "06_elmo"}
    assert set(ledger) == set(CLAIMS)
    assert paper["elmo-improves-baselines"]["rows"] == ledger["elmo-improves-baselines"]["paper"]
    for row in paper["elmo-layer-mix"]["rows"].values():
        assert row["baseline"] < row["top layer"] < row["equal shares"] < row["learned mix"]


def test_the_lessons_loops_are_the_library(cells: list[Any], lesson: dict[str, Any]) -> None:
    define(cells, lesson, "lstm-loop")
    source = next(cell.source for cell in cells if cell.id == "bilm-hand")
    exec(source, lesson)
    words = ["one", "two", "three"]
    spelled = elmo.characters([words], 12)
    tokens = lesson["tiny"].tokens(spelled["ids"])[0]
    for mine, theirs in zip(lesson["bilm_by_hand"](lesson["tiny"], tokens), lesson["tiny"](**spelled), strict=True):
        assert torch.allclose(mine, theirs[0], atol=1e-6)


def test_the_claim_of_two_sides_can_fail(cells: list[Any], lesson: dict[str, Any]) -> None:
    """The lesson's measure finds a model whose second layer reads both halves of the first."""
    define(cells, lesson, "influence")
    source = next(cell.source for cell in cells if cell.id == "one-sided")
    lesson |= {"where": [(depth, half) for depth in (1, 2) for half in (0, 1)]}
    exec(source, lesson)
    words = ["a", "b", "c", "d"]
    assert lesson["one_sided"](lesson["tiny"], words)

    class Leaky(elmo.Elmo):
        def forward(self, ids: Tensor, **given: Any) -> list[Tensor]:
            layers = super().forward(ids, **given)
            left, right = layers[1].chunk(2, dim=-1)
            return [layers[0], layers[1], layers[2] + torch.cat([right, left], dim=-1)]

    leaky = Leaky(lesson["tiny"].config)
    leaky.load_state_dict(lesson["tiny"].state_dict())
    assert not lesson["one_sided"](leaky.eval(), words)


def test_sentences_and_their_labels_stay_together(cells: list[Any]) -> None:
    space: dict[str, Any] = {"elmo": elmo}
    source = next(cell.source for cell in cells if cell.id == "mix-data")
    exec(source, space)
    for document in World(seed=0).documents(40):
        rows = list(space["by_sentence"](document, document["tags"]))
        assert [word for words, _ in rows for word in words] == document["tokens"]
        assert [tag for _, tags in rows for tag in tags] == document["tags"]


def test_the_published_files_and_another_text_come_through(
    cells: list[Any], lesson: dict[str, Any], tmp_path: Path, capsys: Any
) -> None:
    """The lesson's switches to a public checkpoint and text, on local folders."""
    source = next(cell.source for cell in cells if cell.id == "public")
    folder = elmo.save(lesson["tiny"], tmp_path / "public")
    source = source.replace('PUBLIC = ""', f"PUBLIC = {str(folder)!r}")
    lesson |= {"size": lambda model: sum(p.numel() for p in model.parameters()), "use_vectors": lambda model: [model]}
    exec(source, lesson | {"hits": lambda model: torch.tensor([1.0, 0.0])})
    assert "2 layers of width 3 a direction" in capsys.readouterr().out

    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "train.txt").write_text("One line is here. And another one!\n\nToo short.\n", encoding="utf-8")
    count = next(cell.source for cell in cells if cell.id == "hidden-count")
    exec(count[: count.index("held =")], lesson)
    found = lesson["sentences_of"](data.corpus(str(tmp_path / "text"), n=5)["text"])
    assert found == [["One", "line", "is", "here", "."], ["And", "another", "one", "!"]]


def test_the_recorded_claim_is_held_to_its_rule() -> None:
    experiment = find("elmo-shallow-bidirectional")
    assert experiment is not None
    names = [f"{side}, {which} side" for side in ("forward", "backward") for which in ("other", "own")]
    for values, verdict in (((0, 1, 0, 1), "reproduced"), ((0, 1, 1e-9, 1), "not at this scale"), ((0, 0, 0, 1), "not at this scale")):  # fmt: skip  # noqa: E501
        figures = {name: figure([value], exact=True) for name, value in zip(names, values, strict=True)}
        assert experiment.verdict(figures)[0] == verdict
    measured = experiment.measure(Lab(PLANS["smoke"]), 0)
    assert measured["forward, other side"] == measured["backward, other side"] == 0
