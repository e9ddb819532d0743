"""Lesson 16: typical slips in its answers are named, its verdicts follow their rules, its doors open."""

import json
import random
from collections import Counter
from math import log, sqrt
from pathlib import Path
from statistics import mean, variance
from typing import Any

import pytest
import torch
from rouge_score.rouge_scorer import RougeScorer

from course_lib import check, claims, corrupt, data, generate, hf, lesson, seq2seq, view, zoo
from course_lib.claims import ledger
from course_lib.files import read_json
from course_lib.models.bart import bart, bart_lm
from course_lib.tokenizers import train_wordpiece
from tests.unit.lessons import cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]
CELLS = cells_of("16_bart")

MASK = "torch.tensor([mask])"
TAIL = "[*pieces, ids[done:]]"
DONE = "done = start + length"
PUT = f"pieces += [ids[done:start], {MASK}]"
KEPT = "if len(piece)]"
ORDERED = "[sentences[i] for i in order]"
F = "2 * p * r / (p + r)"
CLIPPED = "(a & b).total()"

# The folded answers with one slip each, and a word of the sentence that must name it.
SLIPS = [
    ("infill", (MASK, "torch.full((length,), mask)"), "a mask of its own"),
    ("infill", (PUT, f"pieces += [ids[done:start], {MASK}] if length else [ids[done:start]]"), "length 0 are left out"),
    ("infill", (DONE, "done = start + max(length, 1)"), "swallows a token"),
    ("infill", (PUT, "pieces += [ids[done:start]]"), "that is deletion"),
    ("infill", (TAIL, "[ids[:0], *pieces]"), "what follows it is lost"),
    ("infill", (DONE, "done = start"), "still there"),
    ("infill", (DONE, "done = start + max(length - 1, 0)"), "is left of each span"),
    ("infill", (DONE, "done = start + length + 1"), "goes with each span"),
    ("permute_sentences", (ORDERED, "sentences"), "as it was"),
    ("permute_sentences", (ORDERED, "[sentences[order.index(i)] for i in range(len(order))]"), "other way round"),
    ("permute_sentences", ("[:, 0] + 1", "[:, 0]"), "begins the next one"),
    ("permute_sentences", (ORDERED, "[sentences[i][sentences[i] != end] for i in order]"), "full stops are gone"),
    ("permute_sentences", (KEPT, "if len(piece) and piece[-1] == end]", ORDERED,
                           "[sentences[i] for i in order if i < len(sentences)]"), "is lost; it counts"),
    ("permute_sentences", (ORDERED, "[sentences[i].flip(0) for i in order]"), "turned round"),
    ("permute_sentences", (f"torch.cat({ORDERED})", ORDERED), "list of sentences"),
    ("permute_sentences", (ORDERED, "sentences[::-1]"), "reverse order"),
    ("rouge_n", (F, "r"), "recall alone"),
    ("rouge_n", (F, "p"), "precision alone"),
    ("rouge_n", (F, "(p + r) / 2"), "arithmetic mean"),
    ("rouge_n", (F, "p * r"), "product of"),
    ("rouge_n", (F, "p * r / (p + r)"), "The 2 of"),
    ("rouge_n", ("(Counter(tuple(w[i : i + n]) for i in range(len(w) - n + 1)) for w",
                 "(Counter({tuple(w[i : i + n]) for i in range(len(w) - n + 1)}) for w"), "as sets"),
    ("rouge_n", (CLIPPED, "sum(a[g] for g in a if g in b)", "r = shared / a.total(), shared / b.total()",
                 "r = shared / a.total(), sum(b[g] for g in b if g in a) / b.total()"), "as often as"),
    ("rouge_n", ("w[i : i + n]) for i in range(len(w) - n + 1)", "w[i : i + 1]) for i in range(len(w))"), "n is not"),
    ("rouge_n", ("    if shared == 0:\n        return 0.0\n", "", "shared / a.total(), shared / b.total()",
                 "shared / max(1, a.total()), shared / max(1, b.total())"), "divides by 0"),
    ("rouge_n", ("shared / a.total(), shared / b.total()", "shared / len(said), shared / len(right)"), "n - 1"),
    ("rouge_n", (F, f"100 * {F}"), "between 0 and 100"),
    ("rouge_n", ("len(w) - n + 1", "len(w) - n"), "last n-gram"),
]  # fmt: skip


