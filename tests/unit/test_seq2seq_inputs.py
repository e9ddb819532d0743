"""Source and target batches, and an encoder-decoder's place among the frames."""

import pytest
import torch

from course_lib import losses
from course_lib.errors import CourseError
from course_lib.inputs import Frame, SourceTarget, TaskBatches, in_order
from course_lib.models.bart import bart, bart_lm
from course_lib.models.t5 import t5
from course_lib.seq2seq import EncoderDecoder, Seq2SeqClassifier, Seq2SeqSpan
from course_lib.tokenizers import train_bpe, train_wordpiece

TEXTS = ["the baker sells bread", "a dog sleeps", "the old dog sells the bread to a baker"] * 4
DATA = [{"text": text, "target": " ".join(reversed(text.split()))} for text in TEXTS[:3]]
WORDPIECE = train_wordpiece(TEXTS, 80)
CONFIG = bart(WORDPIECE.vocab.size, width=16, layers=1, heads=2, length=16)


def test_rows_are_read_back():
    frame = SourceTarget(WORDPIECE, CONFIG, prefix="sells ")
    rows = frame.rows(DATA)
    batch = frame.collate(rows)
    assert batch["ids"].shape == batch["keep"].shape and batch["labels"].shape[0] == 3
    for n, item in enumerate(DATA):
        assert WORDPIECE.decode(batch["ids"][n][batch["keep"][n]]) == "sells " + item["text"]
        assert WORDPIECE.decode([t for t in batch["labels"][n].tolist() if t != -100]) == rows[n].answer
    ends = WORDPIECE.encode("").ids[-1]
    for n in range(3):
        real = batch["labels"][n][batch["labels"][n] != -100]
        assert real[-1] == ends
        assert (batch["labels"][n][len(real) :] == -100).all(), "padding stands behind"
    assert (batch["ids"][~batch["keep"]] == WORDPIECE.vocab.pad).all() and not batch["keep"].all()


def test_lengths_are_limited_by_the_positions_and_the_caller():
    frame = SourceTarget(WORDPIECE, CONFIG, max_length=7, max_target=4)
    batch = frame.collate(frame.rows([{"text": "bread " * 40, "target": "dog " * 40}]))
    assert batch["ids"].shape == (1, 7) and batch["labels"].shape == (1, 4)
    frame = SourceTarget(WORDPIECE, CONFIG)
    batch = frame.collate(frame.rows([{"text": "bread " * 40, "target": "dog " * 40}]))
    assert batch["ids"].shape == (1, 16) == batch["labels"].shape
    assert SourceTarget(WORDPIECE, t5(80, width=8, layers=1, heads=1, hidden=8)).length == 512


def test_batches_of_an_epoch_and_in_order_carry_the_loss():
    frame = SourceTarget(WORDPIECE, CONFIG)
    rows = frame.rows(DATA)
    model = bart_lm(CONFIG).eval()
    batches = TaskBatches(frame, rows, batch=2, seed=0)
    assert losses.seq2seq(model, batches[0]).isfinite()
    assert sorted(n for numbers, _ in in_order(frame, rows, 2) for n in numbers) == [0, 1, 2]
    together = frame.collate(rows)
    apart = [losses.seq2seq(model, frame.collate([row])) * len(row.label) for row in rows]
    mean = sum(apart) / sum(len(row.label) for row in rows)
    torch.testing.assert_close(losses.seq2seq(model, together), mean)


def test_a_task_without_its_columns():
    frame = SourceTarget(WORDPIECE, CONFIG)
    with pytest.raises(CourseError, match="needs the column 'target'; row 1 has none"):
        frame.rows([DATA[0], {"text": "a"}])
    with pytest.raises(CourseError, match="has no rows"):
        frame.rows([])
    with pytest.raises(CourseError, match="marks no end of a text"):
        SourceTarget(train_bpe(TEXTS, 300), CONFIG)


def test_an_encoder_decoder_is_framed_as_an_encoder():
    """Its decoder is causal, but it reads [CLS] text [SEP] and needs no new tokens."""
    frame = Frame(WORDPIECE, CONFIG, "single", classes=2)
    assert not frame.causal and frame.marks == ()
    batch = frame.collate(frame.rows([{"text": t, "label": n % 2} for n, t in enumerate(TEXTS[:3])]))
    stack = EncoderDecoder(CONFIG, start=1)
    assert losses.classification(Seq2SeqClassifier(stack, 2), batch).isfinite()
    row = {"text": "who sells", "pair": "the baker sells bread", "answer": "baker", "start": 4}
    frame = Frame(WORDPIECE, CONFIG, "span")
    assert losses.span(Seq2SeqSpan(stack), frame.collate(frame.rows([row]))).isfinite()
