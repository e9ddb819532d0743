"""Penalties, blocked n-grams and forced tokens by hand; encoder-decoder generation's errors; training after it."""

import pytest
import torch

from course_lib import losses
from course_lib.errors import CourseError
from course_lib.generate import Constraints, generate, stream
from course_lib.heads import LM
from course_lib.models.bart import bart, bart_lm
from course_lib.models.gpt import gpt
from course_lib.models.t5 import t5_lm, t5_mini
from course_lib.seq2seq import EncoderDecoder, shift_right
from course_lib.stack import Stack

SOURCE = torch.tensor([[5, 6, 7], [8, 9, 3]])
INF = float("inf")


@pytest.fixture
def model():
    torch.manual_seed(0)
    model = bart_lm(bart(20, width=16, layers=2, heads=2, length=12))
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model.eval()


def apply(scores, text, step=5, last=False, eos=None, **options):
    before = torch.tensor([scores])
    after = Constraints(**options)(before, torch.tensor([text]), step=step, last=last, eos=eos)
    assert before.tolist() == [scores], "the scores were changed in place"
    return after[0].tolist()


def test_the_penalty_makes_said_tokens_less_likely():
    assert apply([2.0, -2.0, 0.0, 4.0], [0, 1, 1], repetition_penalty=2.0) == [1.0, -4.0, 0.0, 4.0]


def test_no_ngram_stands_twice():
    scores = [0.0] * 4
    assert apply(scores, [0, 1, 2, 0], no_repeat_ngram_size=2) == [0, -INF, 0, 0]
    assert apply(scores, [0, 1, 0, 2, 0], no_repeat_ngram_size=2) == [0, -INF, -INF, 0]
    assert apply(scores, [0, 1, 2, 0, 1], no_repeat_ngram_size=3) == [0, 0, -INF, 0]
    assert apply(scores, [0, 1, 2, 3, 1], no_repeat_ngram_size=3) == scores
    assert apply(scores, [3, 1], no_repeat_ngram_size=1) == [0, -INF, 0, -INF]
    assert apply(scores, [3, 1], no_repeat_ngram_size=4) == scores


def test_least_length_and_forced_tokens():
    assert apply([1.0, 2.0], [0], step=2, eos=1, min_new_tokens=3) == [1.0, -INF]
    assert apply([1.0, 2.0], [0], step=3, eos=1, min_new_tokens=3) == [1.0, 2.0]
    assert apply([1.0, 2.0], [0], step=0, forced_bos=0) == [0.0, -INF]
    assert apply([1.0, 2.0], [0], step=1, forced_bos=0) == [1.0, 2.0]
    assert apply([1.0, 2.0], [0], last=True, forced_eos=0) == [0.0, -INF]
    assert apply([1.0, 2.0], [0], last=False, forced_eos=0) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size is -1"),
        ({"min_new_tokens": -2}, "min_new_tokens is -2"),
        ({"forced_bos": 20}, "forced token 20 lies outside the vocabulary of 20"),
        ({"early_stopping": True}, "early_stopping is beam search's"),
        ({"max_new_tokens": 13}, "1 tokens and 13 new ones go beyond the 12 positions"),
        ({"keep": torch.ones(2, 2)}, r"keep"),
    ],
)
def test_contradictions_are_named(model, options, message):
    with pytest.raises(CourseError, match=message):
        generate(model, SOURCE, **({"max_new_tokens": 3} | options))


def test_decoder_ids_are_for_encoder_decoders():
    decoder = LM(Stack(gpt(20, width=8, layers=1, heads=1, length=9)))
    with pytest.raises(CourseError, match="decoder_ids are for encoder-decoders"):
        generate(decoder, SOURCE, max_new_tokens=2, decoder_ids=SOURCE)


def test_an_encoder_decoder_needs_a_decoders_configuration():
    with pytest.raises(CourseError, match="causal=True, cross=True"):
        EncoderDecoder(gpt(20, width=8, layers=1, heads=1, length=9))
    with pytest.raises(CourseError, match="start token 20 lies outside"):
        EncoderDecoder(bart(20, width=8, layers=1, heads=1), start=20)


def test_greedy_is_the_argmax_of_the_model(model):
    out = generate(model, SOURCE, max_new_tokens=6)
    assert out[:, 0].tolist() == [2, 2]
    for end in range(1, 7):
        assert torch.equal(out[:, end], model(SOURCE, out[:, :end])[:, -1].argmax(-1))
    streamed = torch.stack([step.token for step in stream(model, SOURCE, max_new_tokens=6)], dim=1)
    assert torch.equal(streamed, out[:, 1:])


def test_a_row_says_the_same_alone_and_padded(model):
    ids = torch.tensor([[5, 6, 7, 0, 0], [8, 9, 3, 4, 5]])
    keep = torch.tensor([[1, 1, 1, 0, 0], [1] * 5]).bool()
    for beams in (1, 3):
        both = generate(model, ids, keep=keep, max_new_tokens=8, num_beams=beams)
        assert torch.equal(both[:1], generate(model, ids[:1, :3], max_new_tokens=8, num_beams=beams))


def test_what_was_generated_can_be_trained_on_twice(model):
    out = generate(model, SOURCE, max_new_tokens=4)
    for _ in range(2):
        losses.seq2seq(model, {"ids": SOURCE, "labels": out[:, 1:]}).backward()


def test_dropout_is_off_and_the_mode_given_back(model):
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5
    expected = generate(model, SOURCE, max_new_tokens=6)
    assert not any(part.training for part in model.modules())
    model.train()
    assert torch.equal(generate(model, SOURCE, max_new_tokens=6), expected)
    assert all(part.training for part in model.modules())


def test_shift_right():
    assert shift_right(torch.tensor([[5, 6, 7], [8, -100, -100]]), 2).tolist() == [[2, 5, 6], [2, 8, 2]]
    ids, keep = torch.tensor([[0, 0, 5, 6]]), torch.tensor([[False, False, True, True]])
    assert shift_right(ids, 2, keep)[0, 2:].tolist() == [2, 5]


def test_a_seq2seq_model_learns_to_copy():
    torch.manual_seed(0)
    model = t5_lm(t5_mini(vocab=12)).train()
    ids = torch.randint(3, 12, (6, 4))
    batch = {"ids": ids, "labels": torch.cat([ids, torch.ones(6, 1, dtype=torch.long)], dim=1)}
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for _ in range(60):
        loss = losses.seq2seq(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.1
    said = generate(model, ids, max_new_tokens=8, eos=1)
    assert torch.equal(said[:, 1:5], ids) and (said[:, 5] == 1).all()