RIGHT, WRONG = right_and_wrong(CELLS, SLIPS)


def _from_left(ids: Any, spans: Any, mask: int) -> Any:
    said = ids.tolist()
    for start, length in spans:
        said[start : start + length] = [mask]
    return torch.tensor(said)


WRONG.append(("infill", _from_left, "at wrong places"))


def _from_right(ids: Any, spans: Any, mask: int) -> Any:
    said = ids.tolist()
    for start, length in reversed(spans):
        said[start : start + length] = [mask]
    return torch.tensor(said)


def _by_token(ids: Any, end: int, order: Any) -> Any:
    sentences: list[list[int]] = [[]]
    for token in ids.tolist():
        sentences[-1].append(token)
        if token == end:
            sentences.append([])
    return torch.tensor([token for i in order for token in sentences[i]])


def _by_removal(said: Any, right: Any, n: int) -> float:
    a, b = ([tuple(w[i : i + n]) for i in range(len(w) - n + 1)] for w in (said, right))
    shared, left = 0, list(b)
    for gram in a:
        if gram in left:
            left.remove(gram)
            shared += 1
    return 2 * shared / (len(a) + len(b)) if a or b else 0.0


@pytest.mark.parametrize(
    ("name", "other"),
    [("infill", _from_right), ("permute_sentences", _by_token), ("rouge_n", _by_removal)],
)
def test_another_right_answer_passes(name: str, other: Any) -> None:
    assert getattr(check, name)(other).passed


def test_the_answers_are_the_librarys() -> None:
    ids, spans = torch.arange(5, 15), [(1, 3), (5, 0), (7, 2)]
    assert torch.equal(RIGHT["infill"](ids, spans, 4), corrupt.denoising.infill(ids, spans, 4))
    said, right = ["the", "old", "lamp", "is", "old"], ["the", "lamp", "is", "old", "now"]
    for n in (1, 2):
        theirs = RougeScorer([f"rouge{n}"]).score(" ".join(right), " ".join(said))[f"rouge{n}"].fmeasure
        assert RIGHT["rouge_n"](said, right, n) == pytest.approx(theirs)


def test_the_papers_figures_are_the_ledgers() -> None:
    paper = read_json(ROOT / "data" / "papers" / "16_bart.json")
    noise, ours = dict(ledger.claim("bart-which-noise").paper), paper["bart-which-noise"]
    assert [column.split()[0] for column in noise.pop("columns")] == ours["columns"]
    assert noise == ours["rows"]
    understanding = ledger.claim("bart-classifies-too").paper
    assert {n: [str(x) for x in row.values()] for n, row in understanding.items()} == {
        n: [str(x) for x in row] for n, row in paper["bart-classifies-too"]["rows"].items()
    }
    writing = ledger.claim("bart-generates").paper
    assert {name: paper["bart-generates"][name] for name in ("CNN/DM", "XSum", "ELI5")} == {
        name: writing[name] for name in ("CNN/DM", "XSum", "ELI5")
    }
    names = {"baseline": "baseline", "fixed BART": "fixed BART", "tuned BART": "tuned BART"}
    assert paper["bart-generates"]["RO-EN"] == {names[n]: x for n, x in writing["RO-EN"].items()}


class _Run:
    seed = 0
    generator = staticmethod(lambda offset: torch.Generator().manual_seed(offset))


def _around(*means: float, spread: float = 0.1) -> list[list[float]]:
    """Three seeds around each mean; the standard error of a difference is 0.8 spreads."""
    return [[value - spread, value, value + spread] for value in means]


def _noise(*means: float) -> dict[str, Any]:
    """Perplexities after masking, deletion, infilling, permutation, rotation."""
    seeds = _around(*means, spread=0.01)
    return {"found": {name: {"perplexity": row} for name, row in zip(corrupt.NOISES, seeds, strict=True)}}


