"""Lesson 06: typical slips in its answers are named; each half of a biLM sees its own side and nothing else."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib import check

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
