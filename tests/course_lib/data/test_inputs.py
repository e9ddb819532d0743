"""Sources and targets, T5's wordings to the letter, and the mixing of tasks."""

import math
from collections import Counter

import pytest
import torch

from course_lib.data.inputs import EncodedRow, Frame, SourceTarget, TaskBatches, in_order
from course_lib.data.text_to_text import Draws, MixedTasks, mixing_rates, rows, translation
from course_lib.data.tokenizers import train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families.bart import bart, bart_lm
from course_lib.families.t5 import t5
from course_lib.model.heads import QuestionAnswering
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqClassifier
from course_lib.objectives import losses

TEXTS = ["the baker sells bread", "a dog sleeps", "the old dog sells the bread to a baker"] * 4
DATA = [{"text": text, "target": " ".join(reversed(text.split()))} for text in TEXTS[:3]]
WORDPIECE = train_wordpiece(TEXTS, 80)
CONFIG = bart(WORDPIECE.vocab.size, width=16, layers=1, heads=2, length=16)


def test_rows_are_read_back():
    frame = SourceTarget(WORDPIECE, CONFIG)
    framed = frame.rows(DATA)
    batch = frame.collate(framed)
    assert batch["ids"].shape == batch["attention_mask"].shape and batch["labels"].shape[0] == 3
    for n, item in enumerate(DATA):
        assert WORDPIECE.decode(batch["ids"][n][batch["attention_mask"][n]]) == item["text"]
        real = batch["labels"][n][batch["labels"][n] != -100]
        assert (
            WORDPIECE.decode(real) == framed[n].truth and real[-1] == WORDPIECE.encode("").ids[-1]
        )
        assert (batch["labels"][n][len(real) :] == -100).all(), "padding stands behind"
    assert (batch["ids"][~batch["attention_mask"]] == WORDPIECE.vocab.pad).all() and not batch[
        "attention_mask"
    ].all()
    with pytest.raises(CourseError, match="marks no end of a text"):
        SourceTarget(train_bpe(TEXTS, 300), CONFIG)


@pytest.mark.parametrize(
    ("limits", "shape"), [({"max_length": 7, "max_target": 4}, (7, 4)), ({}, (16, 16))]
)
def test_lengths_are_limited_by_the_positions_and_the_caller(limits, shape):
    frame = SourceTarget(WORDPIECE, CONFIG, **limits)
    batch = frame.collate(frame.rows([{"text": "bread " * 40, "target": "dog " * 40}]))
    assert (batch["ids"].shape[1], batch["labels"].shape[1]) == shape
    assert SourceTarget(WORDPIECE, t5(80, width=8, layers=1, heads=1, hidden=8)).length == 512


def test_batches_of_an_epoch_and_in_order_carry_the_loss():
    frame = SourceTarget(WORDPIECE, CONFIG)
    framed = frame.rows(DATA)
    model = bart_lm(CONFIG).eval()
    assert losses.seq2seq(model, TaskBatches(frame, framed, batch=2, seed=0)[0]).isfinite()
    assert sorted(n for numbers, _ in in_order(frame, framed, 2) for n in numbers) == [0, 1, 2]
    apart = [losses.seq2seq(model, frame.collate([row])) * len(row.label) for row in framed]
    mean = sum(apart) / sum(len(row.label) for row in framed)
    torch.testing.assert_close(losses.seq2seq(model, frame.collate(framed)), mean)


def test_an_encoder_decoder_is_framed_as_an_encoder():
    """Its decoder is causal, but it reads [CLS] text [SEP] and needs no new tokens."""
    frame = Frame(WORDPIECE, CONFIG, "single", classes=2)
    assert not frame.causal and frame.tokenizer is WORDPIECE
    batch = frame.collate(
        frame.rows([{"text": t, "label": n % 2} for n, t in enumerate(TEXTS[:3])])
    )
    stack = EncoderDecoder(CONFIG, start=1)
    assert losses.classification(Seq2SeqClassifier(stack, 2), batch).isfinite()
    row = {"text": "who sells", "pair": "the baker sells bread", "answer": "baker", "start": 4}
    frame = Frame(WORDPIECE, CONFIG, "span")
    assert losses.span(QuestionAnswering(stack), frame.collate(frame.rows([row]))).isfinite()


