"""The recipes' batches, the copy probe, and runs that stop and go on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from course_lib import losses, recipes
from course_lib.data.world import World
from course_lib.files import read_json
from course_lib.losses import Batch
from course_lib.probes import Blank, fill_in_accuracy, mean_loss
from course_lib.recipes import DocumentBatches, Recipe, base
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece

WORDS = [f"w{i}" for i in range(40)]


def document(index: int) -> Sequence[str]:
    """Documents whose every sentence names the document, so that halves can be traced."""
    return [f"d{index % 1000} {WORDS[s]} {WORDS[(index + s) % 40]} ." for s in range(1 + index % 9)]


TEXTS = [" ".join(document(i)) for i in range(1000)] * 2
WORDPIECE, BPE = train_wordpiece(TEXTS, 1500), train_bpe(TEXTS, 1600)
BERT = Recipe("mlm_nsp", rows=8, pool=4, length=40)
GPT = Recipe("clm", rows=8, pool=4, length=96, pairs=0.0)


def owners(tokenizer: Tokenizer, ids: Tensor) -> list[str]:
    return sorted({word for word in tokenizer.decode(ids).split() if word.startswith("d")})


def original(batch: Batch) -> Tensor:
    return batch["labels"].where(batch["at"], batch["ids"])


def test_a_batch_depends_on_its_number_only() -> None:
    a, b = (DocumentBatches(document, WORDPIECE, BERT, seed=3) for _ in range(2))
    late = [b[i] for i in (9, 2)]
    for x, y in zip(late, (a[9], a[2]), strict=True):
        assert all(torch.equal(x[name], y[name]) for name in x)
    other = DocumentBatches(document, WORDPIECE, BERT, seed=4)[2]
    assert other["ids"].shape != late[1]["ids"].shape or not torch.equal(other["ids"], late[1]["ids"])


def test_no_batch_is_wider_than_the_recipes_length() -> None:
    """Widths go in steps of 16, but a length between two steps is the model's last position."""
    short = DocumentBatches(document, BPE, replace(GPT, length=25))
    assert {short[step]["ids"].shape[1] for step in range(8)} <= {16, 25}


def test_every_document_comes_once_whole() -> None:
    batches = DocumentBatches(document, BPE, GPT)
    seen = []
    for step in range(8):
        batch = batches[step]
        assert batch.keys() == {"ids", "keep"} and batch["ids"].shape[1] % 16 == 0
        for ids, keep in zip(batch["ids"], batch["keep"], strict=True):
            row = ids[keep]
            assert row[0] == BPE.vocab.bos and row[-1] == BPE.vocab.eos
            (owner,) = owners(BPE, row)
            seen.append(int(owner[1:]))
            assert BPE.decode(row) == " ".join(document(seen[-1]))
    assert sorted(seen) == list(range(64))


def test_pairs_are_halves_of_one_document_or_of_two() -> None:
    batches = DocumentBatches(document, WORDPIECE, BERT)
    labels = []
    for step in range(40):
        batch = batches[step]
        for ids, keep, segments, label in zip(
            original(batch), batch["keep"], batch["segments"], batch["next"].tolist(), strict=True
        ):
            labels.append(label)
            seps = int((ids == WORDPIECE.vocab.sep).sum())
            first, second = ids[keep & (segments == 0)], ids[keep & (segments == 1)]
            assert first[0] == WORDPIECE.vocab.cls and (ids[~keep] == WORDPIECE.vocab.pad).all()
            if label == -100:
                assert len(second) == 0 and seps == 1
            else:
                assert seps == 2 and second[-1] == WORDPIECE.vocab.sep
                same = owners(WORDPIECE, first) == owners(WORDPIECE, second)
                assert same == (label == 0)
    pairs = [label for label in labels if label >= 0]
    assert 0.33 < len(pairs) / len(labels) < 0.55  # one document in nine has one sentence only
    assert 0.35 < sum(pairs) / len(pairs) < 0.65


def test_masks_are_the_recipes() -> None:
    batches = DocumentBatches(document, WORDPIECE, replace(BERT, mask_rate=0.4))
    chosen = sum(int(batches[i]["at"].sum()) for i in range(12))
    real = sum(int(batches[i]["keep"].sum()) for i in range(12))
    assert 0.3 < chosen / real < 0.4  # the specials are not chosen


def test_a_run_reads_the_primer_then_documents_with_some_of_it_again(tmp_path: Path) -> None:
    recipe = replace(recipes.RECIPES["gpt-mini"], primer=(4, 8), replay=0.25, rows=8)
    run = recipes.Run("gpt-mini", recipe, tmp_path)
    read, world = run.lessons(), run.world
    assert all(read(row) == world.primer(row, 1)["sentences"] for row in range(32))
    assert all(read(row) == world.primer(row, 2)["sentences"] for row in range(32, 96))
    again = [read(row) == world.primer(row, 2)["sentences"] for row in range(96, 496)]
    assert 0.18 < sum(again) / 400 < 0.32
    assert all(again[row - 96] or read(row) == world.document(row)["sentences"] for row in range(96, 496))


def test_a_model_that_sees_both_sides_reads_pages_without_rounds(tmp_path: Path) -> None:
    read = recipes.Run(
        "roberta-mini", replace(recipes.RECIPES["roberta-mini"], causal=0, primer=(4, 8), rows=8), tmp_path
    ).lessons()
    world = World(0)
    assert all(read(row) == world.primer(row, 1, rounds=False)["sentences"] for row in range(32))
    assert read(0) != world.primer(0, 1)["sentences"]


