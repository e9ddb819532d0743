"""Lesson 17: typical slips in its answers are named, every claim is in it, its verdicts follow their rules."""

from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
import yaml

from course_lib import check, claims, corrupt, cost, data, generate, hf, lesson, losses, masks, mixing, view, zoo
from course_lib.files import read_json
from course_lib.layers import RMSNorm
from course_lib.models.t5 import T5_SIZES, t5, t5_lm, t5_size
from course_lib.seq2seq import shift_right
from course_lib.tokenizers import train_wordpiece
from tests.unit.lessons import answer, cells_of, right_and_wrong, run_cell

ROOT = Path(__file__).resolve().parents[2]
CELLS = cells_of("17_t5")


@pytest.fixture(scope="module")
def paper() -> Any:
    return read_json(ROOT / "data" / "papers" / "17_t5.json")


# The folded answers with one slip each, and a word of the sentence that must name it.
RMS, SPANS, MASK, MIX = "rms_norm", "corrupt_spans", "prefix_mask", "mixing_rates"
SLIPS = [
    (RMS, ("    mean_square", "    x = x - x.mean(-1, keepdim=True)\n    mean_square"), "mean is subtracted"),
    (RMS, (" + 1e-6", ""), "Epsilon is missing"),
    (RMS, ("(mean_square + 1e-6).sqrt()", "(mean_square.sqrt() + 1e-6)"), "inside the square root"),
    (RMS, (".mean(-1", ".sum(-1"), "added up, not averaged"),
    (RMS, (".sqrt()", ""), "mean square itself"),
    (RMS, (" * weight", ""), "weight is missing"),
    (RMS, (" * weight", " + weight"), "weight is added"),
    (RMS, ("(x * x).mean(-1, keepdim=True)", "x.var(-1, keepdim=True, unbiased=False)"), "standard deviation"),
    (RMS, ("mean(-1", "mean(-2"), "over the words"),
    (RMS, ("mean(-1, keepdim=True)", "mean()"), "One scale for all words"),
    (SPANS, (" + [sentinels[len(spans)]]", ""), "without its last sentinel"),
    (SPANS, ("return read + tokens[done:], said + [sentinels[len(spans)]]",
             "return said + [sentinels[len(spans)]], read + tokens[done:]"), "exchanged"),
    (SPANS, ("tokens[done:start] + [mark]", "tokens[done:start]"), "without a trace"),
    (SPANS, ("tokens[done:start] + [mark]", "tokens[done:start] + [mark] * length"), "sentinel of its own"),
    (SPANS, ("zip(sentinels, spans)", "zip([sentinels[0]] * 9, spans)", "[sentinels[len(spans)]]", "[sentinels[0]]"),
     "same sentinel"),
    (SPANS, ("said + [sentinels[len(spans)]]", "tokens"), "whole text"),
    (SPANS, ("said += [mark] + tokens", "said += tokens", " + [sentinels[len(spans)]]", ""), "lacks the sentinels"),
    (SPANS, ("said += [mark] + tokens", "said += tokens"), "only the last one"),
    (SPANS, ("[mark] + tokens[start : start + length]", "tokens[start : start + length] + [mark]"), "not behind it"),
    (SPANS, ("done = start + length", "done = length", "start : start + length", "start:length"), "not (start, stop)"),
    (SPANS, ("read + tokens[done:]", "read"), "behind the last span"),
    (SPANS, ("done = start + length", "done = start"), "still in the input"),
    (MASK, ("causal | keys", "causal"), "This is the causal mask"),
    (MASK, ("causal | keys", "torch.ones_like(causal)"), "Everybody sees everybody"),
    (MASK, ("causal | keys", "causal | keys[:, None]"), "see the target"),
    (MASK, ("< source", "< source - 1"), "too few"),
    (MASK, ("< source", "<= source"), "too many"),
    (MASK, ("causal | keys", "~(causal | keys)"), "exchanged; True"),
    (MASK, ("causal | keys", "(causal | keys).T"), "row is a query"),
    (MASK, ("causal | keys", "(keys[:, None] & keys) | (causal & ~keys)"), "must, there is no cross-attention"),
    (MASK, ("causal | keys", "keys.expand(length, length).clone()"), "beginning of itself"),
    (MASK, ("causal | keys", "keys[:, None] & keys"), "nothing at all"),
    (MIX, ("min(size, limit)", "size"), "limit is not used"),
    (MIX, (" ** (1 / temperature)", ""), "temperature changes nothing"),
    (MIX, ("min(size, limit) ** (1 / temperature)", "size"), "plain proportions"),
    (MIX, ("(1 / temperature)", "temperature"), "The power is 1"),
    (MIX, ("[weight / sum(weights) for weight in weights]", "weights"), "divide by their sum"),
    (MIX, ("min(size, limit)", "(min(size, limit) / sum(min(s, limit) for s in sizes))",
           "[weight / sum(weights) for weight in weights]", "weights"), "before the power"),
    (MIX, ("min(", "max("), "larger of the two"),
    (MIX, ("min(size, limit) ** (1 / temperature)", "min(size ** (1 / temperature), limit)"), "limit comes first"),
    (MIX, ("** (1 / temperature)", "/ temperature"), "temperature changes nothing"),
    (MIX, ("min(size, limit) ** (1 / temperature)", "1"), "equal mixing"),
]  # fmt: skip
RIGHT, WRONG = right_and_wrong(CELLS, SLIPS)


