"""Measure what a model does, knows and costs.

Its files:

    look_inside.py   the outputs of a model's parts, and the model without some of its heads
    probing.py       attention between words, and linear probes of the layers
    copy_probe.py    does the model fill in words that occur earlier in the text?
    evaluation.py    loss and accuracy over held-out batches
    metrics.py       scores of predictions: accuracy, F1, BLEU and others
    analogies.py     word vectors' analogies
    sts.py           semantic textual similarity: do cosines agree with people?
    cost.py          parameters, operations, bytes, and the power law of the loss
    retrieval.py     a search engine: BM25, vectors, and both
"""

from course_lib.analysis.look_inside import capture, without_heads

__all__ = ["capture", "without_heads"]
