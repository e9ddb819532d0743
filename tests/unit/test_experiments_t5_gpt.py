"""Lessons 17 to 19: every rule comes out each way, and what its figures are made of is what it says."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from course_lib import heads, losses, zoo
from course_lib.claims.experiment import find
from course_lib.claims.lab import PLANS, Lab
from course_lib.claims.record import figure
from course_lib.experiments import family, gpt2, gpt3, t5
from course_lib.experiments.t5 import BEST, CONTROL, KINDS, PAPER, TASKS
from course_lib.models.gpt import gpt
from course_lib.seq2seq import shift_right
from course_lib.stack import Stack
from tests.unit.verdicts import NO, PARTLY, YES, Values, around, judged


def ten(first: float, lm: float, shared: float = 5.03, without: float = 6.0) -> Values:
    values = {f"nats/{kind}/{objective}": around(5.3 if objective == "denoising" else lm)
              for kind in KINDS for objective in t5.OBJECTIVES}  # fmt: skip
    values |= {f"nats/{BEST}/denoising": around(first), "nats/shared/denoising": around(shared)}
    return values | {f"nats/{BEST}/{CONTROL}": around(without)}


def multi(apart: float, together: float, formats: float = 1.0) -> Values:
    values = {"formats as the paper's": [formats] * 3}
    for name in (*TASKS, "average"):
        values |= {f"one model each/{name}": around(apart), f"one for all/{name}": around(together)}
    return values


def sizes(*rows: tuple[float, float], off: float = 1.0, theirs: float = 1.0, rising: float = 4) -> Values:
    values = {"the paper's columns that rise": [rising] * 3}
    for name, row in PAPER["t5-sizes"]["rows"].items():
        values |= {f"parameters/{name}": [1e6 * off * row["millions"]] * 3}
        values |= {f"transformers/{name}": [1e6 * off * theirs * row["millions"]] * 3}
    for width, (loss, right) in zip(t5.WIDTHS, rows, strict=True):
        values |= {f"held-out loss/{width}": around(loss), f"tokens right/{width}": around(right)}
    return values


def zero_shot(better: int, models: int, noise: float = 0.01) -> Values:
    values: Values = {}
    for number in range(models):
        for rank, measure in enumerate(gpt2.SHARES):
            score = 0.4 + (0.1 * number if rank < better else 0)
            values[f"{measure}/size {number}"] = [score, score - noise * number, score + noise * number]
        values[f"perplexity/size {number}"] = around(9.0 - number if better > 0 else 9.0 + number)
    return values


def tldr(hint: float, none: float, lead: float) -> Values:
    return {"mean/In short,": around(hint), "mean/no hint": around(none), "mean/Lead-3": around(lead)}


def sharpens(*surprise: float, entropy: float = -1.0) -> Values:
    values = {f"surprise/{n}": around(bits) for n, bits in zip(gpt2.CONTEXTS, surprise, strict=True)}
    return values | {f"entropy/{n}": around(4 + entropy * i / 6) for i, n in enumerate(gpt2.CONTEXTS)}


def wordings(best: float, worst: float) -> Values:
    values = {f"wording/{text}": around(worst) for text in gpt3.WORDINGS} | {f"wording/{gpt3.HAD}": around(best)}
    values |= {f"order/{back} back": around(0.5) for back in (4, 3, 2, 1)}
    return values | {f"marked/{shots} shots": around(0.5) for shots in (0, 4, 12)}


def in_context(one: float, five: float, small: float, control: float) -> Values:
    gains = {8: small, 16: 0.0, 32: 0.0, 64: five}
    values = {f"width {w}/{k} shots": around(0.5 + (g if k == 5 else one if w == 64 and k else 0))
              for w, g in gains.items() for k in range(6)}  # fmt: skip
    values |= {f"random signs/{k} shots": around(0.5 + (control if k == 5 else 0)) for k in range(6)}
    return values | {f"facts/gpt-mini/{shots} shots": around(0.3) for shots in (0, 12)}


def sums(size: float, examples: float) -> Values:
    values: Values = {}
    for width in gpt3.WIDTHS:
        level = 0.3 + (size if width == 64 else 0)
        values |= {f"+ and -/width {width}/{k} shots": around(level) for k in (0, 5)}
        values |= {f"-/width {width}/{k} shots": around(level) for k in (0, 5)}
        values |= {f"+/width {width}/{k} shots": around(level + (examples if k == 5 else 0)) for k in (0, 5)}
        values[f"held out/width {width}"] = around(0.1)
    return values


def laws(exponent: float, compute: float, off: float) -> Values:
    values = {"loss/872": around(2.9), "loss/99968": around(2.5), "largest residual": [0.0, 0.01, off]}
    return values | {"exponent/parameters": around(exponent, 0.001), "exponent/compute": around(compute, 0.001)}


@pytest.mark.parametrize(
    ("claim", "given", "verdict"),
    [
        ("t5-architectures", ten(5.0, 5.5), YES),
        ("t5-architectures", ten(5.0, 5.2), PARTLY),
        ("t5-architectures", ten(4.8, 5.5), PARTLY),  # sharing costs too much
        ("t5-architectures", ten(5.0, 5.5, without=5.05), NO),
        ("t5-architectures", ten(5.5, 5.2, shared=5.3), PARTLY),
        ("t5-architectures", ten(5.3, 5.2, shared=5.5), NO),
        ("t5-text-to-text", multi(0.8, 0.79), YES),
        ("t5-text-to-text", multi(0.5, 0.5), PARTLY),  # nothing learned
        ("t5-text-to-text", multi(0.8, 0.72), PARTLY),
        ("t5-text-to-text", multi(0.8, 0.6), NO),
        ("t5-text-to-text", multi(0.8, 0.8, formats=0.0), NO),
        ("t5-sizes", sizes((5, 0.2), (4, 0.3), (3, 0.4)), YES),
        ("t5-sizes", sizes((5, 0.2), (3, 0.5), (4, 0.3)), PARTLY),
        ("t5-sizes", sizes((3, 0.4), (4, 0.3), (5, 0.2)), NO),
        ("t5-sizes", sizes((5, 0.2), (4, 0.3), (3, 0.4), off=1.2), NO),
        ("t5-sizes", sizes((5, 0.2), (4, 0.3), (3, 0.4), theirs=1.01), NO),
        ("t5-sizes", sizes((5, 0.2), (4, 0.3), (3, 0.4), rising=3), NO),
        ("gpt2-zero-shot", zero_shot(3, 4), YES),
        ("gpt2-zero-shot", zero_shot(3, 2), PARTLY),  # too few sizes
        ("gpt2-zero-shot", zero_shot(1, 4), PARTLY),
        ("gpt2-zero-shot", zero_shot(3, 4, noise=0.2), NO),  # not clearly
        ("gpt2-zero-shot", zero_shot(0, 4), NO),
        ("gpt2-tldr", tldr(40, 25, 45), YES),
        ("gpt2-tldr", tldr(50, 25, 45), PARTLY),
        ("gpt2-tldr", tldr(28, 25, 45), PARTLY),
        ("gpt2-tldr", tldr(48, 45, 45), NO),
        ("lm-sharpens", sharpens(9, 8, 7, 6, 5, 4, 3), YES),
        ("lm-sharpens", sharpens(9, 8, 7, 8, 5, 4, 3), PARTLY),
        ("lm-sharpens", sharpens(9, 8, 7, 6, 5, 4, 3, entropy=1.0), NO),
        ("prompting", wordings(0.6, 0.4), YES),
        ("prompting", wordings(0.6, 0.55), PARTLY),
        ("prompting", wordings(0.35, 0.2), PARTLY),
        ("prompting", wordings(0.3, 0.25), NO),
        ("in-context-learning", in_context(0.2, 0.4, 0.0, 0.0), YES),
        ("in-context-learning", in_context(0.2, 0.4, 0.0, 0.3), PARTLY),  # any sign would have done
        ("in-context-learning", in_context(0.4, 0.4, 0.0, 0.0), PARTLY),  # one shot is as good as five
        ("in-context-learning", in_context(0.2, 0.4, 0.4, 0.0), PARTLY),
        ("in-context-learning", in_context(0.0, 0.4, 0.4, 0.0), NO),
        ("arithmetic", sums(0.5, 0.2), YES),
        ("arithmetic", sums(0.5, 0.0), PARTLY),
        ("arithmetic", sums(0.0, 0.2), PARTLY),
        ("arithmetic", sums(0.0, 0.0), NO),
        ("scaling-laws", laws(0.03, 0.05, 0.02), YES),
        ("scaling-laws", laws(0.03, 0.05, 0.04), PARTLY),
        ("scaling-laws", laws(0.03, 0.0, 0.04), PARTLY),
        ("scaling-laws", laws(0.0, 0.05, 0.02), NO),
    ],
)
def test_rules(claim: str, given: Values, verdict: str) -> None:
    assert judged(claim, given) == verdict


@pytest.mark.parametrize("claim", ["lm-sharpens", "prompting", "arithmetic"])
def test_a_small_run_has_the_same_figures_with_every_seed(claim: str) -> None:
    test = find(claim)
    assert test is not None
    one, two = (test.measure(Lab(PLANS["smoke"]), seed) for seed in (0, 1))
    assert one.keys() == two.keys()
    assert one != two
    assert test.verdict({name: figure([one[name], two[name]]) for name in one})


def test_the_records_checkpoints() -> None:
    found = family.shipped("gpt-nano", "no such", "gpt-mini")
    assert list(found) == ["gpt-nano", "gpt-mini"]
    assert len(set(found.values())) == 2


def test_half_the_blocks_are_shared() -> None:
    config = replace(t5.Town(t5.SIZES["smoke"], 0).fresh(), scale=True)
    blocks = {
        kind: sum(p.numel() for name, p in build(config).named_parameters() if "blocks" in name)
        for kind, (build, _) in KINDS.items()
    }
    assert blocks["shared"] == blocks["language model"] == blocks["prefix LM"]
    assert blocks["encoder-decoder"] == 2 * blocks["half the layers"] > 2 * blocks["shared"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_judged_by_its_own_tokens(kind: str) -> None:
    town = t5.Town(t5.SIZES["smoke"], 0)
    build, loss = KINDS[kind]
    torch.manual_seed(0)
    model: Any = build(town.fresh()).eval()
    rows = town.task("sentiment", "test")
    batch: Any = town.frame.collate(rows)
    if loss is not losses.seq2seq:
        batch = t5.objectives.joined(batch, vocab=town.vocab)
    with torch.no_grad():
        if loss is losses.seq2seq:
            logits = model(batch["ids"], shift_right(batch["labels"], 0), keep=batch["keep"])
        else:
            mask = t5.masks.prefix(batch["prefix"], batch["ids"].shape[1]) if loss is losses.prefix_lm else None
            logits = model(batch["ids"], keep=batch["keep"], mask=mask)
    counted = [(b, t) for b, row in enumerate(batch["labels"].tolist()) for t, i in enumerate(row)
               if i >= 0 and i not in (town.vocab.cls, town.vocab.sep, town.vocab.unk)]  # fmt: skip
    log_p = logits.log_softmax(-1)
    nats = [-log_p[b, t, batch["labels"][b, t]].item() for b, t in counted]
    right = [int(logits[b, t].argmax() == batch["labels"][b, t]) for b, t in counted]
    said = t5.judged(model, loss, batch, town.special)
    assert len(counted) >= len(rows)
    assert said == (pytest.approx(sum(right) / len(right)), pytest.approx(sum(nats) / len(nats), rel=1e-4))


def test_an_answer_counts_if_its_text_is_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    town = t5.Town(t5.SIZES["smoke"], 0)
    rows = town.task("sentiment", "test")
    positive = town.tokenizer.encode("positive").ids

    def says(model: Any, ids: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.tensor([[0, *positive]] * len(ids))

    monkeypatch.setattr(t5.generate, "generate", says)
    share = sum(row.answer == "positive" for row in rows) / len(rows)
    assert 0 < share < 1
    assert t5.answered(town, town.t5_mini, "sentiment") == (share, 0.0)
    assert t5.answered(town, town.t5_mini, "paraphrase") == (0.0, 1.0)


def test_the_paper_writes_tasks_as_we_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert t5.same_formats()
    monkeypatch.setitem(t5.text_to_text.WORDINGS, "sst2", replace(TASKS["sentiment"], prefix="sst"))
    assert not t5.same_formats()


class Uniform(heads.LM):
    """All tokens alike, always."""

    def __init__(self, vocab: int) -> None:
        super().__init__(Stack(gpt(vocab, width=8, layers=1, heads=1, length=160)))
        torch.nn.init.zeros_(self.stack.embed.tokens.weight)


def test_perplexity_is_of_a_word_not_of_a_token() -> None:
    _, tokenizer, _ = zoo.load("gpt-nano")
    text = "Nadia bought the lamp."
    tokens = len(tokenizer.encode(text, special=False).ids)
    assert tokens > 4
    expected = tokenizer.vocab.size ** (tokens / 4)
    assert gpt2.word_perplexity(Uniform(tokenizer.vocab.size).eval(), tokenizer, [text]) == pytest.approx(
        expected, rel=1e-3
    )


def test_one_sentence_is_written_behind_a_story() -> None:
    model, tokenizer, _ = zoo.load("gpt-nano")
    story = "Paul bought the coin. In short,"
    said = gpt2.continued(model, tokenizer, [story, "On Monday, Nadia", story])
    assert said[0] == said[2] != said[1]
    assert all(text.count(".") == 1 and text.endswith(".") for text in said)


def test_the_lstm_answers_every_story_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpt2.LstmSeq2Seq, "greedy", lambda self, ids, **options: (ids, None))  # says what it reads
    stories = ["nadia bought the old lamp at noon and went home.", "paul bought the coin."]
    assert gpt2.lstm_summaries(stories, gpt2.SIZES["smoke"], 0, "cpu") == stories


@pytest.mark.parametrize("wording", gpt3.WORDINGS)
def test_facts_tell_their_pairs(wording: str) -> None:
    def told(question: Any) -> list[str]:
        """What the sentences before it say of the one asked for."""
        asked = question.left.split(". ")[-1]
        return [choice for choice in question.choices if asked + choice in question.left]

    asked = gpt3.facts(wording, 12, 20, seed=3)
    assert asked == gpt3.facts(wording, 12, 20, seed=3) != gpt3.facts(wording, 12, 20, seed=4)
    assert all(told(question) in ([], [question.answers[0]]) for question in asked)
    assert sum(told(question) == [question.answers[0]] for question in asked) > 15
    wrong = gpt3.facts(wording, 12, 20, seed=3, random_labels=True)
    assert sum(set(told(question)) > {question.answers[0]} for question in wrong) > 5


@pytest.mark.parametrize("back", [4, 1])
def test_the_fact_asked_for_stands_so_many_sentences_back(back: int) -> None:
    (question,) = gpt3.told_once(gpt3.HAD, back, 1, seed=0)
    sentences = question.left.split(". ")
    assert sentences[-1 - back] == sentences[-1] + question.answers[0]


def test_words_are_marked_by_example() -> None:
    for question in gpt3.marked(6, 10, seed=0):
        *shown, asked = question.left.rstrip().rstrip(":").split(". ")
        assert len(shown) == 6
        assert question.answers[0] == ("name" if asked in gpt3.PEOPLE else "thing")
        assert all((word in gpt3.PEOPLE) == (kind == "name") for word, kind in (line.split(": ") for line in shown))


def results(page: list[int]) -> list[tuple[int, int, int, int]]:
    return [(page[i], page[i + 1] - 19, page[i + 2], page[i + 4]) for i in range(0, 36, 6)]


def test_a_page_of_sums_is_right_and_its_sign_means_one_thing() -> None:
    held = {tuple(pair) for pair in gpt3.PROBLEMS[gpt3.HELD].tolist()}
    meanings = set()
    for page in gpt3.pages(200, torch.Generator().manual_seed(0)).tolist():
        lines = results(page)
        assert not {(a, b) for a, _, b, _ in lines} & held
        assert len({sign for _, sign, _, _ in lines}) == 1
        sign = lines[0][1]
        plus, minus = all(a + b == c for a, _, b, c in lines), all(a - b == c for a, _, b, c in lines)
        assert (sign == gpt3.UNKNOWN and (plus or minus)) or (plus if sign == gpt3.PLUS else minus)
        meanings |= {plus} if sign == gpt3.UNKNOWN and plus != minus else set()
    assert meanings == {True, False}


def test_random_signs_mean_both_on_a_page() -> None:
    rng = torch.Generator().manual_seed(0)
    rows = gpt3.pages(50, rng, (gpt3.UNKNOWN,), random_labels=True).tolist()
    mixed = [len({a + b == c for a, _, b, c in results(page) if b}) == 2 for page in rows]
    assert sum(mixed) > 30


def test_sums_are_scored_after_each_number_of_examples() -> None:
    class Adds(torch.nn.Module):
        """Takes every sign for plus, and does not know the first sum."""

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            said = torch.zeros(*ids.shape, 24)
            for b, page in enumerate(ids.tolist()):
                for k, (left, _, right, _) in enumerate(results(page)):
                    said[b, 6 * k + 3, left + right if k else 23] = 1
            return said

    assert gpt3.by_shots(Adds(), 20, 0, (gpt3.PLUS,)) == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert sum(gpt3.by_shots(Adds(), 20, 0, (gpt3.MINUS,))) < 3


def test_a_law_of_losses_that_do_not_fall() -> None:
    exponent, off = gpt3.law([1, 10, 100], [4.0, 2.0, 1.0])
    assert exponent == pytest.approx(0.30103, rel=1e-4)
    assert off < 1e-9
    assert gpt3.law([1, 10, 100], [1.0, 2.0, 4.0]) == (0.0, 1.0)
