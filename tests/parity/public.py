"""Random public models to compare with: tiny, float32, with random norms and biases."""

import torch

TOLERANCE = 1e-5
POSITIONS = ("position_embeddings.weight", "embed_positions.weight")


def randomise(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Every weight drawn anew, norms and biases too: a fresh model's ones and zeros would hide a swapped pair."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            noise = torch.randn(weight.shape, generator=rng)
            is_norm = weight.ndim == 1 and name.endswith("weight")
            weight.copy_(1 + 0.3 * noise if is_norm else 0.15 * noise)
    return model.eval()


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Equal to 1e-5, absolute, or relative where values are above one."""
    return torch.allclose(ours, theirs, atol=TOLERANCE, rtol=TOLERANCE)


def same_weights(one: torch.nn.Module, other: torch.nn.Module, unread: int = 0) -> bool:
    """Every parameter and buffer equal to the last bit. (Outputs need not be: some kernels add in another order where a
    weight happens to lie otherwise in memory.)

    unread: first rows of the position tables that no place ever reads; they are not kept.
    """
    a, b = one.state_dict(), other.state_dict()
    first = {name: unread if name.endswith(POSITIONS) else 0 for name in a}
    return a.keys() == b.keys() and all(torch.equal(a[name][first[name] :], b[name][first[name] :]) for name in a)
