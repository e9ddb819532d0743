"""What each encoder's parity test does: load, compare every hidden state, gradient and head, and go the way back."""

from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from course_lib import hf
from course_lib.errors import CourseError
from tests.parity.public import close, randomise, same_weights

VOCAB, LENGTH = 60, 20
Batch = dict[str, Tensor]


def sided(batch: Batch, side: str, pad: int = 0) -> Batch:
    """The batch with its padding at that side."""
    batch = batch | {"ids": batch["ids"].masked_fill(~batch["keep"], pad)}
    return batch if side == "right" else {key: value.flip(1) for key, value in batch.items()}


def public(config: Any, architecture: str, seed: int = 0) -> nn.Module:
    """A random model of transformers, norms and biases random too."""
    return randomise(getattr(transformers, architecture)(config), seed)


def theirs_on(model: nn.Module, batch: Batch, **more: Any) -> Any:
    """Their outputs. Positions count real tokens, as ours do: they are given where the model would count padding."""
    segments = {"token_type_ids": batch["segments"]} if "segments" in batch else {}
    if "positions" in batch:
        more |= {"position_ids": batch["positions"]}
    return model(input_ids=batch["ids"], attention_mask=batch["keep"].long(), **segments, **more)


def ours_on(model: nn.Module, batch: Batch) -> Any:
    return model(batch["ids"], keep=batch["keep"], segments=batch.get("segments"))


def with_positions(batch: Batch) -> Batch:
    return batch | {"positions": (batch["keep"].long().cumsum(1) - 1).clamp(min=0)}


def largest(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max())


def assert_hidden_states(theirs: nn.Module, batch: Batch, folder: Path) -> None:
    """The embedding, and what every application of a block gives (a shared block is applied many times)."""
    theirs.save_pretrained(folder)
    ours = hf.load_pretrained(folder)
    expected = theirs_on(theirs, batch, output_hidden_states=True)
    states: list[Tensor] = []
    for part in (ours.stack.embed, *ours.stack.blocks):
        part.register_forward_hook(lambda module, inputs, output: states.append(output.detach()))
    with torch.no_grad():
        out = ours_on(ours, batch)
    keep = batch["keep"]
    assert len(states) == len(expected.hidden_states) == theirs.config.num_hidden_layers + 1
    for layer, (a, b) in enumerate(zip(states, expected.hidden_states, strict=True)):
        assert close(a[keep], b[keep]), (layer, largest(a[keep], b[keep]))
    if isinstance(out, tuple) and keep[:, 0].all():  # the pooler reads the first place, padding or not
        assert close(out[1], expected.pooler_output)


def assert_gradients(theirs: nn.Module, their_loss: Tensor, ours: nn.Module, our_loss: Tensor) -> None:
    """The loss, and its gradient for every weight of ours."""
    assert close(our_loss, their_loss), largest(our_loss, their_loss)
    their_loss.backward()
    our_loss.backward()
    family = hf.families()[theirs.config.model_type]
    grads = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in theirs.named_parameters()}
    rules = hf._all_rules(family, family.architectures[type(theirs).__name__], ours)
    translated = hf.convert(hf._bare(grads, family), rules, ours.stack.config.layers)
    weights = dict(ours.named_parameters())
    assert translated.keys() == weights.keys()
    for name, weight in weights.items():
        assert weight.grad is not None and close(weight.grad, translated[name]), name


def assert_masked_lm(theirs: nn.Module, batch: Batch, folder: Path) -> None:
    """Logits, loss and gradients of a masked-LM head."""
    theirs.save_pretrained(folder)
    ours = hf.load_pretrained(folder)
    labels = batch["ids"].masked_fill(~batch["keep"] | (batch["ids"] % 3 > 0), -100)
    at = labels != -100
    assert at.sum() > 3
    out = theirs_on(theirs, batch, labels=labels)
    logits = ours(batch["ids"], keep=batch["keep"], segments=batch.get("segments"), at=at)
    assert close(logits, out.logits[at])
    assert_gradients(theirs, out.loss, ours, nn.functional.cross_entropy(logits, labels[at]))


def assert_classifier(theirs: nn.Module, batch: Batch, folder: Path) -> None:
    """Logits, loss and gradients of a head for whole inputs."""
    theirs.save_pretrained(folder)
    ours = hf.load_pretrained(folder)
    labels = torch.tensor([2, 0, 1])
    out, logits = theirs_on(theirs, batch, labels=labels), ours_on(ours, batch)
    assert close(logits, out.logits)
    assert_gradients(theirs, out.loss, ours, nn.functional.cross_entropy(logits, labels))


def assert_way_back(theirs: nn.Module, batch: Batch, folder: Path) -> None:
    """Outputs are equal; saved by us and loaded by transformers the weights are the same to the last bit."""
    architecture, keep = type(theirs).__name__, batch["keep"]
    if is_choice := architecture.endswith("ForMultipleChoice"):
        batch = {key: value[:, None].expand(-1, 2, -1).contiguous() for key, value in batch.items()}

    def at_real(x: Tensor) -> Tensor:
        return x[keep] if x.shape[:2] == keep.shape and not is_choice else x

    theirs.save_pretrained(folder / "theirs")
    ours = hf.load_pretrained(folder / "theirs")
    with torch.no_grad():
        expected = [at_real(t) for t in theirs_on(theirs, batch).to_tuple() if t is not None]
        actual = ours_on(ours, batch)
    actual = [at_real(t) for t in (actual if isinstance(actual, tuple) else (actual,))]
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        assert a.shape == b.shape and close(a, b), largest(a, b)

    hf.save_pretrained(ours, folder / "ours", model_type=theirs.config.model_type, architecture=architecture)
    again, info = type(theirs).from_pretrained(
        folder / "ours", attn_implementation=theirs.config._attn_implementation, output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    with torch.no_grad():
        back = [at_real(t) for t in theirs_on(again.eval(), batch).to_tuple() if t is not None]
    unread = theirs.config.pad_token_id + 1 if theirs.config.model_type == "roberta" else 0
    assert same_weights(again, theirs, unread)
    for a, b in zip(back, expected, strict=True):
        assert close(a, b)
    assert hf.load_pretrained(folder / "ours").stack.config == ours.stack.config
    names = [set(hf._read_weights(folder / kind)) for kind in ("theirs", "ours")]
    assert names[0] == names[1]


def refused(config: Any, architecture: str, folder: Path) -> str:
    """What we say of a folder that we do not read."""
    public(config, architecture).save_pretrained(folder)
    try:
        hf.load_pretrained(folder)
    except CourseError as error:
        return str(error)
    raise AssertionError("it was read")


def sizes(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def on_meta(make: Any) -> int:
    """Number of weights of what `make()` builds, without the memory for it."""
    with torch.device("meta"):
        return sizes(make())
