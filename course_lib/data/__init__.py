"""Text and labels for the lessons, and the batches made of them.

    from course_lib import data
    documents = data.corpus("world")            # or "docs", a file or folder, "hub:NAME"
    examples = data.task("world/sentiment")     # or a folder in a published format

Both give a `datasets.Dataset`. `encode_corpus` turns documents into token numbers, and `batches` has the sources of
training batches made from them.
"""

from course_lib.data.batches import DocumentBatches, MaskedBatches, SentencePairBatches, WindowBatches
from course_lib.data.corpora import corpus
from course_lib.data.tasks import task
from course_lib.data.token_store import TokenStore, encode_corpus

__all__ = [
    "DocumentBatches",
    "MaskedBatches",
    "SentencePairBatches",
    "TokenStore",
    "WindowBatches",
    "corpus",
    "encode_corpus",
    "task",
]
