"""Random public models to compare with: tiny, float32, with random norms and biases."""

import torch

TOLERANCE = 1e-5


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