@pytest.mark.parametrize("name", [RMS, SPANS, MASK, MIX])
def test_the_folded_answer_is_right(name: str) -> None:
    assert getattr(check, name)(answer(CELLS, name)).passed


def _spans_by_place(tokens: list[str], spans: list[tuple[int, int]], sentinels: list[str]) -> Any:
    numbers = corrupt.mark_spans(torch.arange(len(tokens)), spans, range(100, 100 + len(sentinels)))
    return tuple([sentinels[i - 100] if i >= 100 else tokens[i] for i in ids.tolist()] for ids in numbers)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        (RMS, lambda x, w: torch.nn.functional.rms_norm(x, x.shape[-1:], w, 1e-6)),
        (SPANS, _spans_by_place),
        (MASK, lambda s, t: masks.prefix(torch.tensor([s]), t)[0, 0]),
        (MIX, lambda n, k, t: mixing.temperature_scaled(n, t, limit=k)),
    ],
)
def test_another_right_answer_passes(name: str, other: Any) -> None:
    assert getattr(check, name)(other).passed


def test_the_answer_is_the_librarys_norm() -> None:
    x = torch.randn(5, 8)
    assert torch.allclose(answer(CELLS, RMS)(x, torch.ones(8)), RMSNorm(8, 1e-6)(x), atol=1e-6)


def test_the_papers_figures_are_the_ledgers(paper: Any) -> None:
    ledger = {e["id"]: e for e in yaml.safe_load((ROOT / "data" / "claims.yaml").read_text("utf-8"))}
    theirs = ledger["t5-architectures"]["paper"]
    assert theirs["columns"][3:] == paper["t5-architectures"]["columns"]
    keys = ("architecture", "objective", "params", "cost")
    ours = [[*(row[key] for key in keys), *row["scores"]] for row in paper["t5-architectures"]["rows"]]
    assert ours == theirs["rows"]
    sizes = ledger["t5-sizes"]["paper"]
    for name, row in paper["t5-sizes"]["rows"].items():
        em, f1, superglue, rte = row["scores"]
        assert [float(x) for x in sizes["SQuAD EM/F1"][name].split("/")] == [em, f1]
        assert (float(sizes["SuperGLUE"][name]), float(sizes["RTE"][name])) == (superglue, rte)
        label = sizes["params"][name]
        assert row["millions"] == float(label[:-1]) * (1000 if label.endswith("B") else 1)
    example = paper["t5-span-corruption"]
    assert ledger["t5-span-corruption"]["says"] == f'"{example["input"]}" -> "{example["target"]}"'


def _spans(letters: bool = True, hidden: float = 0.15, back: bool = True) -> dict[str, Any]:
    row = {"corpus": "town", "texts": 9, "hidden": hidden, "mean span": 3.1, "restored": back}
    return {"letters": letters, "pages": ["town"], "counted": lambda name: dict(row)}


def _ten(first: float, lm: float, shared: float = 5.03, without: float = 6.0) -> dict[str, Any]:
    kinds = ("encoder-decoder", "shared", "half the layers", "language model", "prefix LM")
    score = {(kind, "denoising"): 5.3 for kind in kinds} | {(kind, "LM"): lm for kind in kinds}
    score |= {("encoder-decoder", "denoising"): first, ("shared", "denoising"): shared}
    return {"score": score, "ARMS": kinds, "without": without}


