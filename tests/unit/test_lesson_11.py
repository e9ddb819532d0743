"""Lesson 11: typical slips are named, both claims are in it, verdicts follow their rules, other data and models run."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from course_lib import check, claims, view, zoo
from course_lib.files import read_json
from tests.unit.lessons import cells_of

ROOT = Path(__file__).resolve().parents[2]


def between_words(weights: Tensor, words: Any) -> Tensor:
    count = max(w for w in words if w is not None) + 1
    found = torch.zeros(count, count)
    for i in range(count):
        mine = [p for p, w in enumerate(words) if w == i]
        for j in range(count):
            found[i, j] = sum(weights[p, q] for p in mine for q, w in enumerate(words) if w == j) / len(mine)
    return found


def between_words_by_matrix(weights: Tensor, words: Any) -> Tensor:
    belongs = torch.tensor([[w == n for w in words] for n in sorted({w for w in words if w is not None})]).float()
    return torch.diag(1 / belongs.sum(1)) @ belongs @ weights @ belongs.T


def found(attention: Tensor, governors: Any) -> Tensor:
    shares = []
    for weights in attention:
        right, asked = 0, 0
        for word, governor in enumerate(governors):
            if governor >= 0:
                others = [w for w in range(len(governors)) if w != word]
                right += max(others, key=lambda w: weights[word, w].item()) == governor
                asked += 1
        shares.append(right / asked)
    return torch.tensor(shares)


def offset(choose: Any, score: Any) -> tuple[int, float]:
    best = Counter(g - d for d, g in choose).most_common(1)[0][0]
    return best, sum(g - d == best for d, g in score) / len(score)


def control(words: Any, labels: Any, rng: Any) -> list[Any]:
    types = sorted(set(words))
    drawn = torch.randint(len(labels), (len(types),), generator=rng).tolist()
    table = {word: labels[n] for word, n in zip(types, drawn, strict=True)}
    return [table[word] for word in words]


def control_in_order(words: Any, labels: Any, rng: Any) -> list[Any]:
    table: dict[str, Any] = {}
    for word in words:
        if word not in table:
            table[word] = labels[int(torch.randint(len(labels), (1,), generator=rng))]
    return [table[word] for word in words]


def control_from_set(words: Any, labels: Any, rng: Any) -> list[Any]:
    return control(words, sorted(set(labels)), rng)


def anew_each_time(words: Any, labels: Any, rng: Any) -> list[Any]:
    return [labels[n] for n in torch.randint(len(labels), (len(words),), generator=rng).tolist()]


def without_generator(words: Any, labels: Any, rng: Any) -> list[Any]:
    table = {word: random.Random(word).choice(labels) for word in set(words)}
    return [table[word] for word in words]


def four(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[-4:].sum(0), torch.cat([x[-4], x[-3], x[-2], x[-1]], dim=-1)


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("by_words", between_words),
    ("by_words", between_words_by_matrix),
    ("finds_governor", found),
    ("best_offset", offset),
    ("best_offset", lambda a, b: list(offset(a, b))),
    ("control_labels", control),
    ("control_labels", control_in_order),
    ("control_labels", lambda w, y, rng: torch.tensor(control(w, y, rng))),
    ("last_four", four),
    ("last_four", lambda x: [x[-4:].sum(dim=0), x[-4:].transpose(0, 1).flatten(1)]),
]


def _sums(weights: Tensor, words: Any) -> Tensor:
    belongs = torch.tensor([[w == n for w in words] for n in sorted({w for w in words if w is not None})]).float()
    return belongs @ weights @ belongs.T


def _scaled(weights: Tensor, words: Any) -> Tensor:
    rows = between_words(weights, words)
    return rows / rows.sum(-1, keepdim=True)


def _raw_argmax(attention: Tensor, governors: Any, words: Any = None) -> Tensor:
    right = attention.argmax(-1) == torch.tensor(governors)
    return right[:, torch.tensor(governors) >= 0].float().mean(-1)


def _with_root(attention: Tensor, governors: Any) -> Tensor:
    return found(attention, governors) * sum(g >= 0 for g in governors) / len(governors)


def _mean_offset(choose: Any, score: Any) -> tuple[int, float]:
    best = round(sum(g - d for d, g in choose) / len(choose))
    return best, sum(g - d == best for d, g in score) / len(score)


def _turned(choose: Any, score: Any) -> tuple[int, float]:
    best, share = offset(choose, score)
    return -best, share


WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("by_words", _sums, "take their mean"),
    ("by_words", lambda w, n: _sums(w, n) / _sums(torch.eye(len(n)), n).sum(0), "Mean and sum have changed places"),
    ("by_words", lambda w, n: between_words(w, n).T, "other direction"),
    ("by_words", _scaled, "scaled to sum to 1"),
    ("by_words", lambda w, n: w[1:-1, 1:-1], "shape"),
    ("by_words", lambda w, n: w[[n.index(i) for i in range(max(n[1:-1]) + 1)]][
        :, [n.index(i) for i in range(max(n[1:-1]) + 1)]], "first piece"),
    ("finds_governor", _raw_argmax, "rule the diagonal out"),
    ("finds_governor", _with_root, "root is counted"),
    ("finds_governor", lambda a, g: found(a.mT, g), "columns of the matrix"),
    ("finds_governor", lambda a, g: found(a, g).mean(), "one number for all heads"),
    ("finds_governor", lambda a, g: found(a, g) * sum(x >= 0 for x in g), "number of words"),
    ("finds_governor", lambda a, g: torch.stack([a[:, w, x] for w, x in enumerate(g) if x >= 0]).mean(0), "how much"),
    ("best_offset", lambda a, b: offset(b, b), "the very arcs"),
    ("best_offset", lambda a, b: offset(a, a), "second list"),
    ("best_offset", _turned, "sign is turned"),
    ("best_offset", _mean_offset, "mean distance"),
    ("best_offset", lambda a, b: offset(a, b)[0], "offset alone"),
    ("best_offset", lambda a, b: offset(a, b)[::-1], "share comes first"),
    ("control_labels", anew_each_time, "different labels at different places"),
    ("control_labels", control_from_set, "not from the set"),
    ("control_labels", without_generator, "generator=rng"),
    ("control_labels", lambda w, y, rng: y, "own labels"),
    ("control_labels", lambda w, y, rng: [dict(zip(w, y, strict=True))[x] for x in w], ""),
    ("control_labels", lambda w, y, rng: [y[0]] * len(w), "All words have the same label"),
    ("control_labels", lambda w, y, rng: dict(zip(w, control(w, y, rng), strict=True)), "for each of the N places"),
    ("last_four", lambda x: four(x[:4]), "first four"),
    ("last_four", lambda x: four(x[:-1]), "top layer is left out"),
    ("last_four", lambda x: (x.sum(0), torch.cat(list(x), dim=-1)), "all layers"),
    ("last_four", lambda x: (four(x)[0], x[-4:].reshape(x.shape[1], -1)), "mixes numbers of different tokens"),
    ("last_four", lambda x: (four(x)[0], four(x.flip(0)[:4].flip(0).flip(0))[1]), "top layer comes first"),
    ("last_four", lambda x: (four(x)[0] / 4, four(x)[1]), "mean"),
    ("last_four", lambda x: four(x)[::-1], "concatenation comes first"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "right"), RIGHT)
def test_a_right_answer_passes(name: str, right: Callable[..., Any]) -> None:
    verdict = getattr(check, name)(right)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize(("name", "wrong", "says"), WRONG)
def test_a_wrong_answer_is_named(name: str, wrong: Callable[..., Any], says: str) -> None:
    verdict = getattr(check, name)(wrong)
    assert not verdict.passed
    assert says in verdict.message, verdict.message


@pytest.fixture(scope="module")
def paper() -> Any:
    return read_json(ROOT / "data" / "papers" / "11_inside_bert.json")


def test_the_papers_figures_are_those_of_the_ledger(paper: Any) -> None:
    rows = paper["heads-learn-syntax"]["rows"]
    assert [(row["head"], row["score"]) for row in rows.values()] == [("8-10", 86.8), ("8-11", 94.3), ("5-4", 65.1)]


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    return cells_of("11_inside_bert")


def source(cells: list[Any], name: str) -> str:
    return str(next(cell.source for cell in cells if cell.id == name))


def _heads(det: float, obj: float, coreference: float, luck: float = 0) -> dict[str, Any]:
    lost = {"det": luck, "obj": luck}
    return {
        "scores": {
            "trained": {"det": det, "obj": obj},
            "best distance": {"det": 50, "obj": 50},
            "random weights": lost,
        },
        "bars": {"all": {"nearest": 20, "same word": 50, "best head": coreference, "random weights": luck}},
    }


def _layers(embeddings: float, top: float, mixed: float) -> dict[str, Any]:
    means = {"layer 0": embeddings, "layer 1": 70, "layer 2": top, "sum of all": mixed, "last 4, summed": 1}
    return {"means": means, "LAYERS": 2}


VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("heads-verdict", _heads(60, 60, 60), "reproduced"),
    ("heads-verdict", _heads(60, 60, 54), "partly"),
    ("heads-verdict", _heads(54, 50, 60), "partly"),
    ("heads-verdict", _heads(60, 60, 60, luck=58), "not at this scale"),
    ("heads-verdict", _heads(54, 54, 30), "not at this scale"),
    ("layers-verdict", _layers(60, 80, 81), "reproduced"),
    ("layers-verdict", _layers(60, 80, 79), "partly"),
    ("layers-verdict", _layers(71, 80, 81), "partly"),
    ("layers-verdict", _layers(71, 80, 79), "not at this scale"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, cells: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    exec(source(cells, cell), {"claims": claims, **given})
    assert f"this run: {verdict} (" in capsys.readouterr().out


TREEBANK = """1\tThe\t_\tDET\t_\t_\t3\tdet\t_\t_
2\told\t_\tADJ\t_\t_\t3\tamod\t_\t_
3\tdog\t_\tNOUN\t_\t_\t4\tnsubj\t_\t_
4\tsaw\t_\tVERB\t_\t_\t0\troot\t_\t_
5\ta\t_\tDET\t_\t_\t6\tdet\t_\t_
6\tcat\t_\tNOUN\t_\t_\t4\tobj\t_\t_

