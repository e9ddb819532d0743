"""Random public models to compare with, tiny and float32, and what every comparison does."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from course_lib import zoo
from course_lib.data.tokenizers import train_bpe, train_wordpiece
from course_lib.families import family
from course_lib.families.weight_tables import convert

TOLERANCE = 1e-5
TRAINING = ["The judge went home, and the quick brown fox jumped over the lazy dogs."] * 5
POSITIONS = ("position_embeddings.weight", "embed_positions.weight")


def randomise(model: nn.Module, seed: int = 0, scale: float = 0.15) -> nn.Module:
    """Every weight drawn anew, norms and biases too: a fresh model's ones and zeros would hide a
    swapped pair.
    """
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=rng)
            is_norm = weight.ndim == 1 and name.endswith("weight")
            weight.copy_(1 + 0.3 * noise if is_norm else scale * noise)
    return model.eval()


def wordpiece(
    kind: str, texts: Sequence[str] = TRAINING, size: int = 80, cased: bool = False
) -> Any:
    """A tokenizer class of theirs with pieces learned here."""
    pieces = train_wordpiece(texts, size, lowercase=not cased).backend.get_vocab()
    return getattr(transformers, kind)(vocab=dict(pieces), do_lower_case=not cased)


def byte_level(kind: str, *special: str, texts: Sequence[str] = TRAINING, size: int = 300) -> Any:
    """The same of bytes; `special` come first."""
    model = json.loads(train_bpe(texts, size).backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)[2:]
    vocab = {token: i for i, token in enumerate([*special, *tokens])}
    return getattr(transformers, kind)(vocab=vocab, merges=[tuple(m) for m in model["merges"]])


def close(ours: Tensor, theirs: Tensor) -> bool:
    """Equal to 1e-5, absolute, or relative where values are above one."""
    return torch.allclose(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)


def same_weights(one: nn.Module, other: nn.Module, unread: int = 0) -> bool:
    """Every parameter and buffer equal to the last bit. (Outputs need not be: some kernels add in
    another order where a weight happens to lie otherwise in memory.)

    unread: first rows of the position tables that no place ever reads; they are not kept.
    """
    a, b = one.state_dict(), other.state_dict()
    first = {name: unread if name.endswith(POSITIONS) else 0 for name in a}
    return a.keys() == b.keys() and all(
        torch.equal(a[name][first[name] :], b[name][first[name] :]) for name in a
    )


def theirs_on(model: nn.Module, batch: dict[str, Tensor], **more: Any) -> Any:
    """Their outputs on our batch."""
    return model(input_ids=batch["ids"], attention_mask=batch["attention_mask"].long(), **more)


def read(theirs: nn.Module, folder: Path) -> Any:
    """Ours, by way of their folder."""
    theirs.save_pretrained(folder / "theirs")  # type: ignore[operator]
    return zoo.load_pretrained(folder / "theirs")


def written(ours: nn.Module, theirs: nn.Module, folder: Path, unread: int = 0) -> Any:
    """Theirs, by way of our folder: every weight has come back to the last bit."""
    config: Any = theirs.config
    zoo.save_pretrained(
        ours, folder / "ours", model_type=config.model_type, architecture=type(theirs).__name__
    )
    again, info = getattr(transformers, type(theirs).__name__).from_pretrained(
        folder / "ours", attn_implementation=config._attn_implementation, output_loading_info=True
    )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert same_weights(again, theirs, unread)
    return again.eval()


def assert_gradients(
    theirs: nn.Module, their_loss: Tensor, ours: nn.Module, our_loss: Tensor
) -> None:
    """The loss, and its gradient for every weight of ours."""
    assert close(our_loss, their_loss)
    their_loss.backward()
    our_loss.backward()
    config: Any = theirs.config
    public_family = family(config.model_type)
    grads = {
        n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in theirs.named_parameters()
    }
    grads |= {n: torch.zeros_like(b) for n, b in theirs.named_buffers() if n == "final_logits_bias"}
    grads = {public_family.strip_prefix(name): grad for name, grad in grads.items()}
    translated = convert(grads, public_family.whole_table(type(theirs).__name__, ours), ours)
    weights = dict(ours.named_parameters())
    assert translated.keys() >= weights.keys()
    for name, weight in weights.items():
        assert weight.grad is not None and close(weight.grad, translated[name]), name