@pytest.mark.parametrize(
    ("wording", "item", "text", "target"),
    [
        ("sst2", {"text": "a warm film .", "label": 1}, "sst2 sentence: a warm film .", "positive"),
        (
            "mrpc",
            {"text": "A.", "pair": "B.", "label": 1},
            "mrpc sentence1: A. sentence2: B.",
            "equivalent",
        ),
        (
            translation("A", "B"),
            {"text": "The house.", "target": "Haus."},
            "translate A to B: The house.",
            "Haus.",
        ),
        ("cola", {"text": "Sleeps he.", "label": 0}, "cola sentence: Sleeps he.", "unacceptable"),
        (
            "stsb",
            {"text": "a", "pair": "b", "label": 2.49},
            "stsb sentence1: a sentence2: b",
            "2.4",
        ),
        ("stsb", {"text": "a", "pair": "b", "label": 5}, "stsb sentence1: a sentence2: b", "5.0"),
        (
            "mnli",
            {"text": "P.", "pair": "H.", "label": 2},
            "mnli hypothesis: H. premise: P.",
            "contradiction",
        ),
        ("summary", {"text": "Long.", "target": "Short."}, "summarize: Long.", "Short."),
        (
            "squad",
            {"text": "Who?", "pair": "Ann.", "answer": "Ann", "start": 0},
            "question: Who? context: Ann.",
            "Ann",
        ),
    ],
)
def test_examples_as_t5_words_them(wording, item, text, target) -> None:
    assert list(rows([item], wording)) == [{"text": text, "target": target}]


@pytest.mark.parametrize(
    ("sizes", "how", "wanted"),
    [
        ([10, 30, 60], {}, [0.1, 0.3, 0.6]),
        ([10, 30, 60], {"limit": 30}, [1 / 7, 3 / 7, 3 / 7]),
        ([10, 30, 60], {"temperature": math.inf}, [1 / 3] * 3),
        ([100, 900, 10**6], {"temperature": 2, "limit": 900}, [1 / 7, 3 / 7, 3 / 7]),
    ],
)
def test_rates_by_hand(sizes, how, wanted) -> None:
    assert mixing_rates(sizes, **how) == pytest.approx(wanted)


def test_draws_keep_the_rates_and_count_up() -> None:
    draws = Draws([0.7, 0.25, 0.05], seed=3)
    n = 6000
    seen = [draws[i] for i in range(n)]
    counts: Counter[int] = Counter()
    for task, number in seen:
        assert number == counts[task], "a batch of a source was left out or came twice"
        counts[task] += 1
    for task, p in enumerate((0.7, 0.25, 0.05)):
        assert abs(counts[task] / n - p) < 4 * math.sqrt(p * (1 - p) / n)
    fresh = Draws([0.7, 0.25, 0.05], seed=3)
    assert [fresh[i] for i in (5000, 7, 2048, 1023)] == [seen[i] for i in (5000, 7, 2048, 1023)]
    assert [Draws([0.7, 0.25, 0.05], seed=4)[i] for i in range(20)] != seen[:20]


class Plain:
    def collate(self, rows):
        return {"ids": torch.tensor([row.ids[0] for row in rows])}


def test_rows_of_several_tasks_in_one_batch() -> None:
    sizes = {"a": 3, "b": 7}
    tasks = {
        name: [EncodedRow([[t, i]], [[0, 0]], 0) for i in range(n)]
        for t, (name, n) in enumerate(sizes.items())
    }
    mixed = MixedTasks(Plain(), tasks, [0.5, 0.5], batch=8, seed=2)
    seen = [row for step in range(30) for row in mixed[step]["ids"].tolist()]
    for task, size in enumerate((3, 7)):
        order = [i for t, i in seen if t == task]
        for start in range(0, len(order) - size, size):
            assert sorted(order[start : start + size]) == list(range(size)), (
                "a row came twice before all had come"
            )
        assert abs(len(order) / len(seen) - 0.5) < 4 * math.sqrt(0.25 / len(seen))
    assert len({tuple(i for t, i in seen if t == 1)[k : k + 7] for k in range(0, 70, 7)}) > 3, (
        "never shuffled"
    )
    fresh = MixedTasks(Plain(), tasks, [0.5, 0.5], batch=8, seed=2)
    assert fresh[25]["ids"].tolist() == mixed[25]["ids"].tolist()


class Kept:
    """In the place of a frame: the rows themselves."""

    collate = staticmethod(list)


def test_rows_of_like_length_need_less_padding():
    rows = [EncodedRow([[1] * n], [[0] * n], 0, 0) for n in range(1, 65)]
    grouped, mixed = (TaskBatches(Kept(), rows, 8, 0, by_length) for by_length in (True, False))
    padded = [
        sum(
            len(batch) * max(len(row.ids[0]) for row in batch)
            for batch in map(batches.__getitem__, range(8))
        )
        for batches in (grouped, mixed)
    ]
    assert padded[0] < 0.7 * padded[1]
    assert sorted(id(row) for step in range(8) for row in grouped[step]) == sorted(map(id, rows))
    assert [grouped[step] for step in range(8, 16)] != [grouped[step] for step in range(8)]
