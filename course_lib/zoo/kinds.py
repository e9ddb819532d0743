"""How each class of model is stored in a shipped checkpoint: one entry of `STORAGE` for each class.

A masked language model (class `MLM`) is stored as

    config.json          {"head": "MLM", "stack": {"width": 256, "layers": 4, ...}}
    model.safetensors    {"stack.blocks.0.attn.q.weight": ..., ...}, tied matrices only once

and the entry "MLM" makes the same model of them. shipped.py reads and writes the files themselves,
and adds "head", the name of the class.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.families import elmo
from course_lib.families.sentence import Sentence
from course_lib.families.word_vectors import WordVectors
from course_lib.model import heads
from course_lib.model.config import from_dict, to_dict
from course_lib.model.seq2seq import EncoderDecoder, Seq2SeqLM, encoder_config
from course_lib.model.tied import tied
from course_lib.model.transformer import Transformer
from course_lib.zoo.weights import load_strictly


def _module_weights(model: nn.Module) -> dict[str, Tensor]:
    """The state dict without the second names of tied matrices."""
    second_names = tied(model)
    return {name: value for name, value in model.state_dict().items() if name not in second_names}


def _fill_module(model: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """Load what `_module_weights` returned, and switch to eval mode."""
    for further_name, first_name in tied(model).items():
        if first_name in weights:
            weights.setdefault(further_name, weights[first_name])
    load_strictly(model, weights, source)
    model.eval()


@dataclass(frozen=True)
class Storage:
    """How the models of one class are written to a checkpoint, and made again from it.

    Attributes:
        build: (config.json, vocabulary.json or {}) -> a model with random weights.
        describe: model -> its config.json without "head".
        weights: model -> its tensors by name.
        fill: (model, tensors by name, their file for error messages): loads the tensors.
        vocabulary: vocabulary.json -> the vocabulary that users get instead of a tokenizer.
    """

    build: Callable[[dict[str, Any], dict[str, Any]], Any]
    describe: Callable[[Any], dict[str, Any]]
    weights: Callable[[Any], dict[str, Tensor]] = _module_weights
    fill: Callable[[Any, dict[str, Tensor], str], None] = _fill_module
    vocabulary: Callable[[dict[str, Any]], Any] = lambda _: None


def _head_on_stack(head: Callable[[Transformer], nn.Module]) -> Storage:
    """A head on one `Transformer`, whose configuration is all there is to store."""
    return Storage(
        build=lambda config, _: head(Transformer(from_dict(config["stack"]))),
        describe=lambda model: {"stack": to_dict(model.stack.config)},
    )


def _token_head(head: Callable[..., nn.Module]) -> Storage:
    """A head with logits over the vocabulary. It may have an output matrix of its own (untied)."""

    def build(config: dict[str, Any], _: dict[str, Any]) -> nn.Module:
        # A checkpoint without the entry has tied matrices.
        return head(Transformer(from_dict(config["stack"])), tied=config.get("tied", True))

    def describe(model: Any) -> dict[str, Any]:
        config = {"stack": to_dict(model.stack.config)}
        # "tied" is written only if it is false. So older checkpoints, which lack it, mean the same.
        return config if heads.is_tied(model) else config | {"tied": False}

    return Storage(build, describe)


def _build_seq2seq(config: dict[str, Any], _: dict[str, Any]) -> Seq2SeqLM:
    encoder = from_dict(config["encoder"]) if "encoder" in config else None
    stack = EncoderDecoder(
        from_dict(config["stack"]),
        encoder=encoder,
        start=config["start"],
        one_table=config.get("one_table", True),
    )
    return Seq2SeqLM(stack, tied=config["tied"], scaled=config["scaled"], bias=config["bias"])


def _describe_seq2seq(model: Seq2SeqLM) -> dict[str, Any]:
    config: dict[str, Any] = {"stack": to_dict(model.stack.config)}
    encoder = model.stack.encoder.config
    # The encoder's configuration is left out if it follows from the decoder's.
    if encoder != encoder_config(model.stack.config):
        config["encoder"] = to_dict(encoder)
    config["start"] = model.stack.start
    config["tied"] = model.head is None
    config["scaled"] = model.scaled
    config["bias"] = model.bias is not None
    if not model.stack.one_table:
        config["one_table"] = False
    return config


def _build_sentence(config: dict[str, Any], _: dict[str, Any]) -> Sentence:
    return Sentence(Transformer(from_dict(config["stack"])), config["pool"])


def _describe_sentence(model: Sentence) -> dict[str, Any]:
    return {"stack": to_dict(model.stack.config), "pool": model.pool}


def _build_elmo(config: dict[str, Any], _: dict[str, Any]) -> elmo.BiLM:
    # JSON turns the config's tuples into lists.
    filters = tuple(tuple(pair) for pair in config["elmo"]["filters"])
    return elmo.model(elmo.ElmoConfig(**config["elmo"] | {"filters": filters}))


def _describe_elmo(model: elmo.BiLM) -> dict[str, Any]:
    return {"elmo": asdict(model.elmo.config)}


def _elmo_vocabulary(words: dict[str, Any]) -> elmo.Vocabulary:
    return elmo.Vocabulary(words["words"])


def _build_vectors(config: dict[str, Any], words: dict[str, Any]) -> WordVectors:
    matrix = torch.zeros(config["words"], config["width"])
    return WordVectors(words["words"], matrix, words["counts"])


def _describe_vectors(model: WordVectors) -> dict[str, Any]:
    return {"words": len(model), "width": model.matrix.shape[1]}


def _vectors_weights(model: WordVectors) -> dict[str, Tensor]:
    return {"vectors": model.matrix}


def _fill_vectors(model: WordVectors, weights: dict[str, Tensor], _: str) -> None:
    model.matrix.copy_(weights["vectors"])


# name of the model's class, which is "head" in config.json -> how it is stored
STORAGE: dict[str, Storage] = {
    "LM": _token_head(heads.LM),
    "MLM": _token_head(heads.MLM),
    "Pretraining": _token_head(heads.Pretraining),
    "RTD": _head_on_stack(heads.RTD),
    "Seq2SeqLM": Storage(_build_seq2seq, _describe_seq2seq),
    "Sentence": Storage(_build_sentence, _describe_sentence),
    "BiLM": Storage(_build_elmo, _describe_elmo, vocabulary=_elmo_vocabulary),
    "WordVectors": Storage(_build_vectors, _describe_vectors, _vectors_weights, _fill_vectors),
}
