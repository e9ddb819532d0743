"""BERT (Devlin et al. 2019).

Differs from the 2017 Transformer by: the encoder alone; learned positions; a segment table; a norm on the
embedding; GELU; a masked-word and a next-sentence head instead of a decoder.
"""

from collections.abc import Mapping
from typing import Any

from course_lib import heads
from course_lib.config import EmbedConfig, Learned, StackConfig
from course_lib.errors import CourseError
from course_lib.hf import Architecture, Family, Rule
from course_lib.stack import Stack


def bert(
    vocab: int = 30522, *, width: int, layers: int, heads: int, hidden: int | None = None, length: int = 512,
    segments: int = 2, dropout: float = 0.1,
) -> StackConfig:  # fmt: skip
    """A BERT of any size; the feed-forward is four times as wide as the model unless said otherwise."""
    return StackConfig(
        embed=EmbedConfig(vocab=vocab, segments=segments, norm=True),
        width=width,
        layers=layers,
        heads=heads,
        hidden=hidden or 4 * width,
        position=Learned(length),
        norm="post",
        eps=1e-12,
        activation="gelu",
        dropout=dropout,
        attention_dropout=dropout,
    )


def bert_base() -> StackConfig:
    """12 layers of 768, 12 heads: the paper's 110M."""
    return bert(width=768, layers=12, heads=12)


def bert_large() -> StackConfig:
    """24 layers of 1024, 16 heads: the paper's 340M."""
    return bert(width=1024, layers=24, heads=16)


def bert_mini(vocab: int = 3072, length: int = 160, dropout: float = 0.0) -> StackConfig:
    """The classroom's BERT: 4 layers of 128, 4 heads. No dropout: it sees every document once."""
    return bert(vocab, width=128, layers=4, heads=4, length=length, dropout=dropout)


ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "relu": "relu", "silu": "silu"}
PUBLIC_ACTIVATIONS = {ours: theirs for theirs, ours in ACTIVATIONS.items()}


def activation(values: Mapping[str, Any], key: str) -> Any:
    """Our name of a public activation function."""
    if values[key] not in ACTIVATIONS:
        raise CourseError(f"Activation {values[key]!r} is not one of the course's ({', '.join(ACTIVATIONS)}).")
    return ACTIVATIONS[values[key]]


def read_config(values: Mapping[str, Any]) -> StackConfig:
    """config.json of transformers' BertModel to ours."""
    if values.get("position_embedding_type", "absolute") != "absolute" or values.get("is_decoder", False):
        raise CourseError("Only BERT as published is read: absolute positions, an encoder.")
    return StackConfig(
        embed=EmbedConfig(vocab=values["vocab_size"], segments=values.get("type_vocab_size", 2), norm=True),
        width=values["hidden_size"],
        layers=values["num_hidden_layers"],
        heads=values["num_attention_heads"],
        hidden=values["intermediate_size"],
        position=Learned(values["max_position_embeddings"]),
        norm="post",
        eps=values.get("layer_norm_eps", 1e-12),
        activation=activation(values, "hidden_act"),
        dropout=values.get("hidden_dropout_prob", 0.1),
        attention_dropout=values.get("attention_probs_dropout_prob", 0.1),
        init_std=values.get("initializer_range", 0.02),
    )


def write_config(config: StackConfig) -> dict[str, Any]:
    """The reverse of `read_config`."""
    length = config.position.length if isinstance(config.position, Learned) else 0
    return {
        "vocab_size": config.embed.vocab,
        "type_vocab_size": config.embed.segments,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "max_position_embeddings": length,
        "layer_norm_eps": config.eps,
        "hidden_act": PUBLIC_ACTIVATIONS[config.activation],
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.init_std,
    }


def pairs(theirs: str, ours: str) -> tuple[Rule, Rule]:
    """The two rules of a layer with a weight and a bias."""
    return Rule(theirs + ".weight", ours + ".weight"), Rule(theirs + ".bias", ours + ".bias")


EMBEDDINGS = (
    Rule("embeddings.word_embeddings.weight", "embed.tokens.weight"),
    Rule("embeddings.token_type_embeddings.weight", "embed.segments.weight"),
    Rule("embeddings.position_embeddings.weight", "position.table.weight"),
    Rule("embeddings.position_ids", None),
    *pairs("embeddings.LayerNorm", "embed.norm"),
)
# What stands between the attention and the next layer, under the same names in RoBERTa, ELECTRA and DeBERTa.
AROUND = (
    *pairs("encoder.layer.{}.attention.output.dense", "blocks.{}.attn.out"),
    *pairs("encoder.layer.{}.attention.output.LayerNorm", "blocks.{}.attn_norm"),
    *pairs("encoder.layer.{}.intermediate.dense", "blocks.{}.ff.up"),
    *pairs("encoder.layer.{}.output.dense", "blocks.{}.ff.down"),
    *pairs("encoder.layer.{}.output.LayerNorm", "blocks.{}.ff_norm"),
)
BODY = (
    *EMBEDDINGS,
    *pairs("encoder.layer.{}.attention.self.query", "blocks.{}.attn.q"),
    *pairs("encoder.layer.{}.attention.self.key", "blocks.{}.attn.k"),
    *pairs("encoder.layer.{}.attention.self.value", "blocks.{}.attn.v"),
    *AROUND,
)
POOLER = pairs("pooler.dense", "pooler.dense")
NO_POOLER = (Rule("pooler.dense.weight", None), Rule("pooler.dense.bias", None))
MASKED = (
    *pairs("cls.predictions.transform.dense", "head.dense"),
    *pairs("cls.predictions.transform.LayerNorm", "head.norm"),
    Rule("cls.predictions.bias", "head.bias"),
    Rule("cls.predictions.decoder.weight", None),  # tied to the token vectors
    Rule("cls.predictions.decoder.bias", None),  # tied to cls.predictions.bias
)
NEXT = pairs("cls.seq_relationship", "next")
NO_NEXT = (Rule("cls.seq_relationship.weight", None), Rule("cls.seq_relationship.bias", None))


def labels(values: Mapping[str, Any]) -> int:
    """Number of classes: what the caller asked for, else what config.json says, else transformers' default of two."""
    if "classes" in values:
        return int(values["classes"])
    return len(values.get("id2label") or {0: "", 1: ""})


FAMILY = Family(
    model_type="bert",
    read_config=read_config,
    write_config=write_config,
    prefix="bert.",
    rules=BODY,
    pooler=POOLER,
    architectures={
        "BertModel": Architecture(lambda c, v: heads.Pooled(Stack(c)), POOLER, has_prefix=False),
        "BertForMaskedLM": Architecture(lambda c, v: heads.MLM(Stack(c)), MASKED + NO_POOLER + NO_NEXT),
        "BertForNextSentencePrediction": Architecture(lambda c, v: heads.NSP(Stack(c)), POOLER + NEXT),
        "BertForPreTraining": Architecture(lambda c, v: heads.Pretraining(Stack(c)), MASKED + POOLER + NEXT),
        "BertForSequenceClassification": Architecture(
            lambda c, v: heads.Classifier(Stack(c), labels(v)), POOLER + pairs("classifier", "out")
        ),
        "BertForMultipleChoice": Architecture(lambda c, v: heads.Choice(Stack(c)), POOLER + pairs("classifier", "out")),
        "BertForTokenClassification": Architecture(
            lambda c, v: heads.Tagger(Stack(c), labels(v)), pairs("classifier", "out")
        ),
        "BertForQuestionAnswering": Architecture(lambda c, v: heads.Span(Stack(c)), pairs("qa_outputs", "out")),
    },
)
