"""ModernBERT (Warner et al. 2024).

Differs from BERT by (section 2.1): rotary positions instead of a table; norms before attention and
feed-forward and one after the last block, but none before the first attention, because the
embedding has one already; no biases; a gated feed-forward (GeGLU); no dropout. Every third layer
attends to the whole text. The others attend to 64 tokens on either side, and have another rotary
base.

Known departure: with a dropout above 0, public models drop out embeddings and attention weights
only. Here dropout also acts on what a layer adds to the residual.
"""

from dataclasses import replace
from typing import Any

import torch.nn.functional as F

from course_lib.errors import CourseError
from course_lib.families.encoder_heads import CLASSIFIER, gelu_head
from course_lib.families.family import Architecture, Family
from course_lib.families.fields import Fields, Values, changed, read_classes
from course_lib.families.transformer import transformer
from course_lib.families.weight_tables import Converted, Table
from course_lib.model import heads
from course_lib.model.config import (
    AttentionPattern,
    EmbedConfig,
    Global,
    Pool,
    Rope,
    StackConfig,
    Window,
)
from course_lib.model.seq2seq import Hidden
from course_lib.model.transformer import Transformer

# Fields that all ModernBERTs share.
COMMON: dict[str, Any] = {
    "embed": {"norm": True},
    "norm": "pre",
    "first_norm": False,
    "final_norm": True,
    "bias": False,
    "gated": True,
    "scaled_init": True,
}


def patterns(every: int, window: int, base: float) -> tuple[AttentionPattern, ...]:
    """The pattern of one global layer, then of `every` - 1 layers with a window.

    Args:
        every: every n-th layer is global.
        window: the number of tokens on either side that the other layers attend to.
        base: the rotary base of the other layers.

    >>> patterns(every=2, window=64, base=10_000.0)
    (Global(rope_base=None), Window(size=64, rope_base=10000.0))
    """
    local = Window(window, rope_base=base)
    return (Global(),) + (local,) * (every - 1)


def modernbert(
    vocab: int = 50368,
    *,
    width: int,
    layers: int,
    heads: int,
    hidden: int | None = None,
    dropout: float = 0.0,
    length: int = 0,
) -> StackConfig:
    """A ModernBERT of any size.

    Args:
        vocab: number of tokens in the vocabulary.
        width: size D of the hidden states.
        layers: number of layers. Every third one attends to the whole text (global attention), the
            others to 64 tokens on either side.
        heads: number of attention heads in each layer.
        hidden: size of the feed-forward layer inside a block; by default 3/2 D.
        dropout: dropout rate; published models have none.
        length: ignored, because rotary positions have no limit. Other families need it.
    """
    config = transformer(
        vocab,
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden or 3 * width // 2,
        dropout=dropout,
    )
    return replace(
        config,
        **(COMMON | {"embed": EmbedConfig(vocab, norm=True)}),
        position=Rope(160_000.0),
        attention=patterns(every=3, window=64, base=10_000.0),
        causal=False,
        cross=False,
        activation="gelu",
        init_std=0.02,
    )


# ModernBERT's config.json. `_read_config` adds the attention patterns of the layers.
FIELDS = Fields.of(
    "modernbert",
    fixed=COMMON,
    position=Rope,
    published={
        "attention_bias": False,
        "mlp_bias": False,
        "norm_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "mlp_dropout": 0.0,
        "classifier_activation": "gelu",
    },
)


def _bases(values: Values) -> tuple[float, float]:
    """The rotary bases of global and of local layers, from a new config.json or an older one."""
    rotary = values.get("rope_parameters") or {}
    of_global = rotary.get("full_attention") or {}
    of_local = rotary.get("sliding_attention") or {}
    unknown = rotary.keys() - {"full_attention", "sliding_attention"}
    unknown |= (of_global.keys() | of_local.keys()) - {"rope_type", "rope_theta"}
    if unknown:
        raise CourseError(f"rope_parameters says {min(unknown)}, which the course does not know.")
    for kind in (of_global, of_local):
        if kind.get("rope_type", "default") != "default":
            raise CourseError(f"Rotary positions are read as published, not {kind['rope_type']}.")
    return (
        _base(values, "global_rope_theta", of_global.get("rope_theta"), 160_000.0),
        _base(values, "local_rope_theta", of_local.get("rope_theta"), 10_000.0),
    )


def _base(values: Values, old_name: str, base: float | None, default: float) -> float:
    """A rotary base. Older files have it in the field `old_name`."""
    old = values.get(old_name)
    if base is not None and old is not None and base != old:
        raise CourseError(f"{old_name} is {old}, but rope_parameters says {base}; correct one.")
    return base or old or default


def _every(values: Values) -> int:
    """The n of "every n-th layer is global".

    Raises:
        CourseError: the layers have another order.
    """
    every = values.get("global_attn_every_n_layers", 3)
    types = values.get("layer_types")
    if types is None:
        return every
    # A newer config.json lists the kind of every layer.
    is_global = [kind == "full_attention" for kind in types]
    if True in is_global[1:]:
        every = is_global.index(True, 1)
    if is_global != [layer % every == 0 for layer in range(len(types))]:
        raise CourseError("Only models are read whose every n-th layer is global, from the first.")
    return every