def _multi(apart: float, together: float, formats: bool = True) -> dict[str, Any]:
    names = ("sentiment", "paraphrase", "translation")
    scores = {"apart": {n: ([], apart) for n in names}, "together": {n: ([], together) for n in names}}
    return scores | {"taught": names, "same_formats": formats}


def _sizes(*rows: tuple[float, float], off: float = 1.0) -> dict[str, Any]:
    ours = [{"width": 32, "parameters": 9, "loss": loss, "tokens": share} for loss, share in rows]
    counts = {name: 1e6 * off * millions for name, millions in MILLIONS.items()}
    return {"ours": ours, "counts": counts, "rising": True}


MILLIONS = {"small": 60, "base": 220, "large": 770, "3B": 3000, "11B": 11000}
VERDICTS: list[tuple[str, dict[str, Any], str]] = [
    ("claim-verdict", _spans(), "reproduced"),
    ("claim-verdict", _spans(hidden=0.2), "partly"),
    ("claim-verdict", _spans(back=False), "partly"),
    ("claim-verdict", _spans(letters=False), "not at this scale"),
    ("ten-verdict", _ten(5.0, 5.5), "reproduced"),
    ("ten-verdict", _ten(5.0, 5.2), "partly"),
    ("ten-verdict", _ten(4.8, 5.5), "partly"),
    ("ten-verdict", _ten(5.0, 5.5, without=5.05), "not at this scale"),
    ("ten-verdict", _ten(5.5, 5.2, shared=5.3), "partly"),
    ("ten-verdict", _ten(5.3, 5.2, shared=5.5), "not at this scale"),
    ("multi-verdict", _multi(80, 79), "reproduced"),
    ("multi-verdict", _multi(80, 90), "reproduced"),
    ("multi-verdict", _multi(50, 50), "partly"),
    ("multi-verdict", _multi(80, 72), "partly"),
    ("multi-verdict", _multi(80, 60), "not at this scale"),
    ("multi-verdict", _multi(80, 80, formats=False), "not at this scale"),
    ("sizes-verdict", _sizes((5, 0.2), (4, 0.3), (3, 0.4)), "reproduced"),
    ("sizes-verdict", _sizes((5, 0.2), (3, 0.5), (4, 0.3)), "partly"),
    ("sizes-verdict", _sizes((3, 0.4), (4, 0.3), (5, 0.2)), "not at this scale"),
    ("sizes-verdict", _sizes((5, 0.2), (4, 0.3), (3, 0.4), off=1.2), "not at this scale"),
]


