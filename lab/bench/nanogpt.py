"""A peer: GPT-2 and its training loop as nanoGPT (Karpathy 2022) describes them, said again in our
own words.

Known departures: GELU by the tanh, as OpenAI's GPT-2 has it, so that weights can be compared; no
dropout; never compiled. As there, AdamW is PyTorch's fused one on a GPU alone."""

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# learning rates; steps of the warm-up and of all
PEAK, FLOOR, WARMUP, STEPS = 6e-4, 6e-5, 2000, 600_000


class Block(nn.Module):
    """Pre-norm attention with one product for q, k and v, then the feed-forward. [B T D] -> [B T
    D].
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm_1, self.norm_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        # B H T dh
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        )
        return torch.add(x, self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh")))


class GPT(nn.Module):
    """Token ids [B T] and the next ones [B T] -> mean loss in nats; the table of tokens is the
    output matrix too.
    """

    def __init__(self, vocab: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        for name, weight in self.named_parameters():
            # what adds to the residual stream begins smaller (Radford et al. 2019, section 2.3)
            if weight.dim() > 1:
                nn.init.normal_(
                    weight,
                    std=0.02 / (math.sqrt(2 * layers) if "out" in name or "down" in name else 1),
                )

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)  # B T V
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def rate(step: int) -> float:
    """Learning rate: linear warm-up to `PEAK`, half a cosine down to `FLOOR`, then constant."""
    done = min(1.0, (step - WARMUP) / (STEPS - WARMUP))
    warm = PEAK * (step + 1) / (WARMUP + 1)
    return warm if step < WARMUP else FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * done)) / 2


def train(
    model: GPT, data: Tensor, batch: int, tokens: int, bf16: bool, device: str = "cpu"
) -> Iterator[Tensor]:
    """A loss for each update. data: token ids [S]; a batch is `batch` random windows of `tokens` of
    them.
    """
    weights = list(model.to(device).train().parameters())
    groups = [{"params": [p for p in weights if p.dim() > 1], "weight_decay": 0.1}]
    groups += [{"params": [p for p in weights if p.dim() == 1], "weight_decay": 0.0}]
    optimizer, step = (
        torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95), fused=device == "cuda"),
        0,
    )
    while True:
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        starts = torch.randint(len(data) - tokens, (batch, 1))
        window = data[starts + torch.arange(tokens + 1)].to(device)  # B T+1
        with torch.autocast(device, torch.bfloat16, enabled=bf16):
            loss = model(window[:, :-1], window[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        yield loss.detach()