def _read_config(values: Values) -> StackConfig:
    global_base, local_base = _bases(values)
    window = values.get("local_attention", 128) // 2  # the file counts both sides
    attention = patterns(_every(values), window, local_base)
    return FIELDS.read(changed(values, rope_theta=global_base), attention=attention)


def _write_config(config: StackConfig) -> dict[str, Any]:
    values = FIELDS.write(config)
    windows = [pattern for pattern in config.attention if isinstance(pattern, Window)]
    if windows:
        values["local_attention"] = 2 * windows[0].size
        values["local_rope_theta"] = windows[0].rope_base
    values["global_rope_theta"] = values.pop("rope_theta")
    values["global_attn_every_n_layers"] = len(config.attention)
    # Without these, transformers takes the ids of the published vocabulary, which ours may lack.
    roles = ("bos", "eos", "cls", "sep", "pad")
    return values | {f"{role}_token_id": None for role in roles}


def body_table(model: Any) -> Table:
    """Public names of the body's weights -> our names."""
    table: Table = {
        "embeddings.tok_embeddings.weight": "embed.tokens.weight",
        "embeddings.norm.weight": "embed.norm.weight",
        # The public file has q, k and v in one matrix, and gate and up in another.
        "layers.{layer}.attn.Wqkv.weight": Converted(
            (
                "blocks.{layer}.attn.q.weight",
                "blocks.{layer}.attn.k.weight",
                "blocks.{layer}.attn.v.weight",
            )
        ),
        "layers.{layer}.attn.Wo.weight": "blocks.{layer}.attn.out.weight",
        "layers.{layer}.mlp_norm.weight": "blocks.{layer}.ff_norm.weight",
        "layers.{layer}.mlp.Wi.weight": Converted(
            ("blocks.{layer}.ff.gate.weight", "blocks.{layer}.ff.up.weight")
        ),
        "layers.{layer}.mlp.Wo.weight": "blocks.{layer}.ff.down.weight",
        "final_norm.weight": "norm.weight",
    }
    # The first layer has no norm before its attention.
    for layer in range(1, model.stack.config.layers):
        table[f"layers.{layer}.attn_norm.weight"] = f"blocks.{layer}.attn_norm.weight"
    return table


# The weights outside the body: a dense layer, a norm and the last layer.
MASKED: Table = {
    "head.dense.weight": "head.dense.weight",
    "head.norm.weight": "head.norm.weight",
    "decoder.bias": "head.bias",
}
CLASSIFIED: Table = {
    "head.dense.weight": "pooler.dense.weight",
    "head.norm.weight": "pooler.norm.weight",
    **CLASSIFIER,
}
PER_TOKEN: Table = {
    "head.dense.weight": "transform.dense.weight",
    "head.norm.weight": "transform.norm.weight",
    **CLASSIFIER,
}
# Name of a pooling in config.json -> our name.
POOLS: dict[str, Pool] = {"cls": "first", "mean": "mean"}


def _classifier_options(body: Transformer, values: Values) -> dict[str, Any]:
    """A pooled vector goes through a dense layer, GELU and a norm."""
    pool = POOLS[values.get("classifier_pooling", "cls")]
    return {
        "pool": pool,
        "pooler": heads.Pooler(body, F.gelu, has_norm=True, pool=pool),
        "dropout": values.get("classifier_dropout", 0.0),
        "classes": read_classes(values),
    }


def _write_classifier(model: Any) -> dict[str, Any]:
    public_pools = {ours: theirs for theirs, ours in POOLS.items()}
    return {"classifier_pooling": public_pools[model.pool], **_write_dropout(model)}


def _span_options(body: Transformer, values: Values) -> dict[str, Any]:
    """Every token's vector goes through a dense layer, GELU and a norm."""
    return {
        "transform": heads.Transform(body, "gelu"),
        "dropout": values.get("classifier_dropout", 0.0),
    }


def _tagger_options(body: Transformer, values: Values) -> dict[str, Any]:
    return {**_span_options(body, values), "classes": read_classes(values)}


def _write_dropout(model: Any) -> dict[str, Any]:
    return {"classifier_dropout": model.dropout.p}


FAMILY = Family(
    name="modernbert",
    config=modernbert,
    model=lambda config, start: heads.MLM(Transformer(config), activation="gelu"),
    objective="masked",
    tokenizer="bpe",
    read_config=_read_config,
    write_config=_write_config,
    prefix="model.",
    table=body_table,
    token_embeddings=("embeddings.tok_embeddings.weight",),
    architectures={
        "ModernBertModel": Architecture(Hidden, has_prefix=False),
        "ModernBertForMaskedLM": Architecture(
            heads.MLM, MASKED, gelu_head, output={"decoder.weight": "head.output.weight"}
        ),
        "ModernBertForSequenceClassification": Architecture(
            heads.Classifier, CLASSIFIED, _classifier_options, write_options=_write_classifier
        ),
        "ModernBertForTokenClassification": Architecture(
            heads.TokenClassifier, PER_TOKEN, _tagger_options, write_options=_write_dropout
        ),
        "ModernBertForQuestionAnswering": Architecture(
            heads.QuestionAnswering, PER_TOKEN, _span_options, write_options=_write_dropout
        ),
    },
)
