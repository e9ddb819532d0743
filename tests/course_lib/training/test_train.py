"""The loop: what one step does, accumulation, precision, divergence, checkpoints of the wrong
run.
"""

import json
import math
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.families.gpt import gpt
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from course_lib.objectives.losses import Batch
from course_lib.training import loop, run_state
from course_lib.training.optim import adamw, linear


class Net(nn.Module):
    """A model with dropout and tied weights, small enough for a thousand steps a second."""

    def __init__(self, width: int = 8, dropout: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.mix = nn.Embedding(11, width), nn.Linear(width, width)
        self.drop, self.out = nn.Dropout(dropout), nn.Linear(width, 11, bias=False)
        self.out.weight = self.table.weight
        self.next = nn.Linear(width, 2)

    def forward(
        self, ids: Tensor, *, attention_mask: Tensor | None = None, loss_mask: Tensor | None = None
    ) -> Tensor:
        h = self.drop(self.mix(self.table(ids).cumsum(1)).tanh())
        logits: Tensor = self.out(h if loss_mask is None else h[loss_mask])
        return logits


class Both(Net):
    def forward(self, ids: Tensor, **how: Any) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return super().forward(ids, **how), self.next(self.table(ids).mean(1))


def batch(seed: int, rows: int = 6, t: int = 9) -> dict[str, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, 11, (rows, t), generator=rng)
    return {
        "ids": ids,
        "attention_mask": torch.arange(t) < torch.randint(2, t + 1, (rows, 1), generator=rng),
    }


BATCHES = [batch(i) for i in range(5)]


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def test_one_step_is_the_textbooks() -> None:
    ours, theirs = Net(), Net()
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=0.1, weight_decay=0.0)
    (step,) = loop.train(
        ours,
        BATCHES,
        losses.clm,
        loop.TrainConfig(steps=1, clip=0.5),
        optimizer=adamw(ours, 0.1, weight_decay=0.0),
    )
    loss = losses.clm(theirs, BATCHES[0])
    loss.backward()
    norm = torch.sqrt(sum((p.grad**2).sum() for p in theirs.parameters() if p.grad is not None))
    for p in theirs.parameters():
        if p.grad is not None:
            p.grad *= min(1.0, 0.5 / float(norm))
    optimizer.step()
    assert step.step == 1 and step.lr == 0.1 and step.loss == pytest.approx(loss.item(), rel=1e-6)
    assert step.grad_norm == pytest.approx(float(norm), rel=1e-5) and step.grad_norm > 0.5
    assert step.tokens == int(BATCHES[0]["attention_mask"].sum()) and step.seconds > 0
    for a, b in zip(weights(ours), weights(theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_schedule_multiplies_each_groups_own_rate() -> None:
    net = Net()
    groups = [
        {"params": [net.table.weight], "lr": 0.1},
        {"params": list(net.mix.parameters()), "lr": 0.01},
    ]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    seen = []
    for step in loop.train(
        net,
        BATCHES,
        losses.clm,
        loop.TrainConfig(steps=10),
        optimizer=optimizer,
        schedule=linear(10, warmup=5),
    ):
        seen.append([group["lr"] for group in optimizer.param_groups])
        assert step.lr == max(seen[-1])
    factors = [linear(10, warmup=5)(s) for s in range(10)]
    assert seen == [[pytest.approx(0.1 * f), pytest.approx(0.01 * f)] for f in factors]


@settings(deadline=None, max_examples=25)
@given(
    parts=st.integers(1, 6),
    seed=st.integers(0, 1000),
    kind=st.sampled_from(["clm", "mlm", "mlm_nsp", "rows"]),
)
def test_accumulation_is_the_one_big_batch(parts: int, seed: int, kind: str) -> None:
    """Rows of very different lengths: a mean of the parts' means would be wrong."""
    data = batch(seed)
    rng = torch.Generator().manual_seed(seed)
    if kind in ("mlm", "mlm_nsp"):
        at = data["attention_mask"] & (torch.rand(6, 9, generator=rng) < 0.4)
        at[:, 0] = True
        data |= {"labels": data["ids"].masked_fill(~at, -100), "loss_mask": at}
        data["next"] = torch.tensor([0, 1, -100, 1, 0, 0])
    if kind == "rows":
        data |= {"labels": torch.randint(0, 2, (6,), generator=rng)}

    def rows(model: nn.Module, some: Batch) -> Tensor:
        assert isinstance(model, Net)
        return losses.cross_entropy(model.next(model.table(some["ids"]).mean(1)), some["labels"])

    loss = {"clm": losses.clm, "mlm": losses.mlm, "mlm_nsp": losses.mlm_nsp, "rows": rows}[kind]
    results = []
    for count in (1, parts):
        net = (Both if kind == "mlm_nsp" else Net)()
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        (step,) = loop.train(
            net,
            [data],
            loss,
            loop.TrainConfig(steps=1, accumulate=count),
            optimizer=optimizer,
        )
        results.append((step.loss, step.grad_norm, weights(net)))
    assert results[0][0] == pytest.approx(results[1][0], rel=1e-5)
    assert results[0][1] == pytest.approx(results[1][1], rel=1e-4)
    for a, b in zip(results[0][2], results[1][2], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_evaluation_between_steps_does_not_switch_dropout_off() -> None:
    runs = []
    for evaluate in (False, True):
        net = Net(dropout=0.5)
        torch.manual_seed(1)
        runs.append([])
        for step in loop.train(net, BATCHES, losses.clm, loop.TrainConfig(steps=4)):
            runs[-1].append(step.loss)
            net.train(not evaluate)
    assert runs[0] == runs[1]


def test_bf16_stays_close_to_fp32() -> None:
    curves = {}
    for precision in ("fp32", "bf16"):
        net = Net(width=32)
        run = loop.train(
            net,
            BATCHES,
            losses.clm,
            loop.TrainConfig(steps=40, precision=precision),  # type: ignore[arg-type]
            optimizer=adamw(net, 1e-2),
        )
        curves[precision] = [step.loss for step in run]
        assert all(p.dtype == torch.float32 for p in net.parameters())
    assert curves["fp32"] != curves["bf16"], "bf16 changed nothing: was it on?"
    assert curves["fp32"][-1] < 0.8 * curves["fp32"][0]
    for a, b in zip(curves["fp32"], curves["bf16"], strict=True):
        assert b == pytest.approx(a, rel=0.02)


@pytest.mark.parametrize("place", ["loss", "gradient"])
def test_divergence_names_the_step_and_keeps_the_checkpoint(place: str, tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    net, reached = Net(), []

    def loss(model: nn.Module, data: Batch) -> Tensor:
        value = losses.clm(model, data)
        if len(reached) == 5 and place == "gradient":
            value.register_hook(lambda gradient: gradient * math.inf)
        return value * (math.nan if len(reached) == 5 and place == "loss" else 1.0)

    said = (
        r"step 6: the loss is nan.*last good state"
        if place == "loss"
        else "the norm of the gradient is (nan|inf)"
    )
    with pytest.raises(CourseError, match=said):  # noqa: PT012
        for step in loop.train(
            net, BATCHES, loss, loop.TrainConfig(steps=9, save_to=path, save_every=2)
        ):
            reached.append(step.step)
            if step.step == 4:
                kept = path.read_bytes()
            before = weights(net)
    assert reached == [1, 2, 3, 4, 5] and path.read_bytes() == kept
    assert all(torch.equal(a, b) for a, b in zip(before, weights(net), strict=True)), (
        "the bad step was taken"
    )


def forged(state: str = "", change: Any = dict, **rest: Any) -> Any:
    """A state with other metadata or tensors, and the checksum that belongs to them."""

    def spoil(data: bytes) -> bytes:
        tensors = change(load(data))
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        told = json.loads(header["state"]) | {"crc": run_state._crc(tensors)} | rest
        return save(tensors, metadata={"state": state or json.dumps(told)})

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        *[
            (forged(**odd), "not a training state")
            for odd in ({"step": "3"}, {"step": -1}, {"step": True}, {"tied_to": []}, {"crc": 0.5})
        ],
        *[
            (forged(state=odd), "not a training state|damaged")
            for odd in ("[1]", "{", "3", "[" * 10**5)
        ],
        (forged(step=10**9), "has made 1,000,000,000 steps, more than the 5"),
        (
            forged(tied_to={"a": ["b"]}, change=lambda t: t | {"model.more": torch.ones(1)}),
            "another model",
        ),
        (
            forged(change=lambda t: {n: x for n, x in t.items() if n != "random.cpu"}),
            "random numbers",
        ),
        (forged(change=lambda t: t | {"random.cpu": t["random.cpu"][:9]}), "random numbers"),
        (
            forged(change=lambda t: {n: x.half() if "model" in n else x for n, x in t.items()}),
            "of torch.float16 there",
        ),
        (
            forged(change=lambda t: {n: x.int() if "optim" in n else x for n, x in t.items()}),
            "trains other weights",
        ),
        (
            forged(change=lambda t: {n: x for n, x in t.items() if "exp_avg_sq" not in n}),
            "trains other weights",
        ),
        (lambda data: data[: len(data) // 2], "damaged"),
        (lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:], "checksum"),
        (lambda data: b"", "damaged"),
        (lambda data: pickle.dumps({"step": 3}), "damaged"),
        (lambda data: save({"x": torch.ones(1)}), "not a training state"),
    ],
)
def test_wrong_checkpoints_are_refused_and_change_nothing(
    spoil: Any, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.safetensors"
    list(
        loop.train(
            Net(), BATCHES, losses.clm, loop.TrainConfig(steps=3, save_to=path, save_every=1)
        )
    )
    path.write_bytes(content := spoil(path.read_bytes()))
    net = Net()
    before = weights(net)
    with pytest.raises(CourseError, match=words):
        next(loop.train(net, BATCHES, losses.clm, loop.TrainConfig(steps=5, save_to=path)))
    assert all(torch.equal(a, b) for a, b in zip(before, weights(net), strict=True))
    assert path.read_bytes() == content, "the file was overwritten"


def test_a_state_with_the_header_of_an_older_version_still_loads(tmp_path: Path) -> None:
    path, net = tmp_path / "state.safetensors", Net()
    list(loop.train(net, BATCHES, losses.clm, loop.TrainConfig(steps=3, save_to=path)))
    data = path.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    state = json.loads(header["state"])
    old = {"twins": state.pop("tied_to"), "kind": state.pop("optimizer")}
    assert old == {"twins": {"out.weight": "table.weight"}, "kind": "AdamW"}
    path.write_bytes(save(load(data), metadata={"state": json.dumps(state | old)}))
    other = Net()
    assert run_state.load(path, other, adamw(other)) == 3
    assert all(torch.equal(a, b) for a, b in zip(weights(net), weights(other), strict=True))


def test_each_gpu_gets_its_own_random_state_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [torch.full((16,), number, dtype=torch.uint8) for number in range(12)]
    restored: list[Tensor] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", restored.extend)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 12)
    net = Net()
    run_state.save(tmp_path / "state", net, adamw(net), 1)
    run_state.load(tmp_path / "state", net, adamw(net))
    assert [int(state[0]) for state in restored] == list(range(12))


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path, net = tmp_path / "state.safetensors", Net()
    list(loop.train(Net(), BATCHES, losses.clm, loop.TrainConfig(steps=3, save_to=path)))
    with pytest.raises(CourseError, match="another model"):
        next(
            loop.train(Net(width=12), BATCHES, losses.clm, loop.TrainConfig(steps=5, save_to=path))
        )
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(CourseError, match="another optimizer"):
        next(
            loop.train(
                net, BATCHES, losses.clm, loop.TrainConfig(steps=5, save_to=path), optimizer=sgd
            )
        )


def test_a_run_goes_on_by_its_own_recipe_only(tmp_path: Path) -> None:
    how: dict[str, Any] = {"save_to": tmp_path / "state.safetensors"}
    list(
        loop.train(
            Net(),
            BATCHES,
            losses.clm,
            loop.TrainConfig(steps=3, recipe={"heads": 2, "data": Path("a")}, **how),
        )
    )
    with pytest.raises(CourseError, match=r"of a run with heads 2 \(here 4\): .*resume=False"):
        next(
            loop.train(
                Net(),
                BATCHES,
                losses.clm,
                loop.TrainConfig(steps=5, recipe={"heads": 4, "data": Path("a")}, **how),
            )
        )
    assert (
        len(
            list(
                loop.train(
                    Net(),
                    BATCHES,
                    losses.clm,
                    loop.TrainConfig(steps=5, recipe={"heads": 2, "new": 1}, **how),
                )
            )
        )
        == 2
    )


def test_resume_can_be_declined_and_more_steps_asked(tmp_path: Path) -> None:
    asked = [(3, True), (3, True), (5, True), (2, False)]
    path = tmp_path / "state.safetensors"
    done = [
        [
            step.step
            for step in loop.train(
                Net(),
                BATCHES,
                losses.clm,
                loop.TrainConfig(steps=n, save_to=path, resume=resume),
            )
        ]
        for n, resume in asked
    ]
    assert done == [[1, 2, 3], [], [4, 5], [1, 2]]


@pytest.mark.parametrize(
    ("batches", "options", "words"),
    [
        (BATCHES, {"steps": 0}, "steps is 0"),
        (BATCHES, {"accumulate": 0}, "accumulate is 0"),
        (BATCHES, {"save_every": 0}, "save_every is 0"),
        (BATCHES, {"accumulate": 7}, "only 6 rows"),
        (BATCHES, {"precision": "fp16"}, "no precision 'fp16'"),
        ([], {}, "no batches"),
        (BATCHES, {"device": "cuda"}, "no NVIDIA GPU"),
        (BATCHES, {"device": "gpu"}, "no device 'gpu'"),
    ],
)
def test_bad_arguments(
    batches: Any, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(CourseError, match=words):
        next(loop.train(Net(), batches, losses.clm, loop.TrainConfig(**{"steps": 1} | options)))


def tiny() -> nn.Module:
    return heads.LM(Transformer(gpt(11, width=8, layers=1, heads=2, length=9)))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda b: b | {"ids": b["ids"].float()}, "'ids' of batch 3 is of type torch.float32"),
        (
            lambda b: b | {"attention_mask": b["attention_mask"].int()},
            r"torch.int32; it must be torch.bool",
        ),
        (
            lambda b: b | {"ids": b["ids"] + 1},
            "Token ids run from 1 to 11, but the model's vocabulary has 11",
        ),
        (
            lambda b: {"ids": torch.zeros(2, 10, dtype=torch.int64)},
            "reaches 10 positions, but this model has",
        ),
    ],
)
def test_a_bad_batch_is_one_sentence_and_keeps_the_checkpoint(
    spoil: Any, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.safetensors"
    bad = spoil(batch(1) | {"ids": torch.arange(54).view(6, 9) % 11})
    with pytest.raises(CourseError, match=words):
        list(
            loop.train(
                tiny(),
                [*BATCHES[:3], bad],
                losses.clm,
                loop.TrainConfig(steps=5, save_to=path, save_every=2),
            )
        )
    assert [
        step.step
        for step in loop.train(
            tiny(),
            BATCHES,
            losses.clm,
            loop.TrainConfig(steps=4, save_to=path),
        )
    ] == [3, 4]


@pytest.mark.parametrize(
    ("device", "steps", "said", "compiles"),
    [
        ("cpu", 10**6, None, False),
        ("cuda", 10**6, None, True),
        ("cuda", 10, None, False),  # too short to pay for compiling
        ("cuda", 10**6, False, False),
        ("cpu", 10, True, True),
    ],
)
def test_long_runs_on_a_gpu_are_compiled(
    device: str, steps: int, said: bool | None, compiles: bool
) -> None:
    config = loop.TrainConfig(steps=steps, compile=said)
    assert loop.compiles(config, torch.device(device)) is compiles


@pytest.mark.slow
@pytest.mark.skipif(
    " " in torch.__file__,
    reason="torch.compile's linker cannot handle a space in PyTorch's own path",
)
def test_compiled_training_is_the_same_training() -> None:
    curves = []
    for compile in (False, True):
        net = Net()
        data = [{"ids": b["ids"]} for b in BATCHES]
        curves.append(
            [
                s.loss
                for s in loop.train(
                    net,
                    data,
                    losses.clm,
                    loop.TrainConfig(steps=5, compile=compile),
                    optimizer=adamw(net, 1e-2),
                )
            ]
        )
    assert curves[0] == pytest.approx(curves[1], rel=1e-4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_cuda_by_one_argument(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    cpu = [s.loss for s in loop.train(Net(), BATCHES, losses.clm, loop.TrainConfig(steps=6))]
    gpu: dict[str, Any] = {"device": "cuda", "precision": "fp32", "save_to": path}
    list(loop.train(Net(), BATCHES, losses.clm, loop.TrainConfig(steps=3, **gpu)))
    rest = [
        s.loss for s in loop.train(Net(), BATCHES, losses.clm, loop.TrainConfig(steps=6, **gpu))
    ]
    assert rest == pytest.approx(cpu[3:], rel=1e-4)
