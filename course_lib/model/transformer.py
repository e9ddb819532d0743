"""The stack: token ids to hidden states. The heads in heads.py turn these into predictions.

BERT, GPT, and the encoders and decoders of T5 and BART are all this class. Only their
`StackConfig`s differ. Continue in this order:

    config.py       all the options in which models differ
    layers.py       the block, the feed-forward, the embedding
    norms.py        LayerNorm and RMSNorm
    attention.py    the first part of a block
    positions.py    how attention knows the order of the tokens
    masks.py        who may attend to whom
    heads.py        the heads on top of the stack
"""

from typing import Any, cast

from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.errors import CourseError
from course_lib.model import masks, positions
from course_lib.model.attention import PositionInfo
from course_lib.model.cache import KVCache
from course_lib.model.config import AttentionPattern, StackConfig
from course_lib.model.layers import Block, Embedding
from course_lib.model.norms import RMSNorm, norm
from course_lib.model.positions import Position


class Transformer(nn.Module):
    """Embedding, L blocks, and a last norm if the config has one.

    Args:
        config: all sizes and options of the model.
    """

    # The tokens of the model's tokenizer, in the order of their ids; () if unknown.
    vocabulary: tuple[str, ...] = ()

    def __init__(self, config: StackConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = Embedding(config)
        self.position = positions.build(config)
        # One more scheme for each rotary base that a pattern sets. Rotary schemes have no weights.
        self.rotations = nn.ModuleDict()
        for pattern in config.attention:
            if pattern.rope_base is not None:
                name = _base_name(pattern.rope_base)
                self.rotations[name] = self.position.with_base(pattern.rope_base)
        blocks = 1 if config.shared else config.layers
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(blocks))
        self.norm = norm(config) if config.final_norm else nn.Identity()
        self.apply(self._init)
        if config.scaled_init:
            self._scale_residual_outputs()

    def forward(self, ids: Int[Tensor, "B T"], **options: Any) -> Float[Tensor, "B T D"]:
        """Token ids to hidden states.

        Args:
            ids: token ids.
            options: `attention_mask`, `segments`, `mask`, `cache`, `memory` and `memory_mask` of
                `run`.
        """
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
        """Token vectors to hidden states. A caller with soft prompts starts here.

        Args:
            x: token vectors, as `embed.lookup` gives them.
            attention_mask: True = a real token, False = padding, on the left or on the right.
                Positions count real tokens only. With a cache, the mask covers the past tokens and
                the new ones (Tk in all).
            segments: the segment of each token, 0 or 1 in BERT.
            mask: who may attend to whom, instead of the config's patterns and causal mask;
                `attention_mask` still applies.
            cache: keys and values of earlier tokens; those of the new tokens are appended in place.
            memory: the encoder's output, for stacks with cross-attention.
            memory_mask: the real tokens of `memory`.

        Raises:
            CourseError: a memory is missing, or given to a stack without cross-attention; or
                `attention_mask` has another length than the tokens.
        """
        if (memory is not None) != self.config.cross:
            raise CourseError(
                "A stack takes memory= exactly if it has cross-attention (StackConfig.cross)."
            )

        # With a cache, x has the new tokens only. They attend to all tokens so far.
        past = 0 if cache is None else cache.length
        keys = positions.count(past + x.shape[1], attention_mask, x.device)  # B or 1, Tk
        queries = keys[:, past:]  # B or 1, T

        # Layers with the same pattern share their positions and their mask.
        infos = {}
        layer_masks = {}
        for pattern in dict.fromkeys(self.config.attention):
            infos[pattern] = PositionInfo(self._scheme(pattern), queries, keys)
            layer_masks[pattern] = masks.of_layer(
                pattern,
                queries,
                keys,
                causal_stack=self.config.causal,
                attention_mask=attention_mask,
                mask=mask,
            )
        memory_padding = None if memory_mask is None else masks.padding(memory_mask)  # B 1 1 M

        position_vectors = self.position.embed(queries)  # 0.0 where the scheme adds none
        x = self.embed(x, position_vectors, segments)  # B T D
        for layer, block in enumerate(self.layers()):
            pattern = self.config.pattern(layer)
            x = block(
                x,
                mask=layer_masks[pattern].mask,
                is_causal=layer_masks[pattern].is_causal,
                positions=infos[pattern],
                cache=None if cache is None else cache.layer(layer),
                memory=memory,
                memory_mask=memory_padding,
            )
        return self.norm(x)

    def layers(self) -> list[nn.Module]:
        """The blocks in order. ALBERT applies one block in every layer."""
        if self.config.shared:
            return [self.blocks[0]] * self.config.layers
        return list(self.blocks)

    def _scheme(self, pattern: AttentionPattern) -> Position:
        """The position scheme of the layers with this attention pattern."""
        if pattern.rope_base is None:
            return self.position
        return cast(Position, self.rotations[_base_name(pattern.rope_base)])

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
        # A layer adds to the residual twice, after attention and after the feed-forward. With this
        # factor the variance of the sum does not depend on the number of layers.
        additions = 2 * self.config.layers
        std = self.config.init_std / additions**0.5
        for name, weight in self.named_parameters():
            if name.endswith(("attn.out.weight", "cross.out.weight", "ff.down.weight")):
                nn.init.normal_(weight, std=std)


def _base_name(base: float) -> str:
    """A module's name for a rotary base. PyTorch allows no dot in it: 10000.0 -> "10000_0"."""
    return str(base).replace(".", "_")
