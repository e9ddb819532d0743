"""The whole model on one screen: BERT, GPT, T5 and BART differ in their `StackConfig` only."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model import masks, positions
from course_lib.model.attention import PositionInfo
from course_lib.model.cache import KVCache
from course_lib.model.config import AttentionPattern, StackConfig, Window
from course_lib.model.layers import Block, Embedding, RMSNorm, norm


class View(NamedTuple):
    """What the layers with one attention pattern see of the tokens."""

    positions: PositionInfo
    mask: Bool[Tensor, "#B #H #T Tk"] | None  # True = may attend; None: everyone may
    is_causal: bool  # in place of a causal mask


class Transformer(nn.Module):
    """Embedding, L blocks, and a last norm where the config has one.

    Args:
        config: everything that tells this model from another.
    """

    vocabulary: tuple[str, ...] = ()  # the tokens of its tokenizer, where they are known

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.position = positions.build(config)
        # ALBERT applies one block in every layer.
        blocks = 1 if config.shared else config.layers
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(blocks))
        self.norm = norm(config) if config.final_norm else nn.Identity()
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
            x: token vectors, as `embed.lookup` gives them.
            attention_mask: True = a real token, False = padding, on either side; positions count
                real tokens only. With a cache it spans past and new tokens (Tk of them).
            segments: of which segment each token is.
            mask: who may attend to whom, in place of the config's choice; `attention_mask` still
                applies.
            cache: keys and values of earlier tokens; extended in place by these.
            memory: the encoder's output, for stacks with cross-attention.
            memory_mask: its real tokens.

        Raises:
            CourseError: a memory is missing, or given to a stack without cross-attention; or
                `attention_mask` has another length than the tokens.
        """
        if (memory is not None) != self.config.cross:
            raise CourseError(
                "A stack takes memory= exactly if it has cross-attention (StackConfig.cross)."
            )
        if memory_mask is not None:
            memory_mask = masks.padding(memory_mask)  # B M -> B 1 1 M

        # With a cache, x holds the new tokens only; keys are all tokens so far.
        past = 0 if cache is None else cache.length
        keys = self._count(past + x.shape[1], attention_mask, x.device)  # B or 1, Tk
        queries = keys[:, past:]  # B or 1, T

        # Layers that attend alike share their positions and their mask.
        views = {}
        for pattern in dict.fromkeys(self.config.attention):
            scheme = self.position.with_base(pattern.rope_base)
            info = PositionInfo(scheme, queries, keys)
            views[pattern] = self._view(pattern, info, attention_mask, mask)

        position_vectors = self.position.embed(queries)  # 0.0 where the scheme adds none
        x = self.embed(x, position_vectors, segments)  # B T D
        for layer, block in enumerate(self.layers()):
            view = views[self.config.pattern(layer)]
            x = block(
                x,
                mask=view.mask,
                is_causal=view.is_causal,
                positions=view.positions,
                cache=None if cache is None else cache.layer(layer),
                memory=memory,
                memory_mask=memory_mask,
            )
        return self.norm(x)

    def layers(self) -> list[nn.Module]:
        """The blocks in order. ALBERT applies one block in every layer."""
        if self.config.shared:
            return [self.blocks[0]] * self.config.layers
        return list(self.blocks)

    def _count(
        self, total: int, attention_mask: Tensor | None, device: torch.device
    ) -> Int[Tensor, "#B Tk"]:
        """The position of each token, past ones included: 0, 1, 2, ..., padding not counted."""
        if attention_mask is None:
            return torch.arange(total, device=device)[None]
        if attention_mask.shape[1] != total:
            raise CourseError(
                f"attention_mask has {attention_mask.shape[1]} columns for {total} past and new"
                " tokens."
            )
        # 0 0 1 1 1 -> 0 0 1 2 3 -> 0 0 0 1 2: padding in front gets 0, and nobody looks at it.
        counts = attention_mask.long().cumsum(dim=1)
        return (counts - 1).clamp(min=0)

    def _view(
        self,
        pattern: AttentionPattern,
        positions: PositionInfo,
        attention_mask: Tensor | None,
        mask: Tensor | None,
    ) -> View:
        """Positions and mask of the layers with this attention pattern.

        Args:
            pattern: whom a token of these layers sees.
            positions: of queries and keys.
            attention_mask: as in `run`.
            mask: as in `run`.
        """
        new = positions.queries.shape[1]
        total = positions.keys.shape[1]
        has_past = new < total
        window = pattern.size if isinstance(pattern, Window) else None

        # The fused kernel makes the causal mask itself, but knows no padding, cache or window.
        is_plain = mask is None and attention_mask is None and window is None and not has_past
        if self.config.causal and is_plain:
            return View(positions, mask=None, is_causal=True)

        parts = []  # a token may attend where all of these masks are True
        if mask is not None:
            parts.append(mask)
        else:
            # One new token behind a cache sees everything before it.
            sees_all = has_past and new == 1
            if self.config.causal and not sees_all:
                parts.append(masks.causal(new, total, positions.keys.device))
            if window is not None:
                parts.append(masks.window(positions.queries, positions.keys, window))
        if attention_mask is not None:
            parts.append(masks.padding(attention_mask))
        return View(positions, mask=masks.all_of(parts), is_causal=False)

    def _init(self, module: nn.Module) -> None:
        """Weights from N(0, init_std), biases 0, norms 1 (Devlin et al. 2019; GPT-2)."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.init_std)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, nn.LayerNorm | RMSNorm):
            nn.init.ones_(module.weight)

    def _scale_residual_outputs(self) -> None:
        """Smaller weights where a layer adds to the residual (GPT-2 report, section 2.3)."""
        # A layer adds twice: attention and feed-forward. The sum's variance stays the same.
        additions = 2 * self.config.layers
        std = self.config.init_std / additions**0.5
        for name, weight in self.named_parameters():
            if name.endswith(("attn.out.weight", "cross.out.weight", "ff.down.weight")):
                nn.init.normal_(weight, std=std)
