"""What pretraining hides from a model, and what the model should say.

    masking     BERT, RoBERTa, SpanBERT: single tokens, whole words, spans
    formats     next-sentence pairs, and the four ways in which RoBERTa fills a row
    denoising   BART: masking, deletion, infilling, permutation, rotation
    sentinels   T5: spans behind sentinels, prefix language modelling
    replacing   ELECTRA: tokens that a generator has made up

Pure functions: the input stays as it was, and every draw comes from the `torch.Generator` passed in, so the
same generator state gives the same corruption. Letters: B batch, T positions. `objectives` makes batches with them.
"""

from course_lib.corrupt.base import IGNORE, Corrupted, generator
from course_lib.corrupt.denoising import (
    NOISES,
    document_rotation,
    infill,
    noised,
    poisson_lengths,
    sentence_ends,
    sentence_permutation,
    text_infilling,
    token_deletion,
    token_masking,
)
from course_lib.corrupt.formats import (
    Format,
    InputRow,
    SentencePair,
    input_rows,
    nsp_pairs,
    packed_sentences,
    segment_pairs,
    sentence_pairs,
)
from course_lib.corrupt.masking import mask_documents, mask_known, mask_spans, mask_tokens, span_lengths
from course_lib.corrupt.replacing import Replaced, original, replace_tokens, sample
from course_lib.corrupt.sentinels import (
    InputTarget,
    add_sentinels,
    mark_spans,
    prefix_lm,
    restore,
    sentinels,
    span_corruption,
)

__all__ = [
    "IGNORE",
    "NOISES",
    "Corrupted",
    "Format",
    "InputRow",
    "InputTarget",
    "Replaced",
    "SentencePair",
    "add_sentinels",
    "document_rotation",
    "generator",
    "infill",
    "input_rows",
    "mark_spans",
    "mask_documents",
    "mask_known",
    "mask_spans",
    "mask_tokens",
    "noised",
    "nsp_pairs",
    "original",
    "packed_sentences",
    "poisson_lengths",
    "prefix_lm",
    "replace_tokens",
    "restore",
    "sample",
    "segment_pairs",
    "sentence_ends",
    "sentence_pairs",
    "sentence_permutation",
    "sentinels",
    "span_corruption",
    "span_lengths",
    "text_infilling",
    "token_deletion",
    "token_masking",
]
