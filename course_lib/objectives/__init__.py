"""Pretraining objectives: what is hidden from a model, and the loss of its predictions.

    registry.py         one entry for each objective: its corruption, its loss, under one name
    masking.py          hides tokens as BERT, RoBERTa, SpanBERT and ALBERT do
    replacing.py        ELECTRA's tokens that a generator filled in
    denoising.py        BART's five noises; T5's spans and sentinels; a text cut in two
    input_formats.py    next-sentence pairs, and RoBERTa's four ways to fill a row
    collate.py          pads rows to batches, and corrupts batches
    losses.py           the losses of a model's predictions
    distillation.py     losses that compare a student with its teacher
    draws.py            random choices that the corruptions share

Pure functions: the input stays as it was, and every draw comes from the `torch.Generator` passed
in, so the same generator state gives the same corruption. Letters: B batch, T positions.
`data.batches` makes batches with them.
"""
# ruff: noqa: F401  the names are the package's

from course_lib.objectives.denoising import (
    NOISES,
    infill,
    mark_spans,
    noised,
    prefix_lm,
    restore,
    span_corruption,
)
from course_lib.objectives.draws import lay_out, seeded_generator
from course_lib.objectives.input_formats import (
    Format,
    InputRow,
    input_rows,
    nsp_pairs,
    packed_sentences,
)
from course_lib.objectives.masking import (
    SPAN_SAMPLERS,
    mask_documents,
    mask_tokens,
    span_sampler,
)
from course_lib.objectives.registry import OBJECTIVES, Objective, corruption, objective
from course_lib.objectives.replacing import original, replace_tokens, sample
