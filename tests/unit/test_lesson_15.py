"""Lesson 15: typical slips in its answers are named, its verdicts follow their rules, other bodies and texts run."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers

from course_lib import check, claims, metrics, zoo
from course_lib.claims import ledger
from course_lib.files import read_json
from course_lib.models import sentence
from tests.unit.lessons import ROOT, answer, cells_of, right_and_wrong, run_cell

CELLS = cells_of("15_sbert")

# The folded answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("mean_pool", ("(x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)", "x.mean(1)"), "padding is in the mean"),
    ("mean_pool", (".sum(1) / keep.sum(1, keepdim=True)", ".mean(1)"), "counted in the divisor"),
    ("mean_pool", ("(x * keep[..., None])", "x"), "padding is in the sum"),
    ("mean_pool", (" / keep.sum(1, keepdim=True)", ""), "the sum of the real tokens"),
    ("mean_pool", ("(x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)", "x[:, 0]"), "CLS"),
    ("mean_pool", ("(x * keep[..., None])", "(x * ~keep[..., None])", "/ keep", "/ (~keep)"), "wrong way round"),
    ("mean_pool", ("(x * keep[..., None]).sum(1) / keep.sum(1, keepdim=True)", "x[keep].mean(0)"), "whole batch"),
    ("triplet_loss", ("F.relu(near - far + margin)", "(near - far + margin)"), "Without max"),
    ("triplet_loss", ("F.relu(near - far + margin).mean()", "F.relu((near - far + margin).mean())"), "of the batch's"),
    ("triplet_loss", ("near - far", "far - near"), "exchanged"),
    ("triplet_loss", ("near - far", "near**2 - far**2"), "squared"),
    ("triplet_loss", (" + margin", ""), "margin is missing"),
    ("triplet_loss", (" + margin", " - margin"), "margin is subtracted"),
    ("triplet_loss", (".mean()", ".sum()"), "added up"),
    ("triplet_loss", (".mean()", ""), "One loss for the batch"),
    ("triplet_loss", ("far = (anchor", "far = (positive"), "from the anchor"),
    ("in_batch_loss", ("F.normalize(queries, dim=-1) @ F.normalize(texts, dim=-1).T", "queries @ texts.T"), "length 1"),
    ("in_batch_loss", ("scale * cosines", "cosines"), "scale is missing"),
    ("in_batch_loss", ("scale * cosines", "cosines / scale"), "divided by the scale"),
    ("in_batch_loss", ("scale * cosines", "scale * cosines.T"), "over the queries"),
    ("in_batch_loss", ("torch.arange(len(queries))", "torch.zeros(len(queries)).long()"), "always the first"),
    ("in_batch_loss", ("len(queries))", "len(queries)), reduction='sum'"), "added up"),
    ("in_batch_loss", ("F.normalize(texts", "F.normalize(queries"), "with each other"),
    ("in_batch_loss", ("scale * cosines", "(scale * cosines).softmax(-1)"), "takes one itself"),
    ("bm25_weight", ("return idf * count", "return count"), "idf is missing"),
    ("bm25_weight", ("math.log(1 + ", "math.log("), "1 + inside"),
    ("bm25_weight", ("math.log(1 + (n - holding + 0.5) / (holding + 0.5))", "math.log(n / holding)"), "TF-IDF's"),
    ("bm25_weight", ("(count + k1 * ", "(k1 * "), "not saturated"),
    ("bm25_weight", (" / (count + k1 * (1 - b + b * length / mean_length))", ""), "TF-IDF"),
    ("bm25_weight", (" * (1 - b + b * length / mean_length)", ""), "length is missing"),
    ("bm25_weight", ("length / mean_length", "mean_length / length"), "upside down"),
    ("bm25_weight", ("1 - b + b *", "b + (1 - b) *"), "exchanged"),
    ("bm25_weight", ("idf * count /", "idf * count * (k1 + 1) /"), "k1 + 1"),
    ("fuse_ranks", ("(k + rank)", "rank"), "k is missing"),
    ("fuse_ranks", ("start=1", "start=0"), "counted from 1"),
    ("fuse_ranks", ("-worth[passage], passage)", "worth[passage], -passage)"), "worst stand"),
    ("fuse_ranks", ("worth.get(passage, 0) + 1 / (k + rank)", "max(worth.get(passage, 0), 1 / (k + rank))"), "best"),
    ("fuse_ranks", ("+ 1 / (k + rank)", "+ rank", "-worth[passage], passage)", "worth[passage], passage)"), "ranks"),
    ("fuse_ranks", ("sorted(worth, key=lambda passage: (-worth[passage], passage))", "rankings[0]"), "first ranking"),
    ("fuse_ranks", ("sorted(worth", "sorted((p for p in worth if all(p in r for r in rankings))"), "is lost"),
]  # fmt: skip

RIGHT, WRONG = right_and_wrong(CELLS, SLIPS)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("mean_pool", lambda x, keep: torch.stack([row[k].mean(0) for row, k in zip(x, keep, strict=True)])),
        ("triplet_loss", sentence.triplet_loss),
        ("in_batch_loss", lambda q, t, scale: sentence.ranking_loss(torch.stack([q, t], 1), scale)),
        ("in_batch_loss", lambda q, t, s: -(s * F.cosine_similarity(q[:, None], t, -1)).log_softmax(-1).diag().mean()),
    ],
)
def test_another_right_answer_passes(name: str, other: Callable[..., Any]) -> None:
    assert getattr(check, name)(other).passed


def test_the_papers_figures_are_those_of_the_ledger() -> None:
    paper = read_json(ROOT / "data" / "papers" / "15_sbert.json")["sbert-pooling"]
    assert {"columns": paper["columns"], **paper["rows"]} == ledger.claim("sbert-pooling").paper
    for row in paper["rows"].values():
        assert sum(row[:-1]) / 7 == pytest.approx(row[-1], abs=0.04)  # the base model's is printed 0.03 too high


def _noisy(noise: dict[str, float]) -> dict[str, Any]:
    """Grades, and each system's cosines: the grades with so much noise."""
    draw = torch.Generator().manual_seed(0)
    grades = [float(i % 6) for i in range(600)]
    said = {n: [g + s * torch.randn((), generator=draw).item() for g in grades] for n, s in noise.items()}
    return {"grades": grades, "said": said, "metrics": metrics, "claims": claims}


