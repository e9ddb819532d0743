"""Lesson 12: typical slips in its answers are named, its verdicts follow their rules, its arms read what they say."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch

from course_lib import check, claims, corrupt, cost, heads, hf, lesson, losses, zoo
from course_lib.claims import ledger
from course_lib.config import Disentangled, EmbedConfig, StackConfig
from course_lib.files import read_json
from course_lib.models.albert import albert
from course_lib.models.bert import bert
from course_lib.positions import Crosswise
from course_lib.stack import Stack
from course_lib.tokenizers import train_wordpiece
from tests.unit.lessons import answer, cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]
CELLS = cells_of("12_roberta")

# The folded answers with one slip each, and a word of the sentence that must name it.
PACK, WORDS, COUNT, SCORES = "pack_sentences", "mask_words", "encoder_weights", "disentangled_scores"
CLOSE = "            rows.append([cls] + row + [sep])\n            row = []\n"
SLIPS = [
    (PACK, ("    if row:\n        rows.append([cls] + row + [sep])\n", ""), "last row is missing"),
    (PACK, ("length - 2", "length"), "rows are too long"),
    (PACK, ("length - 2", "length - 1"), "Only one of the two special"),
    (PACK, ("> length - 2", ">= length - 2"), "filled to the last place"),
    (PACK, (f"{CLOSE}        row = row + sentence", f"{CLOSE}        else:\n            row = row + sentence"), "lost"),
    (PACK, ("if row and len(row) + len(sentence) > length - 2", "if row"), "row of its own"),
    (PACK, (" + [sep]", ""), "ends with [SEP]"),
    (PACK, ("[cls] + ", ""), "begins with [CLS]"),
    (PACK, ("[cls] + row + [sep]", "row"), "are missing; length"),
    (PACK, ("[cls] + row + [sep]", "[sep] + row + [cls]"), "exchanged"),
    (WORDS, ("{numbers[i] for i in chosen}", "set(chosen)"), "not numbers of words"),
    (WORDS, ('if n in hidden else piece for n, piece in zip(numbers, pieces)',
             'if i in chosen else piece for i, piece in enumerate(pieces)'), "Only the drawn pieces"),
    (WORDS, ("for i in chosen}", "for i in chosen[:1]}"), "first word drawn"),
    (WORDS, ("for i in chosen}", "for i in chosen[-1:]}"), "last word drawn"),
    (WORDS, ("n in hidden", "n not in hidden"), "everything else is hidden"),
    (WORDS, ("zip(numbers, pieces)]", 'zip(numbers, pieces) if n not in hidden or piece[:2] != "##"]'), "One [MASK]"),
    (WORDS, ("if n in hidden", "if n in hidden and any(i <= j for i in chosen if numbers[i] == n)",
             "for n, piece in zip(", "for j, (n, piece) in enumerate(zip(", "pieces)]", "pieces))]"), "in front of"),
    (WORDS, ("if n in hidden", "if n in hidden and any(i >= j for i in chosen if numbers[i] == n)",
             "for n, piece in zip(", "for j, (n, piece) in enumerate(zip(", "pieces)]", "pieces))]"), "pieces behind"),
    (WORDS, ('"[MASK]" if', '("##" * (piece[:2] == "##") + "[MASK]") if'), "has no ##"),
    (COUNT, ("        table += embed * width\n", "        pass\n"), "projection from `embed`"),
    (COUNT, ("    if embed != width:\n        table", "    table"), "there is no projection"),
    (COUNT, ("(1 if shared else layers)", "layers"), "counted once"),
    (COUNT, ("(1 if shared else layers)", "1"), "every layer has its own"),
    (COUNT, ("1 if shared else layers", "layers if shared else 1"), "other way round"),
    (COUNT, (" + 2 * width * 4 * width", ""), "feed-forward is missing"),
    (COUNT, ("2 * width * 4 * width", "width * 4 * width"), "Four of the twelve"),
    (COUNT, ("4 * width * width + 2", "3 * width * width + 2"), "four matrices (query"),
    (COUNT, ("table = vocab * embed", "table = vocab * width"), "not `width`"),
    (COUNT, ("table = vocab * embed", "table = 0"), "token table is missing"),
    (SCORES, ("(3 * q.shape[1])", "q.shape[1]"), "It divides by sqrt(D)"),
    (SCORES, (" / (3 * q.shape[1]) ** 0.5", ""), "is missing"),
    (SCORES, (" ** 0.5", ""), "take the root"),
    (SCORES, (" + to_position + from_position", ""), "plain attention"),
    (SCORES, (" + from_position", ""), "third term is missing"),
    (SCORES, (" + to_position", ""), "second term is missing"),
    (SCORES, ("content + to", "to"), "Content with content"),
    (SCORES, ("place[:, None] - place", "place - place[:, None]"), "j - i"),
    (SCORES, ("gather(1, delta.T).T", "gather(1, delta).T"), "i - j, too"),
    (SCORES, ("gather(1, delta.T).T", "gather(1, delta)"), "rows are keys"),
    (SCORES, ("q @ kr.T", "q @ qr.T", "k @ qr.T", "k @ kr.T"), "qr and kr are exchanged"),
]  # fmt: skip
RIGHT, WRONG = right_and_wrong(CELLS, SLIPS)


def _cut_anywhere(sentences: Any, length: int, cls: int, sep: int) -> Any:
    tokens = [token for sentence in sentences for token in sentence]
    return [[cls, *tokens[i : i + length - 2], sep] for i in range(0, len(tokens), length - 2)]


def _seps_between(sentences: Any, length: int, cls: int, sep: int) -> Any:
    rows = answer(CELLS, PACK)([[*sentence, sep] for sentence in sentences], length + 1, cls, sep)
    return [row[:-1] for row in rows]


WRONG += [(PACK, _cut_anywhere, "holds whole sentences only"), (PACK, _seps_between, "behind every sentence")]
WRONG += [(WORDS, lambda pieces, chosen: pieces, "Nothing is hidden")]


def _packed(sentences: Any, length: int, cls: int, sep: int) -> Any:
    from course_lib.tokenizers import Vocab

    rows = corrupt.packed_sentences([sentences], vocab=Vocab(100, cls=cls, sep=sep), length=length)
    return [row.ids for row in rows]


def _crosswise(q: Any, k: Any, qr: Any, kr: Any, clip: int) -> Any:
    """By the library's layer, whose projections pick the two halves of its rows."""
    width = q.shape[1]
    config = StackConfig(EmbedConfig(9), width, 1, 1, 4, position=Disentangled(clip))
    layer = Crosswise(config, Disentangled(clip))
    layer.q, layer.k = torch.nn.Linear(2 * width, width), torch.nn.Linear(2 * width, width, bias=False)
    place = torch.arange(len(q))
    index = (place[:, None] - place).clamp(-clip, clip - 1) + clip
    with torch.no_grad():
        layer.q.weight.copy_(torch.eye(2 * width)[:width])
        layer.q.bias.zero_()
        layer.k.weight.copy_(torch.eye(2 * width)[width:])
        factor = config.score_factor
        return (
            q @ k.T * factor + layer((q * factor)[None, None], k[None, None], torch.cat([qr, kr], 1), index[None])[0, 0]
        )


