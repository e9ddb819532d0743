"""What pretraining hides from a model, and what the model should say.

    masking          BERT, RoBERTa, SpanBERT: tokens, whole words, spans; ELECTRA: tokens that a generator made up
    input_formats    next-sentence pairs, and the four ways in which RoBERTa fills a row
    denoising        BART: five noises; T5: spans behind sentinels, prefix language modelling
    collate          rows as tensors, and the corruptions for padded batches
    losses           what a model's answers to them cost

Pure functions: the input stays as it was, and every draw comes from the `torch.Generator` passed
in, so the same generator state gives the same corruption. Letters: B batch, T positions.
`data.batches` makes batches with them."""
# ruff: noqa: F401, I001  the names are the package's

from course_lib.objectives.denoising import (
    NOISES,
    add_sentinels,
    infill,
    mark_spans,
    noised,
    prefix_lm,
    restore,
    sentence_ends,
    sentinels,
    span_corruption,
)
from course_lib.objectives.input_formats import (
    Format,
    InputRow,
    input_rows,
    nsp_pairs,
    packed_sentences,
)
from course_lib.objectives.masking import (
    mask_documents,
    mask_known,
    mask_tokens,
    original,
    replace_tokens,
    sample,
    seeded_generator,
    span_lengths,
)
