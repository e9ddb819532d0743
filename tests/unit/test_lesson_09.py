"""Lesson 09: typical slips in its answers are named, and what it says it counts and claims is there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from course_lib import check, corrupt, heads
from course_lib.files import read_json
from course_lib.models.bert import bert_base, bert_large
from course_lib.stack import Stack
from course_lib.tokenizers import Vocab
from tests.unit.lessons import cells_of, right_and_wrong

ROOT = Path(__file__).resolve().parents[2]
Documents = list[list[str]]


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    return cells_of("09_bert")


@pytest.fixture(scope="module")
def paper() -> Any:
    return read_json(ROOT / "data" / "papers" / "09_bert.json")


# The folded answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("bert_input", ("* (len(a) + 2)", "* (len(a) + 1)", "* (len(b) + 1)", "* (len(b) + 2)"), "first [SEP]"),
    ("bert_input", ("*b, sep]", "*b]", "* (len(b) + 1)", "* len(b)"), "end is missing"),
    ("bert_input", ("[1] *", "[0] *"), "All segments are 0"),
    ("mask_tokens", (" & ~special", ""), "Special tokens"),
    ("mask_tokens", ("torch.where(at, ids, -100)", "torch.where(at, inputs, -100)"), "corrupted tokens"),
    ("mask_tokens", ("torch.where(at, ids, -100)", "torch.where(inputs != ids, ids, -100)"), "kept ones"),
    ("mask_tokens", ("fate < 0.9", "fate < 1.0"), "stays as it is"),
    ("mask_tokens", ("fate < 0.9", "fate < 0.82"), "10% of the 20%"),
    ("mask_tokens", ("torch.rand(ids.shape, generator=rng) < 0.15", "torch.rand(ids.shape) < 0.15"), "generator=rng"),
    ("mlm_loss", ("(logits[at], ids[at])", "(logits.flatten(0, 1), ids.flatten())"), "all tokens"),
    ("mlm_loss", ("(logits[at], ids[at])", "(logits[~at], ids[~at])"), "other way round"),
    ("mlm_loss", ("ids[at])", 'ids[at], reduction="sum")'), "sum"),
    ("nsp_pairs", ("1 + draw(len(documents) - 1)", "draw(1)"), "same document"),
    ("nsp_pairs", ("(other))], 1)", "(other))], 0)", "[s + 1], 0)", "[s + 1], 1)"), "inverted"),
    ("nsp_pairs", ("i % 2 == 0", "i % 4 == 0"), "half"),
]
RIGHT, WRONG = right_and_wrong(cells_of("09_bert"), SLIPS)


def _by_coin(ids: Tensor, rng: torch.Generator, vocab: Vocab) -> tuple[Tensor, Tensor]:
    """One draw for everything: the lowest 15% are chosen, and cut 80/10/10."""
    draw = torch.rand(ids.shape, generator=rng).masked_fill(torch.isin(ids, torch.tensor(vocab.special)), 1.0)
    other = torch.randint(len(vocab.special), vocab.size, ids.shape, generator=rng)
    inputs = ids.where(draw >= 0.12, vocab.mask).where((draw < 0.12) | (draw >= 0.135), other)
    return inputs, ids.where(draw < 0.15, -100)


def _library_pairs(documents: Documents, rng: torch.Generator, n: int) -> list[corrupt.SentencePair]:
    return corrupt.nsp_pairs(documents, rng, n=n)


OTHER_RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("mask_tokens", _by_coin),
    ("mask_tokens", lambda ids, rng, vocab: corrupt.mask_tokens(ids, rng, vocab=vocab)),
    ("mlm_loss", lambda logits, ids, at: -logits.log_softmax(-1).gather(-1, ids[..., None])[..., 0][at].mean()),
    ("nsp_pairs", _library_pairs),
]


@pytest.mark.parametrize(("name", "answer"), OTHER_RIGHT)
def test_another_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    assert getattr(check, name)(answer).passed


def test_parameters_are_those_of_the_record(paper: Any) -> None:
    for name, config in (("BERT-base", bert_base()), ("BERT-large", bert_large())):
        with torch.device("meta"):
            model = heads.Pooled(Stack(config))
        row = paper["bert-params"]["rows"][name]
        assert sum(p.numel() for p in model.parameters()) == row["transformers"]
        assert (config.layers, config.width, config.heads) == (row["layers"], row["width"], row["heads"])
        assert abs(row["transformers"] / 1e6 - row["millions"]) < 5


def test_the_papers_tables_say_what_the_lesson_says_of_them(paper: Any) -> None:
    rows = paper["bert-ablation"]["rows"]
    for task in rows["BERT-base"]:
        assert rows["BERT-base"][task] >= rows["no NSP"][task] > rows["left-to-right, no NSP"][task]
    assert rows["+ BiLSTM"]["SQuAD"] > rows["left-to-right, no NSP"]["SQuAD"]
    sizes = [row["perplexity"] for row in paper["bert-size"]["rows"]]
    assert sizes == sorted(sizes, reverse=True)
    masks = paper["mask-mismatch"]["rows"]
    assert all(row["mask"] + row["random"] + row["same"] == 100 for row in masks)
    assert min(masks, key=lambda row: row["NER features"])["mask"] == 100


def test_masking_in_other_shares_asks_for_the_original(cells: list[Any]) -> None:
    """The lesson's own `Recorrupted`: what was hidden is put back before it is hidden in another way."""
    source = next(cell.source for cell in cells if cell.cell_type == "code" and "class Recorrupted" in cell.source)
    vocab = Vocab(size=50, pad=0, mask=4, special=(0, 1, 2, 3, 4))
    ids = torch.randint(5, 50, (8, 40), generator=torch.Generator().manual_seed(0))
    keep = torch.ones_like(ids, dtype=torch.bool)
    first = corrupt.mask_tokens(ids, corrupt.generator(1), vocab=vocab, keep=keep)._asdict() | {"keep": keep}
    space: dict[str, Any] = {"corrupt": corrupt}
    space["run"] = type("Run", (), {"seed": 0})
    space["words"] = type("Words", (), {"vocab": vocab})
    space["original"] = lambda batch: torch.where(batch["at"], batch["labels"], batch["ids"])
    exec(source, space)
    batch = space["Recorrupted"]([first], (0.0, 1.0, 0.0))[0]
    assert not (batch["ids"] == vocab.mask).any()
    assert torch.equal(batch["labels"][batch["at"]], ids[batch["at"]])
    assert torch.equal(batch["ids"][~batch["at"]], ids[~batch["at"]])
