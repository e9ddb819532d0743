"""The experiments of lesson 12: each rule can come out every way, and an arm differs from the baseline as it says."""

from dataclasses import replace

import pytest
import torch

from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.claims.record import figure
from course_lib.corrupt import IGNORE
from course_lib.experiments import roberta
from course_lib.experiments.roberta import BASE, FEW, Batches, Change
from tests.unit.verdicts import NO, PARTLY, YES, Values, judged

PLAN = replace(PLANS["smoke"], steps=27)


def three(value: float) -> list[float]:
    """Three seeds; a difference of 0.03 or more from a base of [4, 4.1, 4.2] is clear."""
    return [3.99 + value, 4.1 + value, 4.21 + value]


def arms(base: str, changes: dict[str, float], of: str = "held-out loss") -> Values:
    return {f"{of}/{base}": [4.0, 4.1, 4.2]} | {f"{of}/{name}": three(by) for name, by in changes.items()}


def masks(ten: float, single: float) -> Values:
    return arms("dynamic", {"ten masks in turn": ten, "a single mask": single})


def formats(segment: float, sentence: float, document: float) -> Values:
    return arms("full-sentences", {"segment-pair": segment, "sentence-pair": sentence, "doc-sentences": document})


def more(few: float, batch: float, steps: float) -> Values:
    return arms("baseline", {"few documents": few, "twice the batch": batch, "twice the steps": steps})


def whole(seen: float, tags: float) -> Values:
    pieces = arms("word hidden", {"rest in view": seen}, of="pieces right")
    return pieces | arms("pieces", {"whole words": tags}, of="tags right")


def relatives(off: float, both: float, harder: float, spans: float, disentangled: float) -> Values:
    shapes = {"shared": 0.0, "factorised": 0.0, "both (ALBERT)": both, "disentangled (DeBERTa)": disentangled}
    counts = {f"parameters, of the paper's/{name}": [1 + off] * 3 for name in roberta.SIZES}
    on_spans = arms("trained on tokens", {"trained on spans": spans}, of="loss on spans")
    return counts | arms("BERT", shapes) | on_spans | {"loss on tokens/trained on tokens": [4 - harder] * 3}


@pytest.mark.parametrize(
    ("claim", "values", "verdict"),
    [
        ("dynamic-masking", masks(0.0, 0.7), YES),
        ("dynamic-masking", masks(0.5, 0.7), YES),
        ("dynamic-masking", masks(0.0, 0.0), PARTLY),
        ("dynamic-masking", masks(-0.5, 0.7), NO),
        ("dynamic-masking", masks(0.0, -0.7), NO),
        ("input-formats", formats(0.1, 0.2, 0.0), YES),
        ("input-formats", formats(0.1, 0.2, -0.2), YES),
        ("input-formats", formats(0.1, 0.2, 0.1), PARTLY),
        ("input-formats", formats(0.0, 0.2, 0.0), PARTLY),
        ("input-formats", formats(-0.1, 0.0, 0.0), NO),
        ("undertrained", more(0.1, -0.1, -0.1), YES),
        ("undertrained", more(0.0, -0.1, -0.1), PARTLY),
        ("undertrained", more(0.0, 0.1, -0.1), PARTLY),
        ("undertrained", more(-0.1, 0.1, 0.0), NO),
        ("whole-word-masking", whole(0.5, 0.1), YES),
        ("whole-word-masking", whole(0.5, 0.0), PARTLY),
        ("whole-word-masking", whole(0.0, 0.1), PARTLY),
        ("whole-word-masking", whole(-0.5, -0.1), NO),
        ("span-and-sharing", relatives(0.05, 0.0, 0.3, -0.1, -0.1), YES),
        ("span-and-sharing", relatives(-0.05, -0.1, 0.3, -0.1, -0.1), YES),
        ("span-and-sharing", relatives(0.07, 0.0, 0.3, -0.1, -0.1), PARTLY),
        ("span-and-sharing", relatives(0.05, 0.1, 0.3, -0.1, -0.1), PARTLY),
        ("span-and-sharing", relatives(0.07, 0.0, -0.1, -0.1, 0.0), NO),  # spans are no harder than tokens
        ("span-and-sharing", relatives(0.05, 0.1, 0.3, 0.0, 0.1), NO),
    ],
)
def test_rules(claim: str, values: Values, verdict: str) -> None:
    assert judged(claim, values) == verdict


def batches(change: Change, seed: int = 0) -> Batches:
    return Batches(roberta.rows_of(PLAN, change.format, change.few), roberta.text(PLAN).words, change, seed)


def tokens(change: Change) -> int:
    return sum(int(batches(change)[step]["keep"].sum()) for step in range(4))


def test_every_format_reads_as_many_tokens_and_twice_the_batch_twice() -> None:
    base = tokens(BASE)
    assert 2.5 * roberta.TOKENS < base < 5 * roberta.TOKENS
    assert all(0.8 < tokens(Change(format=format)) / base < 1.25 for format in roberta.FORMATS)
    assert 1.8 < tokens(Change(batch=2)) / base < 2.2


def test_pairs_have_segments_and_a_second_question() -> None:
    assert "next" not in batches(BASE)[0]
    pairs = batches(Change(format="sentence-pair"))[0]
    assert set(pairs["next"].tolist()) <= {0, 1} and pairs["segments"].shape == pairs["ids"].shape


def test_stored_masks_come_again_and_new_ones_do_not() -> None:
    """The share of tokens that were hidden at least once in so many times round the same rows."""

    def hidden(copies: int | None) -> set[tuple[int, ...]]:
        drawn = batches(replace(FEW, copies=copies))
        rounds = [drawn[step] for step in range(12 * len(drawn.rows) // drawn.each)]
        rows = [zip(batch["labels"], batch["at"], strict=True) for batch in rounds]
        return {(*labels.tolist(), *at.nonzero()[:, 0].tolist()) for some in rows for labels, at in some}

    once, ten, always = (len({tuple(i for i in row if i != IGNORE) for row in hidden(n)}) for n in (1, 10, None))
    rows = len(batches(FEW).rows)
    assert once <= rows < 8 * rows < ten <= 10 * rows + 1 < always


def test_whole_words_are_hidden_wholly() -> None:
    words, batch = roberta.text(PLAN).words, batches(Change(unit="word"))[0]
    whole = torch.where(batch["at"], batch["labels"], batch["ids"])
    for number, at in zip(words.words(whole), batch["at"], strict=True):
        asked = number[at].unique()
        assert torch.isin(number, asked[asked >= 0]).equal(at)


def test_questions_are_on_words_in_several_pieces() -> None:
    words, texts = roberta.text(PLAN).words, ["Jasper bought the tapestry.", "Is it a key?"] * 20
    for ids, place, word in roberta.questions(words, texts, 32, 0):
        assert word[place] and word.sum() > 1 and len(set(words.words(ids)[word].tolist())) == 1


@pytest.mark.parametrize("name", ["dynamic-masking", "input-formats", "undertrained", "span-and-sharing"])
def test_a_measure_gives_what_its_rule_asks_for(name: str) -> None:
    test, measure = find(name), getattr(roberta, name.replace("-", "_"))
    assert test is not None
    assert test.verdict({key: figure([value] * 2) for key, value in measure(Lab(PLAN), 0).items()})


def test_arms_differ_and_claims_share_them() -> None:
    longer, base = (roberta.held_out(Lab(PLAN), 0, change) for change in (Change(longer=2), BASE))
    assert longer != base == roberta.input_formats(Lab(PLAN), 0)["held-out loss/full-sentences"]
