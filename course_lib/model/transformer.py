"""The whole model on one screen. BERT, GPT, T5 and BART are this class with different
`StackConfig`s.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib.errors import CourseError
from course_lib.model import masks, positions
from course_lib.model.attention import KVCache, PositionInfo
from course_lib.model.config import StackConfig
from course_lib.model.layers import Block, Embedding, RMSNorm, norm


class Transformer(nn.Module):
    """Embedding, L blocks, perhaps a last norm; `config` is everything that makes this model this
    model.
    """

    vocabulary: tuple[str, ...] = ()  # the tokens of its tokenizer, where they are known
    # True: the backward pass computes each block again, for less memory (Chen et al. 2016)
    recompute = False

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.position = positions.build(config)
        self.blocks = nn.ModuleList(
            Block(config) for _ in range(1 if config.shared else config.layers)
        )
        self.norm = norm(config) if config.final_norm else None
        self.apply(self._init)
        if config.scaled_init:
            self._scale_residual_outputs()

    def forward(self, ids: Int[Tensor, "B T"], **options: Any) -> Float[Tensor, "B T D"]:
        """Token ids to hidden states; the options are those of `run`."""
        return self.run(self.embed.lookup(ids), **options)

    def run(
        self,
        x: Float[Tensor, "B T E"],
        *,
        attention_mask: Bool[Tensor, "B Tk"] | None = None,
        segments: Int[Tensor, "B T"] | None = None,
        mask: Bool[Tensor, "#B #H #T Tk"] | None = None,
        cache: KVCache | None = None,
        memory: Float[Tensor, "B M D"] | None = None,
        memory_mask: Bool[Tensor, "B M"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Token vectors to hidden states: soft prompts enter here.

        Args:
            attention_mask: True = a real token, False = padding, on either side; positions count
                kept tokens only. With a cache it spans past and new tokens (Tk of them).
            mask: who may attend to whom, in place of the config's choice; `attention_mask` still
                applies.
            cache: keys and values of earlier tokens; extended in place by these.
            memory, memory_mask: the encoder's output and its real tokens, for stacks with
                cross-attention.
        """
        past, t = (cache.length if cache is not None else 0), x.shape[1]
        k_pos = self._positions(past + t, attention_mask, x.device)  # B|1 Tk
        q_pos = k_pos[:, past:]
        where = PositionInfo(self.position, q_pos, k_pos)

        is_causal = mask is None and attention_mask is None and self.config.causal and past == 0
        if mask is None and self.config.causal and not is_causal and (t > 1 or past == 0):
            mask = masks.causal(t, past + t, x.device)
        if attention_mask is not None:
            mask = (
                masks.padding(attention_mask)
                if mask is None
                else mask & masks.padding(attention_mask)
            )
        if (memory is not None) != self.config.cross:
            raise CourseError(
                "A stack takes memory= exactly if it has cross-attention (StackConfig.cross)."
            )
        over_memory = None if memory_mask is None else masks.padding(memory_mask)

        x = self.embed(x, self.position.embed(q_pos), segments)
        for layer in range(self.config.layers):
            block = self.blocks[0 if self.config.shared else layer]
            x = (
                partial(checkpoint, block, use_reentrant=False)
                if self.recompute and self.training
                else block
            )(
                x,
                mask=mask,
                is_causal=is_causal,
                where=where,
                cache=None if cache is None else cache.own[layer],
                memory=memory,
                memory_mask=over_memory,
                cross_cache=None if cache is None else cache.cross[layer],
            )
        return x if self.norm is None else self.norm(x)

    def _positions(self, total: int, attention_mask: Tensor | None, device: torch.device) -> Tensor:
        if attention_mask is None:
            return torch.arange(total, device=device)[None]
        if attention_mask.shape[1] != total:
            raise CourseError(
                f"attention_mask has {attention_mask.shape[1]} columns for {total} past and new"
                " tokens."
            )
        return (attention_mask.long().cumsum(dim=1) - 1).clamp(min=0)

    def _init(self, module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.init_std)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm | RMSNorm):
            nn.init.ones_(module.weight)

    def _scale_residual_outputs(self) -> None:
        """Divide what flows into the residual by sqrt(number of residual layers) (GPT-2 report,
        section 2.3).
        """
        for name, weight in self.named_parameters():
            if name.endswith(("attn.out.weight", "cross.out.weight", "ff.down.weight")):
                nn.init.normal_(weight, std=self.config.init_std / (2 * self.config.layers) ** 0.5)
