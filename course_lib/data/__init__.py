"""Text and labels for the lessons, and the batches made of them.

    from course_lib import data
    documents = data.corpus("docs")             # or a file or folder, "hub:NAME", ...
    examples = data.task("reviews.csv", columns={"text": "review", "label": "stars"})

Both give a `datasets.Dataset`. `encode_corpus` turns documents into token numbers, and `batches`
has the sources of training batches made from them."""
# ruff: noqa: F401  the names are the package's

from course_lib.data.batches import CorruptedBatches, DocumentBatches, StreamBatches, WindowBatches
from course_lib.data.corpora import corpus
from course_lib.data.tasks import has_labels, held_out, task, unlabelled
from course_lib.data.token_store import TokenStore, encode_corpus
