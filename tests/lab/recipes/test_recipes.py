"""The recipes' batches, the copy probe, and runs that stop and go on."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from course_lib.analysis.copy_probe import Blank, fill_in_accuracy
from course_lib.data.tokenizers import Tokenizer, train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families import preset
from course_lib.families.bart import bart
from course_lib.families.bert import moved_norms
from course_lib.model.seq2seq import EncoderDecoder
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from lab import recipes
from lab.recipes.documents import Documents, Primer, Recipe, RecipeBatches, Run, Size
from lab.recipes.primer import left_to_right
from lab.recipes.warm_starts import warm_start_from

WORDS = [f"w{i}" for i in range(40)]


def document(index: int) -> Sequence[str]:
    """Documents whose every sentence names the document, so that halves can be traced."""
    return [f"d{index % 1000} {WORDS[s]} {WORDS[(index + s) % 40]} ." for s in range(1 + index % 9)]


TEXTS = [" ".join(document(i)) for i in range(1000)] * 2
WORDPIECE, BPE = train_wordpiece(TEXTS, 1500), train_bpe(TEXTS, 1600)
BERT = Recipe(
    "bert", "masked_pairs", rows=8, size=Size(length=40), documents=Documents(pairs=0.5, pool=4)
)
GPT = Recipe("gpt", "causal", rows=8, size=Size(length=96), documents=Documents(pool=4))


def test_a_batch_depends_on_its_number_only() -> None:
    a, b = (RecipeBatches(document, WORDPIECE, BERT, seed=3) for _ in range(2))
    late = [b[i] for i in (9, 2)]
    for x, y in zip(late, (a[9], a[2]), strict=True):
        assert all(torch.equal(x[name], y[name]) for name in x)
    other = RecipeBatches(document, WORDPIECE, BERT, seed=4)[2]
    assert other["ids"].shape != late[1]["ids"].shape or not torch.equal(
        other["ids"], late[1]["ids"]
    )


def test_every_document_comes_once_whole() -> None:
    batches = RecipeBatches(document, BPE, GPT)
    seen = []
    for step in range(8):
        batch = batches[step]
        assert batch.keys() == {"ids", "attention_mask"} and batch["ids"].shape[1] % 16 == 0
        for ids, attention_mask in zip(batch["ids"], batch["attention_mask"], strict=True):
            row = ids[attention_mask]
            assert row[0] == BPE.vocab.bos and row[-1] == BPE.vocab.eos
            (owner,) = {word for word in BPE.decode(row).split() if word.startswith("d")}
            seen.append(int(owner[1:]))
            assert BPE.decode(row) == " ".join(document(seen[-1]))
    assert sorted(seen) == list(range(64))


def test_a_run_reads_the_primer_then_documents_with_some_of_it_again(tmp_path: Path) -> None:
    recipe = replace(recipes.RECIPES["gpt-mini"], primer=Primer((4, 8), replay=0.25), rows=8)
    run = Run("gpt-mini", recipe, tmp_path)
    read, world = run.lessons(), run.world
    assert all(read(row) == world.primer(row, 1)["sentences"] for row in range(32))
    assert all(read(row) == world.primer(row, 2)["sentences"] for row in range(32, 96))
    again = [read(row) == world.primer(row, 2)["sentences"] for row in range(96, 496)]
    assert 0.18 < sum(again) / 400 < 0.32
    assert all(
        again[row - 96] or read(row) == world.document(row)["sentences"] for row in range(96, 496)
    )


def test_a_causal_start_reads_and_asks_as_a_decoder_does(tmp_path: Path) -> None:
    recipe = recipes.RECIPES["bert-mini"]
    primer = replace(recipe.primer, levels=(2, 4), causal=4)
    documents = replace(recipe.documents, pool=2)
    recipe = replace(recipe, primer=primer, documents=documents, rows=8)
    run = Run("bert-mini", recipe, tmp_path)
    read, world = run.lessons(), run.world
    assert all(
        read(row) == world.primer(row, 1 if row < 16 else 2)["sentences"] for row in range(32)
    )
    assert all(
        read(row) == world.primer(row, 2, rounds=False)["sentences"] for row in range(32, 48)
    )
    batches, model = run.batches(), run.model()
    first, later = batches[3], batches[4]
    assert first.keys() == {"ids", "attention_mask"} and later.keys() >= {
        "labels",
        "loss_mask",
        "next",
    }
    assert all("labels" in batch for batch in run.heldout), (
        "what is held out asks as the finished model is asked"
    )
    mask = run.tokenizer.vocab.mask
    assert mask not in first["ids"] and mask in later["ids"]
    assert torch.equal(run.loss(model, first), left_to_right(model, first))
    assert torch.equal(
        run.loss(model, later), losses.mlm_nsp(model, later, weight=recipe.documents.pairs)
    )


def test_the_primer_asks_for_known_names_and_has_no_pairs() -> None:
    names = {token for ids in WORDPIECE.ids(WORDS, special=False) for token in ids}
    recipe = replace(BERT, primer=Primer((4, 0), mask_rate=1.0))
    batches = RecipeBatches(lambda i: [*document(i)[:2]] * 3, WORDPIECE, recipe, names=names)
    for batch in (batches[step] for step in range(4)):
        assert (batch["next"] == -100).all()
        asked = batch["labels"][batch["loss_mask"]].tolist()
        assert (
            asked
            and names.issuperset(asked)
            and (batch["ids"][batch["loss_mask"]] == WORDPIECE.vocab.mask).all()
        )
    later = batches[5]
    assert not names.issuperset(later["labels"][later["loss_mask"]].tolist())


class Oracle(nn.Module):
    """Says the tokens of `answer` wherever it is asked, in order."""

    def __init__(self, ids: list[int], size: int) -> None:
        super().__init__()
        self.ids, self.size = ids, size
        self.unused = nn.Parameter(torch.zeros(1))
        self.seen: list[Tensor] = []

    def forward(self, ids: Tensor, *, attention_mask: Tensor, loss_mask: Tensor) -> Tensor:
        self.seen.append(ids)
        said = torch.tensor([self.ids[i] for row in loss_mask for i in range(int(row.sum()))])
        return nn.functional.one_hot(said, self.size).float()


@pytest.mark.parametrize("tokenizer", [WORDPIECE, BPE], ids=["masked", "causal"])
def test_a_blank_is_filled_when_all_pieces_are_right(tokenizer: Tokenizer) -> None:
    left, answer, right = "w1 w2 . w3 ", "w39w38", " w4 ."
    blank = Blank(left, answer, right)
    with_answer = tokenizer.encode(left + answer, special=False).ids
    pieces = with_answer[len(tokenizer.encode(left.strip(), special=False).ids) :]
    assert len(pieces) > 1
    right_model = Oracle(pieces, tokenizer.vocab.size)
    assert fill_in_accuracy(right_model, tokenizer, [blank, blank]) == 1
    wrong = Oracle([*pieces[:-1], 9], tokenizer.vocab.size)
    assert fill_in_accuracy(wrong, tokenizer, [blank]) == 0
    assert wrong.training, "the model should be left in the mode it was in"
    if tokenizer is WORDPIECE:
        seen = right_model.seen[0][0].tolist()
        assert seen.count(tokenizer.vocab.mask) == len(pieces), (
            "the answer must be hidden, all of it"
        )


def test_a_bert_and_both_sides_of_a_bart_take_over_what_a_decoder_has_learned() -> None:
    texts = [
        "the old miller saw Anna",
        "Anna saw the mill",
        "a miller sees more of the old mill",
    ] * 30
    words, parents = train_wordpiece(texts, 80), train_bpe(texts, 300)
    torch.manual_seed(0)
    parent = Transformer(
        replace(preset("gpt-mini", vocab=parents.vocab.size, length=20), init_std=0.05)
    )
    child = Transformer(moved_norms(preset("bert-mini", vocab=words.vocab.size, length=20)))
    pair = EncoderDecoder(
        moved_norms(bart(words.vocab.size, width=128, layers=4, heads=4, length=20))
    )
    before = child.embed.tokens.weight.clone()
    joins = {name: w.clone() for name, w in pair.decoder.named_parameters() if ".cross" in name}
    taken = {name: w for name, w in parent.named_parameters() if not name.startswith("embed.")}
    for stack in (child, pair.encoder, pair.decoder):
        warm_start_from(stack, words, parent, parents)
        assert all(torch.equal(stack.get_parameter(name), w) for name, w in taken.items())
    assert joins and all(
        torch.equal(pair.decoder.get_parameter(name), w) for name, w in joins.items()
    )

    table = child.embed.tokens.weight
    inner = next(text for text in words.tokens(range(words.vocab.size)) if text.startswith("##"))
    # " Anna" takes fewer pieces
    for token, like in (("miller", " miller"), ("anna", " Anna"), (inner, inner[2:])):
        mean = parent.embed.tokens.weight[parents.ids([like], special=False)[0]].mean(0)
        torch.testing.assert_close(table[words.tokens(range(words.vocab.size)).index(token)], mean)
    assert all(torch.equal(table[token], before[token]) for token in words.vocab.special)
    with pytest.raises(CourseError, match="does not fit this model"):
        warm_start_from(Transformer(replace(child.config, layers=5)), words, parent, parents)
