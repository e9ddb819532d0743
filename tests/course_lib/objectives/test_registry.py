"""The registry: every objective makes the batch that its loss reads."""

import pytest
import torch

from course_lib import families
from course_lib.data.tokenizers import add_sentinels, train_wordpiece
from course_lib.errors import CourseError
from course_lib.model import heads
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqLM
from course_lib.model.transformer import Transformer
from course_lib.objectives import (
    OBJECTIVES,
    SPAN_SAMPLERS,
    collate,
    corruption,
    losses,
    objective,
    seeded_generator,
    span_sampler,
)
from course_lib.training.distill import Distilled

TEXTS = ["the cat sat on the mat . a dog ran over it .", "the dog sat . the cat ran on and on ."]
WORDS = add_sentinels(train_wordpiece(TEXTS * 20, 60), 20)


def rows() -> tuple[torch.Tensor, torch.Tensor]:
    batch = collate.pad(WORDS.ids(TEXTS), WORDS.vocab.pad)
    return batch["ids"], batch["attention_mask"]


def model_for(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    size = {"width": 16, "layers": 2, "heads": 2, "length": 48}
    vocab = WORDS.vocab.size
    if name == "causal":
        return heads.LM(Transformer(families.family("gpt").config(vocab, **size)))
    if name == "replaced":
        return families.family("electra").model(families.family("electra").config(vocab, **size), 0)
    if objective(name).loss is losses.seq2seq:
        return Seq2SeqLM(EncoderDecoder(families.family("t5").config(vocab, **size)))
    bert = Transformer(families.family("bert").config(vocab, **size))
    if name == "masked_pairs":
        return heads.Pretraining(bert)
    model = heads.MLM(bert)
    return Distilled(model, heads.MLM(bert)) if name == "distilled" else model


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_loss_reads_the_batch_of_its_corruption(name: str) -> None:
    ids, attention_mask = rows()
    before = ids.clone()
    batch = corruption(name, WORDS)(ids, attention_mask, seeded_generator(0))
    assert torch.equal(ids, before), "the input was written to"
    if objective(name).pairs:
        batch = {**batch, "segments": torch.zeros_like(ids), "next": torch.tensor([0, 1])}
    loss = objective(name).loss(model_for(name), batch)
    loss.backward()
    assert loss.isfinite() and loss > 0
    again = corruption(name, WORDS)(ids, attention_mask, seeded_generator(0))
    assert all(torch.equal(again[key], batch[key]) for key in again)


def test_every_familys_objective_is_registered() -> None:
    assert {family.objective for family in families.FAMILIES.values()} <= OBJECTIVES.keys()


@pytest.mark.parametrize("unit", SPAN_SAMPLERS)
def test_what_is_hidden_together_is_an_option(unit: str) -> None:
    ids, attention_mask = rows()
    corrupt = corruption("masked", WORDS, spans=span_sampler(unit), rate=0.3)
    hidden = corrupt(ids, attention_mask, seeded_generator(1))["loss_mask"]
    words = WORDS.words(ids)
    if unit != "tokens":  # words are hidden whole
        for b in range(len(ids)):
            assert not set(words[b, hidden[b]].tolist()) & set(words[b, ~hidden[b]].tolist())
    assert hidden.any(1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: objective("guessed"), "There is no objective 'guessed'; there are causal, masked"),
        (
            lambda: corruption("causal", WORDS, rate=0.2),
            "causal has no rate to set; it has nothing",
        ),
        (
            lambda: corruption("denoised", WORDS, spans=span_sampler("words")),
            "denoised has no spans to set; it has rate",
        ),
        (lambda: span_sampler("letters"), "no unit 'letters' to mask; there are tokens, words"),
    ],
)
def test_bad_input_is_one_sentence(call, message: str) -> None:
    with pytest.raises(CourseError, match=message):
        call()