def _judged(bart_: float, encoder: float, born: float, spread: float = 1.0) -> dict[str, Any]:
    names = ("BART", "encoder", "BART, not pretrained")
    return {"scores": dict(zip(names, _around(bart_, encoder, born, spread=spread), strict=True))}


def _written(bart_score: float, scratch: float, tuned: float) -> dict[str, Any]:
    rows = dict(zip(("Transformer, not pretrained", "BART"), _around(scratch, bart_score, spread=1), strict=True))
    bleu = dict(zip(("baseline", "frozen", "tuned"), _around(20, 18, tuned, spread=1), strict=True))
    rouge = {name: {"rouge2": row} for name, row in (rows | {"Lead-1": [10.0]}).items()}
    return {"rouge": rouge, "bleu": bleu, "SEEDS": [0, 1, 2]}


NOISES = list(corrupt.NOISES)
VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("noise-verdict", {"kept": dict.fromkeys(NOISES, 5)}, "reproduced"),
    ("noise-verdict", {"kept": dict.fromkeys(NOISES, 5) | {NOISES[0]: 4}}, "not reproduced"),
    ("arms-verdict", _noise(1.2, 1.2, 1.1, 1.5, 1.5), "reproduced"),
    ("arms-verdict", _noise(1.11, 1.2, 1.1, 1.5, 1.5), "partly"),  # masking is within two standard errors
    ("arms-verdict", _noise(1.2, 1.2, 1.1, 1.5, 1.2), "partly"),  # rotation is no worse than masking
    ("arms-verdict", _noise(1.1, 1.1, 1.1, 1.1, 1.1), "not reproduced"),
    ("arms-verdict", _noise(1.5, 1.5, 1.5, 1.1, 1.1), "not reproduced"),
    ("classify-verdict", _judged(90, 91, 50), "reproduced"),
    ("classify-verdict", _judged(95, 90, 50), "reproduced"),
    ("classify-verdict", _judged(90, 91, 50, spread=5), "partly"),
    ("classify-verdict", _judged(80, 90, 50), "not reproduced"),
    ("classify-verdict", _judged(50, 51, 50), "not at this scale"),
    ("classify-verdict", _judged(90, 90, 95), "not at this scale"),
    ("generates-verdict", _written(50, 40, 25), "reproduced"),
    ("generates-verdict", _written(50, 40, 21), "partly"),  # one point of BLEU is less than two standard errors
    ("generates-verdict", _written(41, 40, 25), "partly"),
    ("generates-verdict", _written(41, 40, 19), "not reproduced"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    space: dict[str, Any] = {"claims": claims, "mean": mean, "variance": variance, "corrupt": corrupt, "run": _Run}
    space |= {"math": _Math, "texts": 5, "lengths": [3, 0], "view": view}
    if cell != "arms-verdict":  # where the lesson says what a clear difference is
        run_cell(CELLS, "arms-verdict", space | _noise(1, 1, 1, 1, 1))
        space |= _with_clearly(space)
    capsys.readouterr()
    run_cell(CELLS, cell, space | given)
    said = capsys.readouterr().out
    assert f"this run: {verdict} " in said.replace("\n", " "), said


class _Math:
    log, sqrt = staticmethod(log), staticmethod(sqrt)


def _with_clearly(space: dict[str, Any]) -> dict[str, Any]:
    return {"clearly": run_cell(CELLS, "arms-verdict", space | _noise(1, 1, 1, 1, 1))["clearly"]}


def test_a_difference_within_two_standard_errors_is_none() -> None:
    space: dict[str, Any] = {"claims": claims, "mean": mean, "variance": variance, "corrupt": corrupt, "math": _Math}
    clearly = _with_clearly(space)["clearly"]
    assert clearly([5.0, 5.1, 4.9], [4.0, 4.1, 3.9]) and not clearly([4.0, 4.1, 3.9], [5.0, 5.1, 4.9])
    assert not clearly([5.0, 3.0, 4.6], [4.0, 4.4, 3.9])


def test_every_property_is_missed_by_the_other_corruptions() -> None:
    """The exact claim's test is no rubber stamp: no corruption has another one's property."""
    vocab = zoo.load("bert-mini").tokenizer.vocab
    text, ends = torch.arange(10, 60), (19, 29, 39)
    real = dict(corrupt.NOISES)
    try:
        for name in real:
            for other, noise in real.items():
                corrupt.NOISES[name] = _as(name, noise, ends)
                space: dict[str, Any] = {"corrupt": corrupt, "vocab": vocab, "run": _Run, "torch": torch}
                run_cell(CELLS, "noise-properties", space)
                whole = next(cell.source for cell in CELLS if cell.id == "noise-whole")
                exec(whole.split("\n\n\n")[0], space)
                found = [space["holds"](name, text, ends, corrupt.generator(seed)) for seed in range(8)]
                assert all(found) if name == other else not all(found), (name, other)
    finally:
        corrupt.NOISES.update(real)


def _as(name: str, noise: Any, ends: tuple[int, ...]) -> Any:
    def called(text: Any, rng: Any, *, vocab: Any, **options: Any) -> Any:
        more = {"ends": ends} if noise is corrupt.denoising.sentence_permutation else {}
        return noise(text, rng, vocab=vocab, **more)

    return called


def test_a_public_bart_comes_through_the_lessons_door(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The hub's cell, on a local folder in the hub's layout."""
    words = train_wordpiece(["The Transformer was new in 2017."] * 3, 200, lowercase=False)
    torch.manual_seed(0)
    model = bart_lm(bart(words.vocab.size, width=16, layers=1, heads=2, length=64), start=words.vocab.sep or 0)
    hf.save_pretrained(model, tmp_path, model_type="bart", architecture="BartForConditionalGeneration")
    words.save(tmp_path)
    source = next(cell.source for cell in CELLS if cell.id == "public")
    space = {"zoo": zoo, "torch": torch, "generate": generate}
    exec(source, space)
    assert "nothing is fetched" in capsys.readouterr().out
    exec(source.replace('PUBLIC = ""', f'PUBLIC = "{tmp_path}"'), space)
    assert "nothing is fetched" not in capsys.readouterr().out
    assert space["out"].shape[0] == 1


def test_rouge_is_blind_as_the_lesson_says() -> None:
    person, machine = ["Mara", "sold", "the", "old", "lamp", "."], ["the", "old", "lamp", "sold", "Mara", "."]
    assert Counter(person) == Counter(machine)
    assert RIGHT["rouge_n"](machine, person, 1) == 1.0
    assert RIGHT["rouge_n"](machine, person, 2) < 0.5


def test_the_stories_may_be_a_students_own(tmp_path: Path) -> None:
    """The door that `hub:NAME` takes too: a source with the columns `text` and `target`."""
    rows = [{"text": f"My {i} cats sleep. It rains.", "target": f"{i} cats."} for i in range(90)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    run = lesson.start("smoke", 0, "auto", str(tmp_path), str(tmp_path / "out"))
    tokenizer = zoo.load("bert-mini").tokenizer
    space = run_cell(CELLS, "stories", {"run": run, "data": data, "view": view, "tokenizer": tokenizer})
    assert len(space["short"]) == 80 and {row["target"] for row in space["short"]} <= {row["target"] for row in rows}


def test_a_story_of_the_corner_is_its_summary_and_more() -> None:
    space = run_cell(CELLS, "corner-words", {})
    tell = run_cell(CELLS, "corner-tell", space)["tell"]
    for seed in range(50):
        row = tell(random.Random(seed))
        short = row["target"].split()
        left = iter(row["text"].split())
        assert all(word in left for word in short if word not in ("and", ".")), row  # in this order
        assert len(row["text"].split()) > len(short) and short.count("and") == 1
        things = [short[3], short[8]]
        assert [things[i] in space["KINDS"][row["kinds"][i]][1] for i in (0, 1)] == [True, True]


def test_bart_mini_looks_the_word_up() -> None:
    """Where the words before say which fact is meant."""
    space: dict[str, Any] = {"zoo": zoo, "view": view, "torch": torch, "seq2seq": seq2seq}
    rows = run_cell(CELLS, "denoise-shipped", space)["rows"]
    assert [row["hidden"] for row in rows] == ["paul", "nadia", "lamp", "nadia"]
    assert [row["bart-mini says"] for row in rows[:2]] == ["paul", "nadia"]