@pytest.mark.parametrize(("name", "other"), [(PACK, _packed), (SCORES, _crosswise)])
def test_the_librarys_answer_passes(name: str, other: Any) -> None:
    assert getattr(check, name)(other).passed


@pytest.mark.parametrize(("embed", "shared"), [(32, False), (8, False), (8, True)])
def test_the_counted_weights_are_the_models(embed: int, shared: bool) -> None:
    config = albert(70, width=32, layers=3, heads=2, embed=embed) if shared else bert(70, width=32, layers=3, heads=2)
    if embed != 32 and not shared:
        config = albert(70, width=32, layers=3, heads=2, embed=embed)
        config = StackConfig(**{**config.__dict__, "shared": False})
    matrices = [
        p for n, p in Stack(config).named_parameters() if p.dim() == 2 and "position" not in n and "segm" not in n
    ]
    assert sum(p.numel() for p in matrices) == answer(CELLS, COUNT)(70, 32, embed, 3, shared)


def test_the_papers_figures_are_the_ledgers() -> None:
    paper = read_json(ROOT / "data" / "papers" / "12_roberta.json")
    for name in ("dynamic-masking", "input-formats", "undertrained"):
        assert paper[name]["rows"] == ledger.claim(name).paper, name


BASE = [4.80, 4.82, 4.84, 4.82]
MARGIN = 3.18 * stdev(BASE) * math.sqrt(1.25)


def test_the_margin_is_that_of_a_further_run() -> None:
    space = _space()
    middle, margin = space["yardstick"](BASE)
    assert (middle, margin) == (pytest.approx(mean(BASE)), pytest.approx(MARGIN))
    said = [space["judged"](middle + step * margin, BASE) for step in (-1.01, -0.99, 0.99, 1.01)]
    assert said == ["better", "no difference", "no difference", "worse"]


