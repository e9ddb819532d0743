"""What a model does and costs.

Its files:

    look_inside.py   the outputs of a model's parts
    probing.py       who attends to whom, and what the layers know
    copy_probe.py    does the model fill in words that stand earlier in the text?
    evaluation.py    loss and accuracy over held-out batches
    metrics.py       scores of predictions: accuracy, F1, BLEU and others
    analogies.py     word vectors' analogies
    sts.py           semantic textual similarity: do cosines follow what people say?
    cost.py          parameters, operations, bytes, and the power law of the loss
    retrieval.py     a search engine
"""

from course_lib.analysis.look_inside import capture

__all__ = ["capture"]
