"""The papers' figures: the ledger has those of papers.json, what can be counted agrees, answers are
the library's.

What claims of the kinds `exact` and `computed` say is computed again by tests/lab.
"""

import inspect
import json
import re
from collections import Counter
from functools import partial
from typing import Any

import pytest
import tokenizers
import torch
from rouge_score.rouge_scorer import RougeScorer
from tokenizers import models, pre_tokenizers, trainers

from classroom import checks, course
from classroom.records import ledger
from course_lib import objectives
from course_lib.analysis import cost
from course_lib.families import preset, transformer_lm
from course_lib.families.albert import albert
from course_lib.families.bert import bert
from course_lib.families.gpt import GPT3_SIZES
from course_lib.model import heads
from course_lib.model.config import StackConfig
from course_lib.model.transformer import Transformer
from course_lib.objectives import distillation

PAPERS = {name: course.papers(name) for name in course.names()}
CLAIMS = ledger.read()
BOTH = [
    (lesson, name)
    for lesson, some in PAPERS.items()
    for name in some
    if name in CLAIMS and CLAIMS[name].lesson == lesson and CLAIMS[name].paper
]
LABELS = ("columns", "params")
SPELT = {"gpt3-table"}  # 0.5M, 6.0e-4: see below


def numbers(value: Any) -> Counter[float]:
    """How often each number stands in a value; those in names and labels are none."""
    if isinstance(value, dict):
        value = [part for name, part in value.items() if name not in LABELS]
    if isinstance(value, list):
        return sum(map(numbers, value), Counter())
    return Counter(
        float(found) for found in re.findall(r"\d+(?:\.\d+)?", str(value).replace(",", ""))
    )


@pytest.mark.parametrize(("lesson", "name"), [both for both in BOTH if both[1] not in SPELT])
def test_the_ledgers_figures_are_those_of_the_papers(lesson: str, name: str) -> None:
    assert not numbers(CLAIMS[name].paper) - numbers(PAPERS[lesson][name])


def rows(lesson: str, name: str) -> Any:
    return PAPERS[lesson][name]["rows"]


def counted() -> Any:
    """A paper's count in millions, how far off it may be rounded, and the model."""
    for name, row in rows("02_transformer", "sizes").items():
        yield row["millions"], 0.04, partial(transformer_lm, preset(f"transformer-{name}"))
    for name, millions in rows("12_roberta", "albert").items():
        yield millions, 0.06, lambda name=name: heads.Pooled(Transformer(preset(name.lower())))
    millions = rows("13_distilbert", "distilbert")["DistilBERT"]["parameters (millions)"]
    yield millions, 0.02, preset("distilbert-base")
    for name in ("ELECTRA-Small", "ELECTRA-Base"):
        yield rows("14_electra", "small")[name]["millions"], 0.05, preset(name.lower())


@pytest.mark.parametrize(("millions", "share", "model"), list(counted()))
def test_the_models_have_the_papers_size(millions: float, share: float, model: Any) -> None:
    assert cost.parameters(model) / 1e6 == pytest.approx(millions, rel=share)


def test_the_tables_are_the_librarys() -> None:
    for name, row in GPT3_SIZES.items():
        printed = [
            row.parameters,
            row.layers,
            row.width,
            row.heads,
            row.head_width,
            row.batch,
            row.lr,
        ]
        assert rows("19_gpt3", "gpt3-table")[name] == printed
    temperature = inspect.signature(distillation.soft_loss).parameters["temperature"].default
    weights = PAPERS["13_distilbert"]["distilbert"]["weights in the code"]
    assert distillation.distilbert.__kwdefaults__ | {"temperature": temperature} == weights


def test_gpt3s_energy_follows_from_its_operations() -> None:
    known = PAPERS["21_choosing"]["energy"]["GPT-3"]
    on = cost.Accelerator("measured", known["measured rate"], 32e9, known["watts"])
    bill = cost.bill(
        known["flops"], on, utilisation=1.0, overhead=known["overhead"], grid=known["grid"]
    )
    assert bill.kwh / 1e3 == pytest.approx(known["MWh"], rel=0.01)
    assert bill.kg_co2 / 1e3 == pytest.approx(known["tonnes of CO2"], rel=0.01)


def answer(name: str, *arguments: Any) -> Any:
    """What the right answer of an exercise gives."""
    return checks.exercises()[name].reference(*arguments)


@pytest.mark.parametrize(("embed", "shared"), [(32, False), (8, False), (8, True)])
def test_the_counted_weights_are_the_models(embed: int, shared: bool) -> None:
    config = bert(70, width=32, layers=3, heads=2)
    if embed != 32:
        config = albert(70, width=32, layers=3, heads=2, embed=embed)
        config = StackConfig(**{**config.__dict__, "shared": shared})
    names = dict(Transformer(config).named_parameters())
    matrices = [
        p for n, p in names.items() if p.dim() == 2 and "position" not in n and "segm" not in n
    ]
    table = 70 * embed + (embed * 32 if embed != 32 else 0)
    blocks = (1 if shared else 3) * 12 * 32**2  # attention 4 D^2, feed-forward 8 D^2
    assert sum(p.numel() for p in matrices) == table + blocks


def test_answers_are_the_librarys() -> None:
    ids, spans = torch.arange(5, 15), [(1, 3), (5, 0), (7, 2)]
    assert torch.equal(answer("infill", ids, spans, 4), objectives.infill(ids, spans, 4))
    said, right = ["the", "old", "lamp", "is", "old"], ["the", "lamp", "is", "old", "now"]
    for n in (1, 2):
        theirs = (
            RougeScorer([f"rouge{n}"]).score(" ".join(right), " ".join(said))[f"rouge{n}"].fmeasure
        )
        assert answer("rouge_n", said, right, n) == pytest.approx(theirs)


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("mask_tokens", lambda ids, rng, vocab: objectives.mask_tokens(ids, rng, vocab=vocab)),
    ],
)
def test_the_librarys_own_form_passes(name: str, fn: Any) -> None:
    verdict = checks.exercises()[name](fn)
    assert verdict.passed and "padding" not in verdict.message


def test_merges_by_hand_are_the_librarys_ties_included() -> None:
    best = checks.exercises()["best_pair"].reference
    counts = {
        "Ġbake": 6,
        "Ġbaker": 5,
        "Ġbakes": 3,
        "Ġbaking": 8,
        "Ġmake": 9,
        "Ġmaker": 2,
        "Ġwaking": 4,
        "Ġtaken": 4,
    }
    words: Any = {tuple(word): n for word, n in counts.items()}
    rank = {letter: i for i, letter in enumerate(sorted(set("".join(counts))))}
    merges, letters = [], len(rank)
    for _ in range(12):
        merges.append(best(words, rank))
        rank.setdefault("".join(merges[-1]), len(rank))
        numbers = {pair: number for number, pair in enumerate(merges)}
        words = {tuple(answer("bpe_encode", word, numbers)): n for word, n in counts.items()}
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    text = [" ".join(word for word, n in counts.items() for _ in range(n))]
    library.train_from_iterator(
        text, trainers.BpeTrainer(vocab_size=letters + 12, show_progress=False)
    )
    assert [tuple(pair) for pair in json.loads(library.to_str())["model"]["merges"]] == merges
    tokens = answer("bpe_encode", "Ġshaken", numbers)
    # the library drops the h, which it has not learned
    assert library.encode("Ġshaken").tokens == [token for token in tokens if token != "h"]
