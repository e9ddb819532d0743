"""Random public models of every class in a classroom's size, and what they answer."""

from dataclasses import dataclass

import torch
import transformers
from torch import Tensor, nn

from tests.parity.public import close

VOCAB, WIDTH = 60, 16
# The sizes of all families by their public names; each takes those that it has.
SIZES = {
    **dict.fromkeys(("hidden_size", "dim", "n_embd", "d_model", "embedding_size"), WIDTH),
    **dict.fromkeys(("intermediate_size", "hidden_dim", "n_inner", "d_ff"), 4 * WIDTH),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 4 * WIDTH),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads"), 2),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 2),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx"), 20),
    "vocab_size": VOCAB,
    "pooler_hidden_size": WIDTH,
    "d_kv": 8,
}
TOKENS = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 2)
OWN = {  # what transformers' defaults do not say as the published models do
    "deberta": {"relative_attention": True, "position_biased_input": False}
    | {"pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
    "modernbert": {"local_attention": 6, "layer_types": None, "pad_token_id": 0},
    "blenderbot": {"encoder_no_repeat_ngram_size": 0},
}


@dataclass
class Rows:
    """Two rows of token ids [2, 6], the second one padded."""

    ids: Tensor
    mask: Tensor


def batch_for(config) -> Rows:
    """Rows for a public model: theirs finds padding by the id that its configuration names."""
    pad = config.pad_token_id or 0
    ids = torch.tensor([[5, 9, 30, 7, 8, 2], [6, 40, 2, pad, pad, pad]])
    return Rows(ids, torch.arange(6) < torch.tensor([[6], [3]]))


def small(model_type):
    """A config.json of the family in a classroom's size."""
    kind = transformers.CONFIG_MAPPING[model_type]
    names = kind().to_dict().keys()
    sizes = {name: size for name, size in SIZES.items() if name in names}
    tokens = {name: 2 for name in TOKENS if name in names}
    if kind().pad_token_id is None:
        tokens["pad_token_id"] = 0
    return kind(**sizes | tokens | OWN.get(model_type, {}), attn_implementation="eager")


def answers(model: nn.Module, name: str, rows: Rows) -> tuple[Tensor, ...]:
    """The tensors that a model gives for the rows' real tokens; a class's name tells which."""
    ids, mask = rows.ids, rows.mask
    if name.endswith("MultipleChoice"):
        ids, mask = ids[:, None], mask[:, None]
    is_theirs = isinstance(model, transformers.PreTrainedModel)
    has_targets = name.startswith(("Bart", "Blenderbot", "T5")) and not name.endswith(
        ("SequenceClassification", "QuestionAnswering")
    )
    with torch.no_grad():
        if is_theirs:
            found = _their_answers(model, name, ids, mask, has_targets)
        else:
            targets = {"decoder_ids": ids, "decoder_attention_mask": mask} if has_targets else {}
            found = model(ids, attention_mask=mask, **targets)
            found = found if isinstance(found, tuple) else (found,)
            found = [x for x in found if x is not None]
    # What a model says of padding means nothing.
    is_per_token = [x.shape[:2] == rows.ids.shape for x in found]
    return tuple(
        x[rows.mask] if per_token else x for x, per_token in zip(found, is_per_token, strict=True)
    )


def _their_answers(model, name, ids, mask, has_targets) -> tuple[Tensor, ...]:
    targets = (
        {"decoder_input_ids": ids, "decoder_attention_mask": mask.long(), "use_cache": False}
        if has_targets
        else {}
    )
    found = model(ids, attention_mask=mask.long(), return_dict=True, **targets)
    keys = ("logits", "prediction_logits", "start_logits", "end_logits", "seq_relationship_logits")
    keys += ("sop_logits", "last_hidden_state", "pooler_output")
    first = [found[key] for key in keys if found.get(key) is not None]
    if name in ("GPT2Model", "OpenAIGPTModel"):
        first = [first[0] @ model.get_input_embeddings().weight.T]
    return tuple(first)


def same(ones, others) -> bool:
    return len(ones) == len(others) and all(
        a.shape == b.shape and close(a, b) for a, b in zip(ones, others, strict=True)
    )


def shaken(model):
    """What training would do to the weights that it trains."""
    torch.manual_seed(4)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data.add_(0.2 * torch.randn_like(weight))
    return model