def test_a_causal_start_reads_and_asks_as_a_decoder_does(tmp_path: Path) -> None:
    recipe = replace(recipes.RECIPES["bert-mini"], primer=(2, 4), causal=4, rows=8, pool=2)
    run = recipes.Run("bert-mini", recipe, tmp_path)
    read, world = run.lessons(), run.world
    assert all(read(row) == world.primer(row, 1 if row < 16 else 2)["sentences"] for row in range(32))
    assert all(read(row) == world.primer(row, 2, rounds=False)["sentences"] for row in range(32, 48))
    batches, model = run.batches(), run.model()
    first, later = batches[3], batches[4]
    assert first.keys() == {"ids", "keep"} and later.keys() >= {"labels", "at", "next"}
    assert all("labels" in batch for batch in run.heldout(2)), "what is held out asks as the finished model is asked"
    mask = run.tokenizer.vocab.mask
    assert mask not in first["ids"] and mask in later["ids"]
    assert torch.equal(run.loss(model, first), losses.left_to_right(model, first))
    assert torch.equal(run.loss(model, later), losses.mlm_nsp(model, later, weight=recipe.pairs))


def test_the_primer_asks_for_known_names_and_has_no_pairs() -> None:
    names = {token for ids in WORDPIECE.ids(WORDS, special=False) for token in ids}
    recipe = replace(BERT, mask_rate=0.15, primer=(4, 0), primer_mask_rate=1.0)
    batches = DocumentBatches(lambda i: [*document(i)[:2]] * 3, WORDPIECE, recipe, names=names)
    for batch in (batches[step] for step in range(4)):
        assert (batch["next"] == -100).all()
        asked = batch["labels"][batch["at"]].tolist()
        assert asked and names.issuperset(asked) and (batch["ids"][batch["at"]] == WORDPIECE.vocab.mask).all()
    later = batches[5]
    assert not names.issuperset(later["labels"][later["at"]].tolist())


class Oracle(nn.Module):
    """Says the tokens of `answer` wherever it is asked, in order."""

    def __init__(self, ids: list[int], size: int) -> None:
        super().__init__()
        self.ids, self.size = ids, size
        self.unused = nn.Parameter(torch.zeros(1))
        self.seen: list[Tensor] = []

    def forward(self, ids: Tensor, *, keep: Tensor, at: Tensor) -> Tensor:
        self.seen.append(ids)
        said = torch.tensor([self.ids[i] for row in at for i in range(int(row.sum()))])
        return nn.functional.one_hot(said, self.size).float()


@pytest.mark.parametrize("tokenizer", [WORDPIECE, BPE], ids=["masked", "causal"])
def test_a_blank_is_filled_when_all_pieces_are_right(tokenizer: Tokenizer) -> None:
    left, answer, right = "w1 w2 . w3 ", "w39w38", " w4 ."
    blank = Blank(left, answer, right)
    with_answer = tokenizer.encode(left + answer, special=False).ids
    pieces = with_answer[len(tokenizer.encode(left.strip(), special=False).ids) :]
    assert len(pieces) > 1
    right_model = Oracle(pieces, tokenizer.vocab.size)
    assert fill_in_accuracy(right_model, tokenizer, [blank, blank], batch=1) == 1
    wrong = Oracle([*pieces[:-1], 9], tokenizer.vocab.size)
    assert fill_in_accuracy(wrong, tokenizer, [blank]) == 0
    assert wrong.training, "the model should be left in the mode it was in"
    if tokenizer is WORDPIECE:
        seen = right_model.seen[0][0].tolist()
        assert seen.count(tokenizer.vocab.mask) == len(pieces), "the answer must be hidden, all of it"


def test_mean_loss_is_without_dropout() -> None:
    net = nn.Sequential(nn.Dropout(0.5))
    net.register_parameter("p", nn.Parameter(torch.ones(1)))
    batches = [{"ids": torch.ones(100)}, {"ids": torch.full((100,), 3.0)}]
    assert mean_loss(net, lambda model, batch: model(batch["ids"]).mean(), batches) == 2
    assert net.training


def small(tmp_path: Path, **change: object) -> recipes.Run:
    recipe = replace(
        recipes.RECIPES["gpt-mini"], steps=8, rows=2, pool=2, vocab=700, warmup=1, probe_every=4,
        checkpoint_every=4, precision="fp32", **change,  # type: ignore[arg-type]
    )  # fmt: skip
    return recipes.Run("gpt-mini", recipe, tmp_path)


def test_a_stopped_run_goes_on_to_the_same_weights_and_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file

    monkeypatch.setattr(base, "TOKENIZER_DOCUMENTS", 200)
    monkeypatch.setattr(base, "BLANKS", 4)
    monkeypatch.setattr(base, "LOG", 2)
    curves = {}
    for name, stops in (("whole", []), ("stopped", [4, 6])):
        folder = tmp_path / name
        for stop in [*stops, None]:
            for point in small(folder).build(folder / "out"):
                if point.step == stop:
                    break
        curves[name] = read_json(folder / "curve.json")
    assert [p["step"] for p in curves["whole"]] == [2, 4, 6, 8] and "probe" in curves["whole"][1]
    without = [[{k: v for k, v in p.items() if k != "seconds"} for p in curve] for curve in curves.values()]
    assert without[0] == without[1]
    a, b = (load_file(tmp_path / n / "out" / "gpt-mini" / "model.safetensors") for n in curves)
    assert a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