"""


def test_another_model_and_a_treebank_run(cells: list[Any], tmp_path: Path) -> None:
    """The hub's path of the lesson on local files: a public BERT's folder, a treebank; parsing, controls, parser."""
    _, tokenizer, _ = zoo.load("bert-mini")
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    public = transformers.BertForPreTraining(transformers.BertConfig(vocab_size=tokenizer.vocab.size, **size))
    public.save_pretrained(tmp_path / "model")
    tokenizer.save(tmp_path / "model")
    (tmp_path / "small.conllu").write_text(TREEBANK * 40, "utf-8")
    space: dict[str, Any] = {"SCALE": "smoke", "SEED": 0, "DEVICE": "cpu", "OUT": ""}
    space |= {"DATA": str(tmp_path / "small.conllu"), "view": view}
    other = {'BODY = "bert-mini"': f'BODY = "{tmp_path / "model"}"', "../data/papers": str(ROOT / "data" / "papers")}
    ids = [cell.id for cell in cells if cell.cell_type == "code"]
    parsing = [*ids[ids.index("start") : ids.index("parse")], *ids[ids.index("sets") : ids.index("hits")]]
    parsing += [*ids[ids.index("best") : ids.index("ex-offset-stub")]]
    parsing += [*ids[ids.index("controls") : ids.index("quiz-controls")]]
    parsing += ids[ids.index("parser-data") : ids.index("quiz-parser")]
    for name in parsing:
        code = source(cells, name)
        for old, new in other.items():
            code = code.replace(old, new)
        exec(code, space)
    assert (space["LAYERS"], space["HEADS"]) == (3, 2)
    assert set(space["RELATIONS"]) == {"det", "nsubj", "obj", "amod"}
    assert list(space["untrained"]) == ["random weights"]  # no recipe, no mimetic start
    assert space["scores"]["best distance"]["obj"] == 100
    assert space["found"]["distances"] > 50