@pytest.mark.parametrize(
    ("glove", "bert", "cls", "ours", "verdict"),
    [
        (2.0, 4.0, 9.0, 0.5, "reproduced"),
        (4.0, 2.0, 9.0, 0.5, "partly"),
        (2.0, 4.0, 9.0, 2.02, "partly"),
        (9.0, 4.0, 4.05, 9.0, "not at this scale"),
    ],
)
def test_the_pooling_verdict_follows_its_rule(
    glove: float, bert: float, cls: float, ours: float, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from statistics import stdev

    space = _noisy({"avg glove": glove, "avg BERT": bert, "BERT CLS": cls, "S-BERT softmax": ours})
    run = SimpleNamespace(generator=lambda offset=0: torch.Generator().manual_seed(offset))
    space |= {"run": run, "torch": torch, "stdev": stdev}
    space["sts"] = lambda cosines: 100 * metrics.spearman(cosines, space["grades"])
    run_cell(CELLS, "pooling-ahead", space)
    run_cell(CELLS, "pooling-verdict", space)
    assert f"sbert-pooling, this run: {verdict} (" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ours", "hybrid", "words", "verdict"),
    [
        (2, 1, 0, "reproduced"),  # places; 0: not found
        (2, 2, 0, "partly"),
        (0, 0, 0, "not at this scale"),
        (2, 3, 1, "not at this scale"),
        (3, 1, 2, "partly"),
    ],
)
def test_the_retrieval_verdict_follows_its_rule(
    ours: int, hybrid: int, words: int, verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from statistics import mean, stdev

    def at(place: int) -> list[int]:
        return [9] * (place - 1) + [7] if place else []

    queries = [SimpleNamespace(kind="other words", text="x", answers={7}) for _ in range(30)]
    wobble = [at(0)] + [at(1)]  # so that no difference is without spread
    found = {name: [at(words)] * 28 + wobble for name in ("BM25", "TF-IDF", "avg word2vec", "avg glove")}
    found |= {"S-BERT": [at(ours)] * 28 + wobble[::-1], "hybrid": [at(hybrid)] * 28 + wobble}
    found = {name: [list(dict.fromkeys(places)) for places in rankings] for name, rankings in found.items()}
    space: dict[str, Any] = {
        "KINDS": ["other words"], "shelf": SimpleNamespace(queries=queries), "found": found, "metrics": metrics,
        "mean": mean, "stdev": stdev, "claims": claims, "words_of": str.split,
        "static": {"word2vec": SimpleNamespace(numbers={})},
    }  # fmt: skip
    run_cell(CELLS, "retrieval-verdict", space)
    run_cell(CELLS, "retrieval-says", space)
    assert f"dense-retrieval, this run: {verdict} (" in capsys.readouterr().out


def test_the_triplet_verdict_sees_a_wrong_loss(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = SimpleNamespace(generator=lambda offset=0: torch.Generator().manual_seed(offset))
    space: dict[str, Any] = {"run": run, "torch": torch, "sentence": sentence, "claims": claims}
    for loss, verdict in (
        (sentence.triplet_loss, "reproduced"),
        (answer(CELLS, "triplet_loss", "F.relu(near", "(near"), "not reproduced"),
        (answer(CELLS, "triplet_loss", "near - far", "near**2 - far**2"), "not reproduced"),
    ):
        monkeypatch.setattr(sentence, "triplet_loss", loss)
        run_cell(CELLS, "triplet-run", space)
        run_cell(CELLS, "triplet-verdict", space)
        assert f"sbert-triplet, this run: {verdict}\n" in capsys.readouterr().out


STUBS = [cell.id for cell in CELLS if cell.id.startswith("ex-")]


def _run(space: dict[str, Any], swap: dict[str, str], until: str = "") -> dict[str, Any]:
    """All cells but the exercises, in a row."""
    ids = [cell.id for cell in CELLS if cell.cell_type == "code" and cell.id not in (*STUBS, "parameters")]
    for name in ids[: ids.index(until) + 1] if until else ids:
        source = str(next(cell.source for cell in CELLS if cell.id == name))
        for old, new in swap.items():
            source = source.replace(old, new)
        exec(source, space)
    return space


def test_another_body_pairs_and_texts_run(tmp_path: Path) -> None:
    """The hub's path of the lesson on local folders: a public BERT, graded pairs, a corpus."""
    _, tokenizer, _ = zoo.load("bert-mini")
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    torch.manual_seed(0)
    public = transformers.BertForPreTraining(transformers.BertConfig(vocab_size=tokenizer.vocab.size, **size))
    public.save_pretrained(tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    for folder in ("pairs", "texts"):
        (tmp_path / folder).mkdir()
    for split in ("train", "test"):
        rows = [f"the lamp of {i} fell\tthe lamp of {i * 7 % 40} rose\t{i % 6}.0" for i in range(40)]
        (tmp_path / "pairs" / f"{split.replace('test', 'dev')}.tsv").write_text(
            "\n".join(["text\tpair\tlabel", *rows]) + "\n", "utf-8"
        )
        texts = [
            f"Title {split} {i}. The {'old ' * (i % 7)} mill number {i} stands by the river of {i}, " * 2
            for i in range(30)
        ]
        (tmp_path / "texts" / f"{split}.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in texts), "utf-8")
    space: dict[str, Any] = {"SCALE": "smoke", "SEED": 0, "DEVICE": "cpu", "OUT": str(tmp_path / "out")}
    space["DATA"] = str(tmp_path / "texts")
    swap = {'"bert-mini", "world/similarity"': f'"{tmp_path / "model"}", "{tmp_path / "pairs"}"', '"docs"': "DATA"}
    _run(space, swap)
    assert space["body"].config.width == 32
    assert len(space["grades"]) == 40
    assert space["KINDS"] == ["first sentence"]
    assert space["LR"] == 2e-5
    assert all(query.text.startswith("Title test") for query in space["shelf"].queries)


def test_the_shipped_encoder_joins(capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"zoo": zoo, "systems": {}, "said": {}, "SentenceEncoder": sentence.SentenceEncoder}
    space |= {"run": SimpleNamespace(device="cpu"), "cosines_of": lambda embedder: [float(len(embedder.embed(["a"])))]}
    run_cell(CELLS, "pooling-shipped", space)
    assert space["said"] == {"sbert-mini": [1.0]}
    assert "3,000 steps" in capsys.readouterr().out