@pytest.mark.parametrize(("cell", "given", "verdict"), VERDICTS)
def test_the_verdicts_follow_their_rules(
    cell: str, given: dict[str, Any], verdict: str, paper: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cell(CELLS, cell, given | {"claims": claims, "mean": mean, "pairwise": pairwise, "paper": paper, "view": view})
    said = capsys.readouterr().out
    assert f"this run: {verdict}" in said, said


def test_the_counts_are_the_papers_labels(paper: Any) -> None:
    for name in T5_SIZES:
        counted = cost.parameters(lambda name=name: t5_lm(t5_size(name)))
        assert abs(counted / (1e6 * paper["t5-sizes"]["rows"][name]["millions"]) - 1) < 0.1


def _arms() -> dict[str, Any]:
    """The ten rows' models and what they read, on a small vocabulary."""
    tokenizer = corrupt.add_sentinels(train_wordpiece(["Nadia bought the lamp and Paul sold it."] * 3, 90))
    config = t5(tokenizer.vocab.size, width=32, layers=2, heads=2, hidden=64, dropout=0.0)
    space: dict[str, Any] = {"tokenizer": tokenizer, "torch": torch, "run": lesson.start("smoke")}
    start = next(cell.source for cell in CELLS if cell.id == "start")
    imports = "\n".join(line for line in start.splitlines() if line.startswith(("import", "from", "    ")))
    exec(imports, space)

    def small(width: int = 32, layers: int = 2) -> Any:
        torch.manual_seed(0)
        return t5_lm(t5(tokenizer.vocab.size, width=width, layers=layers, heads=2, hidden=64, dropout=0.0))

    space |= {"young": t5_lm(config), "small": small, "signs": corrupt.sentinels(tokenizer)}
    for cell in ("ten-build", "ten-arms"):
        run_cell(CELLS, cell, space)
    return space


def test_sharing_halves_the_blocks() -> None:
    space = _arms()

    def blocks(model: Any) -> int:
        return sum(p.numel() for n, p in model.named_parameters() if "blocks" in n)

    both, one, alone = (blocks(space[name]()) for name in ("paired", "shared", "alone"))
    assert one == alone and both > 2 * one


def test_an_answer_is_judged_by_its_own_tokens_in_every_architecture() -> None:
    """Teacher-forced: exactly right where the model's greedy answer is the target, and no padding or [SEP] counted."""
    space = _arms()
    frame = space["SourceTarget"](space["tokenizer"], space["SMALL"])
    rows = frame.rows([{"text": "Paul sold it.", "target": "Nadia"}, {"text": "Nadia bought it", "target": "the lamp"}])
    space |= {"asked": {"both": rows}, "frame": frame}
    run_cell(CELLS, "ten-score", space)
    for kind, (build, loss, form) in space["ARMS"].items():
        model = build()
        list(space["train"](model, [form(frame.collate(rows))] * 60, loss, space["optim"].adamw(model, 1e-2), steps=60))
        assert space["judged"](model.eval(), loss, form, "both")[:2] == (1.0, 1.0), kind
    model = space["paired"]()
    batch = frame.collate(rows)
    logits = model(batch["ids"], shift_right(batch["labels"], 0), keep=batch["keep"])
    special = space["tokenizer"].vocab.special
    counts = torch.tensor([[t >= 0 and t not in special for t in row] for row in batch["labels"].tolist()])
    right = ((logits.argmax(-1) == batch["labels"]) & counts).sum() / counts.sum()
    exact, tokens, nats = space["judged"](model, losses.seq2seq, lambda b: b, "both")
    assert tokens == pytest.approx(right.item()) and exact <= tokens
    wanted = logits.log_softmax(-1).gather(-1, batch["labels"].clamp(min=0)[..., None])[..., 0]
    assert nats == pytest.approx(-wanted[counts].mean().item(), rel=1e-4)


def test_the_language_models_mask_keeps_the_source_from_looking_ahead(capsys: pytest.CaptureFixture[str]) -> None:
    space = _arms()
    for cell in ("three-masks", "three-see"):
        run_cell(CELLS, cell, space)
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in said] == ["stays", "changes", "changes"]


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small T5 in the public layout, as the hub has it."""
    folder = tmp_path_factory.mktemp("t5")
    words = corrupt.add_sentinels(train_wordpiece(["Nadia bought the lamp. Paul bought the coin."] * 3, 90))
    torch.manual_seed(0)
    model = t5_lm(t5(words.vocab.size, width=16, layers=1, heads=2, hidden=32))
    hf.save_pretrained(model, folder, model_type="t5", architecture="T5ForConditionalGeneration")
    words.save(folder)
    return folder


@pytest.mark.parametrize("form", ["hub:{}", "{}"])
def test_a_public_t5_answers_through_the_same_cell(public: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = next(cell.source for cell in CELLS if cell.id == "public-ask")
    assert 'PUBLIC = ""' in source
    name = form.format(public)
    exec(source.replace('PUBLIC = ""', f'PUBLIC = "{name}"'), {"zoo": zoo, "torch": torch, "generate": generate})
    said = capsys.readouterr().out
    assert said.count(" -> ") == 4 and "translate English to German" in said


def test_the_texts_may_be_a_students_own(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n\n".join(f"Paul sold page {i}. " * 30 for i in range(40)), "utf-8")
    space = _arms() | {"topics": {"a": "the manual says a word " * 40}, "data": data}
    space["run"] = lesson.start("smoke", 0, "auto", str(tmp_path), str(tmp_path / "out"))
    for cell in ("claim-count", "learn-rows", "learn-batches"):
        run_cell(CELLS, cell, space)
    assert space["source"] == str(tmp_path)
    assert "sold" in space["tokenizer"].decode(space["texts_of"](0)["ids"][0].tolist())
    assert len(space["pretraining"]) == space["STEPS"]