def _space() -> dict[str, Any]:
    return run_cell(CELLS, "margin", {"mean": mean, "stdev": stdev, "math": math, "claims": claims})


def _dynamic(single: float, ten: float) -> dict[str, Any]:
    return {"dynamic": BASE, "scores": {"ten masks in turn": ten, "a single mask": single}}


def _formats(segment: float, sentence: float, document: float) -> dict[str, Any]:
    by_format = {"segment-pair": segment, "sentence-pair": sentence, "doc-sentences": document}
    return {"by_format": by_format, "base": BASE, "margin": MARGIN}


def _more(few: float, batch: float, steps: float) -> dict[str, Any]:
    changed = {"a dozen documents": few, "twice the batch": batch, "twice the steps": steps}
    return {"changed": changed, "base": BASE, "margin": MARGIN}


def _words(easier: bool, score: float) -> dict[str, Any]:
    return {"easier": easier, "tags_by_words": score, "tags": 0.5, "spread": 0.1}


def _relatives(counts: bool, albert: float, spans: float, harder: bool, deberta: float) -> dict[str, Any]:
    return {
        "counts_hold": counts, "losses_": {"both (ALBERT)": albert, "disentangled (DeBERTa)": deberta},
        "plainly": BASE, "on_spans": BASE, "harder": harder, "by_spans": None, "surprise": lambda *_: (spans, 0.0),
    }  # fmt: skip


VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("dynamic-verdict", _dynamic(5.5, 4.82), "reproduced"),
    ("dynamic-verdict", _dynamic(5.5, 5.0), "reproduced"),
    ("dynamic-verdict", _dynamic(4.83, 4.82), "partly"),
    ("dynamic-verdict", _dynamic(5.5, 4.5), "not at this scale"),
    ("dynamic-verdict", _dynamic(4.5, 4.82), "not at this scale"),
    ("formats-verdict", _formats(5.0, 5.0, 4.82), "reproduced"),
    ("formats-verdict", _formats(5.0, 5.0, 4.5), "reproduced"),
    ("formats-verdict", _formats(5.0, 5.0, 5.0), "partly"),
    ("formats-verdict", _formats(4.82, 5.0, 4.8), "partly"),
    ("formats-verdict", _formats(4.82, 4.84, 4.8), "not at this scale"),
    ("more-verdict", _more(5.0, 4.6, 4.5), "reproduced"),
    ("more-verdict", _more(4.82, 4.6, 4.5), "partly"),
    ("more-verdict", _more(4.82, 4.82, 5.0), "not at this scale"),
    ("whole-verdict", _words(True, 0.7), "reproduced"),
    ("whole-verdict", _words(True, 0.55), "partly"),
    ("whole-verdict", _words(False, 0.7), "partly"),
    ("whole-verdict", _words(False, 0.2), "not at this scale"),
    ("relatives-verdict", _relatives(True, 4.82, 4.5, True, 4.5), "reproduced"),
    ("relatives-verdict", _relatives(False, 4.82, 4.5, True, 4.5), "partly"),
    ("relatives-verdict", _relatives(True, 5.0, 4.5, False, 4.5), "partly"),
    ("relatives-verdict", _relatives(True, 5.0, 4.82, True, 4.83), "not at this scale"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cell(CELLS, cell, _space() | given)
    said = capsys.readouterr().out
    assert f"this run: {verdict}" in said, said


def _lesson(data: str = "world", out: str = "") -> dict[str, Any]:
    """What stands before the first training, at smoke scale."""
    space: dict[str, Any] = {}
    start = next(cell.source for cell in CELLS if cell.id == "start")
    exec(start.split("run = lesson.start")[0], space)
    space["run"] = lesson.start("smoke", 0, "cpu", data, out)
    for cell in ("text", "rows", "model", "learn", "dynamic-run"):
        run_cell(CELLS, cell, space)
    return space | {"full": space["rows_of"](space["documents"])}


@pytest.fixture(scope="module")
def small() -> dict[str, Any]:
    return _lesson()


def test_all_formats_read_equally_much_in_a_step(small: dict[str, Any]) -> None:
    for form in ("segment-pair", "sentence-pair", "full-sentences", "doc-sentences"):
        rows = small["rows_of"](small["documents"], form)
        plan = small["schedule"](rows, 0, 40, 780)
        read = [sum(len(rows[i].ids) for _, i in picked) for picked in plan]
        assert mean(read) == pytest.approx(780, rel=0.05), form


def test_rows_come_again_only_after_all_have_been_read(small: dict[str, Any]) -> None:
    plan = [pair for picked in small["schedule"](small["full"], 0, 60, 780) for pair in picked]
    count = len(small["full"])
    assert len(plan) > count and sorted(i for _, i in plan[:count]) == list(range(count))
    assert [epoch for epoch, _ in plan[:count]] == [0] * count and plan[count][0] == 1


def _asked(batch: dict[str, Any]) -> Any:
    return batch["at"].tolist()


def test_stored_masks_come_again_and_dynamic_ones_do_not(small: dict[str, Any]) -> None:
    rows = small["full"]

    def at(epoch: int, step: int, copies: int | None) -> Any:
        return _asked(small["batch_of"](rows, [(epoch, 0), (epoch, 3)], step, 0, "token", copies))

    assert at(0, 0, 1) == at(5, 9, 1)
    assert at(0, 0, 10) == at(10, 9, 10) != at(1, 0, 10)
    assert at(0, 0, None) != at(0, 1, None)


@pytest.mark.parametrize("unit", ["word", "span"])
def test_the_exams_hide_what_they_say(small: dict[str, Any], unit: str) -> None:
    exam = small["exams"][unit]
    text = torch.where(exam["at"], exam["labels"], exam["ids"])
    numbers = small["words"].words(text)
    torn = 0
    for number, at in zip(numbers, exam["at"], strict=True):
        torn += sum(not bool(at[number == n].all()) for n in set(number[at].tolist()))
    assert torn == 0


def test_a_pair_arm_learns_both_tasks_and_is_examined_like_the_others(small: dict[str, Any]) -> None:
    rows = small["rows_of"](small["documents"], "segment-pair")
    batch = small["batch_of"](rows, [(0, 0), (0, 1)], 0, 0, "token", None)
    assert set(batch["next"].tolist()) <= {0, 1} and batch["segments"].max() == 1
    model, _ = small["arm"](rows)
    nats, share = small["surprise"](model)
    exam = small["exams"]["token"]
    out, labels = model(exam["ids"], keep=exam["keep"], at=exam["at"])[0], exam["labels"][exam["at"]]
    assert isinstance(model, heads.Pretraining) and nats == pytest.approx(losses.cross_entropy(out, labels).item())
    assert share == pytest.approx((out.argmax(-1) == labels).float().mean().item())


def test_the_texts_may_be_a_students_own(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(
        "\n\n".join(f"Paul sold page {i}. It was old! " * 9 for i in range(40)), "utf-8"
    )
    space = _lesson(str(tmp_path), str(tmp_path / "out"))
    assert "sold" in space["words"].decode(space["full"][0].ids)
    model, _ = space["arm"](space["full"])
    assert math.isfinite(space["surprise"](model)[0])


def _public(folder: Path, words: Any, kind: str) -> Path:
    torch.manual_seed(0)
    maker = albert if kind == "albert" else bert
    options = {"embed": 8} if kind == "albert" else {}
    model = heads.MLM(Stack(maker(words.vocab.size, width=16, layers=1, heads=2, length=32, **options)))
    hf.save_pretrained(model, folder, model_type=kind, architecture=f"{kind.capitalize()}ForMaskedLM")
    words.save(folder)
    return folder


@pytest.mark.parametrize(("kind", "form"), [("bert", "hub:{}"), ("bert", "{}"), ("albert", "{}")])
def test_a_public_model_answers_through_the_same_cell(
    tmp_path: Path, kind: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = train_wordpiece(["Nadia bought the lamp. Paul walked through the garden."] * 3, 90)
    source = next(cell.source for cell in CELLS if cell.id == "public-ask")
    assert 'PUBLIC = ""' in source
    exec(
        source.replace('PUBLIC = ""', f'PUBLIC = "{form.format(_public(tmp_path, words, kind))}"'),
        {"zoo": zoo, "torch": torch},
    )
    assert capsys.readouterr().out.count("%") == 9


def test_alberts_sizes_are_the_papers() -> None:
    from course_lib.models import albert as sizes

    theirs: dict[str, Any] = read_json(ROOT / "data" / "papers" / "12_roberta.json")["span-and-sharing"]["albert"][
        "rows"
    ]
    makers: Sequence[tuple[str, Any]] = [(n, getattr(sizes, n.lower().replace("-", "_"))) for n in theirs if "AL" in n]
    assert len(makers) == 4
    for name, make in makers:
        counted = cost.parameters(lambda make=make: heads.Pooled(Stack(make()))) / 1e6
        assert abs(counted / theirs[name] - 1) < 0.06, name
