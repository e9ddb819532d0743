"""Arms are trained once, resume after a kill to the same bits, and are never mistaken for
another.
"""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from course_lib.errors import CourseError
from lab.engine import arms, probes, small_models
from lab.engine.arms import Arm, trained
from lab.engine.lab import PLANS, Lab, Plan, Tuning

TINY: Plan = replace(
    PLANS["smoke"],
    width=64,
    layers=1,
    steps=6,
    rows=4,
    length=40,
    labels=12,
    tests=12,
    probes=4,
    vocab=300,
)


@pytest.fixture(scope="module", autouse=True)
def _small_vocabulary() -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(arms, "TOKENIZER_DOCUMENTS", 200)
    patch.setattr(arms, "SAVE", 2)
    patch.setattr(arms, "LOG", 2)
    yield
    patch.undo()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a loss is asked for; at the number in `steps[1:]` the process is killed."""
    asked, loss_of = [0], arms.loss_of

    def counted(arm: Arm) -> Any:
        def loss(model: Any, batch: Any) -> Any:
            asked[0] += 1
            if asked[0] in asked[1:]:
                raise KeyboardInterrupt
            return loss_of(arm)(model, batch)

        return loss

    monkeypatch.setattr(arms, "loss_of", counted)
    return asked


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(
        torch.equal(left[name], right[name]) for name in left
    )


def test_trained_once(tmp_path: Path, steps: list[int]) -> None:
    arm = small_models.bert_arm(TINY, 0)
    one, two = (trained(arm, tmp_path) for _ in range(2))
    assert steps == [6] and equal(one.model, two.model)
    assert [point["step"] for point in one.card["curve"]] == [2, 4, 6]
    assert one.card["arm"]["seed"] == 0 and not (tmp_path / arm.name / "state.safetensors").exists()
    assert {path.suffix for path in (tmp_path / arm.name).iterdir()} == {".json", ".safetensors"}


@pytest.mark.parametrize("dies_at", [2, 3, 5])
def test_a_killed_run_ends_with_the_same_bits(
    tmp_path: Path, dies_at: int, steps: list[int]
) -> None:
    arm = replace(small_models.causal_arm(TINY, 1), steps=6)
    whole = trained(arm, tmp_path / "whole")
    steps.append(6 + dies_at)
    with pytest.raises(KeyboardInterrupt):
        trained(arm, tmp_path / "killed")
    assert not arms.finished(arm, tmp_path / "killed")
    steps[:] = [0]
    again = trained(arm, tmp_path / "killed")
    assert steps == [6 - (dies_at - 1) // 2 * 2]  # the state is saved at every second step
    assert equal(whole.model, again.model)
    assert [p["loss"] for p in whole.card["curve"]] == [p["loss"] for p in again.card["curve"]]
    for step in arm.keep:
        one, two = (trained(arm, tmp_path / place, at=step) for place in ("whole", "killed"))
        assert equal(one.model, two.model) and not equal(one.model, whole.model)


def test_a_stopped_arm_is_the_longer_one_s_beginning(tmp_path: Path) -> None:
    arm = small_models.causal_arm(TINY, 0)
    short = replace(arm, keep=(), stop=small_models.after(TINY, 0.4))
    assert equal(
        trained(short, tmp_path).model,
        trained(arm, tmp_path, at=small_models.after(TINY, 0.4)).model,
    )


def test_the_name_says_everything() -> None:
    arm = small_models.masked_arm(TINY, 0)
    other: dict[str, Any] = {
        "objective": "causal",
        "model": small_models.body(TINY, 2),
        "precision": "fp32",
        "parts": (1.0, 0.0, 0.0),
        "keep": (3,),
        "documents": "others",
        "stop": 5,
    }
    names = {arm.name}
    for field in fields(Arm):
        value = other.get(field.name)
        names.add(
            replace(
                arm, **{field.name: getattr(arm, field.name) + 1 if value is None else value}
            ).name
        )
    assert len(names) == 1 + len(fields(Arm)) and replace(arm).name == arm.name


def test_the_two_sided_model_sees_the_next_token(tmp_path: Path) -> None:
    arm = small_models.two_sided_arm(TINY, 0)
    known = arms.vocabulary(arm, tmp_path)
    model, batch = arms.build(arm).eval(), arms.ArmBatches(arm, known)[0]
    changed = dict(batch) | {"ids": batch["ids"].clone()}
    changed["ids"][:, 5] = (changed["ids"][:, 5] + 1) % TINY.vocab
    with torch.no_grad():
        before, after = (
            model(b["ids"], attention_mask=b["attention_mask"]) for b in (batch, changed)
        )
        assert not torch.equal(before[:, 3], after[:, 3])
        assert not torch.allclose(arms.two_sided(model, batch), arms.two_sided(model, changed))


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    arm = small_models.bert_arm(TINY, 0)
    with pytest.raises(CourseError, match="is of documents long-gone; the world writes others now"):
        trained(replace(arm, documents="long-gone"), tmp_path)
    trained(arm, tmp_path)
    (tmp_path / arm.name / "weights-6.safetensors").write_bytes(b"no weights")
    with pytest.raises(CourseError, match="is damaged or missing; remove its folder"):
        trained(arm, tmp_path)


def test_a_score_is_computed_once_and_shared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, tuning = Lab(TINY, tmp_path), Tuning(small_models.causal_arm(TINY, 0), "sentiment", 0)
    score = lab.score(tuning)
    assert 0 <= score <= 1
    monkeypatch.setattr("lab.engine.lab._tune", lambda *_: pytest.fail("computed again"))
    assert lab.score(tuning) == score
    # said or by the plan: the same
    assert Lab(TINY, tmp_path).score(replace(tuning, labels=TINY.labels)) == score
    for other in (replace(tuning, seed=1), replace(tuning, frozen=True)):
        with pytest.raises(pytest.fail.Exception):
            lab.score(other)


def test_hidden_words_are_asked_from_the_side_that_a_model_has(tmp_path: Path) -> None:
    bert, gpt = (
        trained(make(TINY, 0), tmp_path)
        for make in (small_models.masked_arm, small_models.causal_arm)
    )
    gaps = probes.gaps(small_models.masked_arm(TINY, 0), bert.tokenizer)[:2]
    again = probes.gaps(small_models.causal_arm(TINY, 0), bert.tokenizer)[:2]
    for a, b in zip(gaps, again, strict=True):
        assert torch.equal(a.ids, b.ids) and torch.equal(a.loss_mask, b.loss_mask)
    gap = gaps[0]
    assert (gap.loss_mask.sum(1) == 1).all() and (gap.loss_mask & ~gap.attention_mask).sum() == 0
    after = (gap.loss_mask.int().cumsum(1) == 1) & ~gap.loss_mask & gap.attention_mask
    other = gap._replace(ids=torch.where(after, (gap.ids + 7) % 300, gap.ids))
    logits = {
        name: _heard(source, gap, other) for name, source in {"bert": bert, "gpt": gpt}.items()
    }
    assert logits == {"bert": True, "gpt": False}


def _heard(source: Any, gap: probes.Gap, other: probes.Gap) -> bool:
    """Whether what stands after the gap changes the model's vector there."""
    seen: list[torch.Tensor] = []
    handle = source.model.stack.register_forward_hook(lambda module, inputs, out: seen.append(out))
    for question in (gap, other):
        probes.hidden_word(source, [question])
    handle.remove()
    at = gap.loss_mask.roll(-1, dims=1) if not hasattr(source.model, "head") else gap.loss_mask
    return not torch.allclose(seen[0][at], seen[1][at])
