"""Arms are trained once, resume after a kill to the same bits, and are never mistaken for another."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib import heads
from course_lib.claims import arms
from course_lib.claims.arms import Arm, trained
from course_lib.claims.lab import PLANS, Lab, Plan, Tuning
from course_lib.errors import CourseError
from course_lib.experiments import elmo_arms, family, measures

TINY: Plan = replace(
    PLANS["smoke"], width=64, layers=1, steps=6, rows=4, length=40, labels=12, tests=12, probes=4, vocab=300
)


@pytest.fixture(scope="module", autouse=True)
def _small_vocabulary() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(arms, "TOKENIZER_DOCUMENTS", 200)
    patch.setattr(arms, "SAVE", 2)
    patch.setattr(arms, "LOG", 2)
    yield
    patch.undo()


class Counting:
    """Counts the steps, and dies before one of them is told."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.steps: list[int] = []
        self.dies_at = dies_at

    def __call__(self, step: Any) -> None:
        if step.step == self.dies_at:
            raise KeyboardInterrupt
        self.steps.append(step.step)


def weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    left, right = weights(a), weights(b)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_trained_once(tmp_path: Path) -> None:
    arm, first, second = family.bert_arm(TINY, 0), Counting(), Counting()
    one = trained(arm, tmp_path, watch=first)
    two = trained(arm, tmp_path, watch=second)
    assert first.steps == [1, 2, 3, 4, 5, 6]
    assert second.steps == []
    assert equal(one.model, two.model)
    assert [point["step"] for point in one.card["curve"]] == [2, 4, 6]
    assert one.card["arm"]["seed"] == 0
    assert not (tmp_path / arm.name / "state.safetensors").exists()
    assert {path.suffix for path in (tmp_path / arm.name).iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("dies_at", [1, 2, 3, 5, 6])
@pytest.mark.parametrize("make", [family.causal_arm, elmo_arms.elmo_arm])
def test_a_killed_run_ends_with_the_same_bits(tmp_path: Path, make: Any, dies_at: int) -> None:
    arm = replace(make(TINY, 1), steps=6)
    whole = trained(arm, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        trained(arm, tmp_path / "killed", watch=Counting(dies_at))
    assert not arms.finished(arm, tmp_path / "killed")
    rest = Counting()
    again = trained(arm, tmp_path / "killed", watch=rest)
    assert rest.steps == list(range(dies_at - dies_at % 2 + 1, 7))  # the state is saved at every second step
    assert equal(whole.model, again.model)
    assert [p["loss"] for p in whole.card["curve"]] == [p["loss"] for p in again.card["curve"]]
    for step in arm.keep:
        one, two = (trained(arm, tmp_path / place, at=step) for place in ("whole", "killed"))
        assert equal(one.model, two.model)
        assert not equal(one.model, whole.model)


def test_weights_that_a_kill_lost_are_made_again(tmp_path: Path) -> None:
    arm = family.causal_arm(TINY, 1)
    with pytest.raises(KeyboardInterrupt):
        trained(arm, tmp_path, watch=Counting(5))
    (tmp_path / arm.name / "weights-2.safetensors").unlink()  # as if killed between the state and these weights
    rest = Counting()
    trained(arm, tmp_path, watch=rest)
    assert rest.steps == [1, 2, 3, 4, 5, 6]
    assert trained(arm, tmp_path, at=2).model is not None


def test_a_stopped_arm_is_the_longer_one_s_beginning(tmp_path: Path) -> None:
    arm = family.causal_arm(TINY, 0)
    short = replace(arm, keep=(), stop=family.after(TINY, 0.4))
    assert equal(trained(short, tmp_path).model, trained(arm, tmp_path, at=family.after(TINY, 0.4)).model)


def test_the_name_says_everything() -> None:
    arm = family.masked_arm(TINY, 0)
    other: dict[str, Any] = {
        "objective": "clm", "model": family.body(TINY, 2), "precision": "fp32", "parts": (1.0, 0.0, 0.0), "keep": (3,),
        "documents": "others", "stop": 5,
    }  # fmt: skip
    names = {arm.name}
    for field in fields(Arm):
        value = other.get(field.name)
        changed = replace(arm, **{field.name: getattr(arm, field.name) + 1 if value is None else value})
        names.add(changed.name)
    assert len(names) == 1 + len(fields(Arm))
    assert replace(arm).name == arm.name


def test_seeds_read_other_documents_and_objectives_the_same(tmp_path: Path) -> None:
    known = arms.vocabulary(family.bert_arm(TINY, 0), tmp_path)
    masked, causal = family.masked_arm(TINY, 0), family.causal_arm(TINY, 0)
    one, two = arms.Batches(masked, known)[0], arms.Batches(causal, known)[0]
    assert torch.equal(arms.unmasked(one), two["ids"])
    assert set(two) == {"ids", "keep"}
    other = arms.Batches(family.causal_arm(TINY, 1), known)[0]
    assert not torch.equal(other["ids"][:, :10], two["ids"][:, :10])


def test_only_masks_or_only_random_words(tmp_path: Path) -> None:
    known = arms.vocabulary(family.bert_arm(TINY, 0), tmp_path)
    mask = known.vocab.mask
    for recipe, share in {"100/0/0": 1.0, "0/100/0": 0.0}.items():
        batch = arms.Batches(family.masked_arm(TINY, 0, recipe), known)[0]
        assert (batch["ids"][batch["at"]] == mask).float().mean() == share


def test_the_two_sided_model_sees_the_next_token(tmp_path: Path) -> None:
    arm = family.two_sided_arm(TINY, 0)
    known = arms.vocabulary(arm, tmp_path)
    model, batch = arms.build(arm).eval(), arms.Batches(arm, known)[0]
    changed = dict(batch) | {"ids": batch["ids"].clone()}
    changed["ids"][:, 5] = (changed["ids"][:, 5] + 1) % TINY.vocab
    with torch.no_grad():
        before, after = (model(b["ids"], keep=b["keep"]) for b in (batch, changed))
        assert not torch.equal(before[:, 3], after[:, 3])
        assert not torch.allclose(arms.two_sided(model, batch), arms.two_sided(model, changed))


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    arm = family.bert_arm(TINY, 0)
    with pytest.raises(CourseError, match=r"keeps its weights at \(4,\) only, not at step 3"):
        trained(arm, tmp_path, at=3)
    with pytest.raises(CourseError, match="is of documents long-gone; the world writes others now"):
        trained(replace(arm, documents="long-gone"), tmp_path)
    trained(arm, tmp_path)
    (tmp_path / arm.name / "weights-6.safetensors").write_bytes(b"no weights")
    with pytest.raises(CourseError, match="is damaged or missing; remove its folder"):
        trained(arm, tmp_path)


def test_a_score_is_computed_once_and_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab, tuning = Lab(TINY, tmp_path), Tuning(family.causal_arm(TINY, 0), "sentiment", 0)
    score = lab.score(tuning)
    assert 0 <= score <= 1
    monkeypatch.setattr("course_lib.claims.lab._tune", lambda *_: pytest.fail("computed again"))
    assert lab.score(tuning) == score
    assert Lab(TINY, tmp_path).score(replace(tuning, labels=TINY.labels)) == score  # said or by the plan: the same
    with pytest.raises(pytest.fail.Exception):
        lab.score(replace(tuning, seed=1))
    with pytest.raises(pytest.fail.Exception):
        lab.score(replace(tuning, frozen=True))


def test_every_way_of_tuning_runs(tmp_path: Path) -> None:
    lab = Lab(TINY, tmp_path)
    causal, bert = family.causal_arm(TINY, 0), family.bert_arm(TINY, 0)
    for tuning in (
        Tuning(causal, "nli", top="bilstm"),
        Tuning(causal, "continuation"),
        Tuning(bert, "entities", frozen=True),
        Tuning(bert, "similarity", pretrained=False),
    ):
        assert -1 <= lab.score(tuning) <= 1
    spans = Tuning(bert, "questions")
    assert 0 <= lab.score(spans) <= lab.score(spans, "token_f1") <= 1


def test_the_bilstm_does_not_read_padding(tmp_path: Path) -> None:
    from course_lib.claims.lab import Recurrent
    from course_lib.stack import Stack

    torch.manual_seed(0)
    model = Recurrent(Stack(family.body(TINY))).eval()
    ids = torch.randint(300, (2, 9))
    keep = torch.arange(9)[None] < torch.tensor([[9], [5]])
    with torch.no_grad():
        padded, alone = model(ids, keep=keep), model(ids[1:, :5], keep=keep[1:, :5])
    assert torch.allclose(padded[1:, :5], alone, atol=1e-6)
    assert padded.shape == (2, 9, 64)


def test_hidden_words_are_asked_from_the_side_that_a_model_has(tmp_path: Path) -> None:
    bert, gpt = (trained(make(TINY, 0), tmp_path) for make in (family.masked_arm, family.causal_arm))
    gaps = measures.gaps(family.masked_arm(TINY, 0), bert.tokenizer)[:2]
    again = measures.gaps(family.causal_arm(TINY, 0), bert.tokenizer)[:2]
    assert all(torch.equal(a.ids, b.ids) and torch.equal(a.at, b.at) for a, b in zip(gaps, again, strict=True))
    gap = gaps[0]
    assert (gap.at.sum(1) == 1).all()
    assert (gap.at & ~gap.keep).sum() == 0
    after = (gap.at.int().cumsum(1) == 1) & ~gap.at & gap.keep
    other = gap._replace(ids=torch.where(after, (gap.ids + 7) % 300, gap.ids))
    logits = {name: _heard(source, gap, other) for name, source in {"bert": bert, "gpt": gpt}.items()}
    assert logits == {"bert": True, "gpt": False}


def _heard(source: Any, gap: measures.Gap, other: measures.Gap) -> bool:
    """Whether what stands after the gap changes the model's vector there."""
    seen = []

    def keep_it(module: Any, inputs: Any, out: torch.Tensor) -> None:
        seen.append(out)

    handle = source.model.stack.register_forward_hook(keep_it)
    for question in (gap, other):
        measures._say(source.model, question, source.tokenizer)
    handle.remove()
    at = gap.at.roll(-1, dims=1) if not hasattr(source.model, "head") else gap.at
    return not torch.allclose(seen[0][at], seen[1][at])


class Oracle(heads.LM):
    """A next-token model that says these tokens wherever it is asked."""

    def __init__(self, answer: list[int]) -> None:
        torch.nn.Module.__init__(self)
        self.answer, self.weight = answer, torch.nn.Parameter(torch.zeros(1))
        self.asked: list[tuple[torch.Tensor, torch.Tensor]] = []

    def forward(self, ids: torch.Tensor, *, at: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        self.asked.append((ids, at))
        return torch.nn.functional.one_hot(torch.tensor(self.answer), TINY.vocab).float()


def test_a_word_counts_if_all_its_pieces_are_right(tmp_path: Path) -> None:
    known = arms.vocabulary(family.bert_arm(TINY, 0), tmp_path)
    item = {"text_before": "who broke the", "answer": "typewriter", "text_after": "?"}
    pieces = known.encode("typewriter", special=False).ids
    assert len(pieces) > 1
    right, wrong = Oracle(pieces), Oracle([*pieces[:-1], pieces[0]])
    assert [measures.fill_in(arms.Trained(model, known, {}), [item]) for model in (right, wrong)] == [1.0, 0.0]
    ids, at = right.asked[0]
    assert known.decode(ids[0]) == "who broke the typewriter"
    assert ids[0, 1:][at[0, :-1]].tolist() == pieces  # each is asked for where the one before it stands


def test_shipped_models_are_asked_as_the_library_asks_them() -> None:
    from course_lib import zoo
    from course_lib.probes import Blank, fill_in_accuracy

    items = measures.evidence(0, 24, 0, "left")
    blanks = [Blank(item["text_before"] + " ", item["answer"], item["text_after"]) for item in items]
    for name in ("bert-mini", "gpt-mini"):
        source = arms.Trained(*zoo.load(name))
        share = measures.fill_in(source, items)
        assert share == fill_in_accuracy(source.model, source.tokenizer, blanks)
        assert share > 0.1
