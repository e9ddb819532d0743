"""Text and labels for the lessons, and the batches made of them.

    from course_lib import data
    documents = data.corpus("docs")             # or a file or folder, "hub:NAME", ...
    examples = data.task("reviews.csv", columns={"text": "review", "label": "stars"})

Both give a `datasets.Dataset`. Then documents or tasks become batches.

    sources.py          what a name means: a package, a file, a folder, the hub
    corpora.py          documents by one name
    tasks.py            labelled examples by one name
    folders.py          which files of a folder hold a split
    readers.py          a file's records; formats.py and columns.py make them rows of ours

    tokenizers.py       text to token numbers and back
    token_store.py      a corpus as token numbers, in memory or in files
    batches.py          batches of stored documents; batch_plans.py says which rows come when
    stream_batches.py   batches of documents that are written as they are needed
    inputs.py           a task's rows as a model reads them
    text_batches.py     rows of several texts each; text_to_text.py: a task as text in, text out
    words.py            texts as words, in word_batches.py for ELMo
    embedders.py        texts to vectors
"""
# ruff: noqa: F401  the names are the package's

from course_lib.data.batches import CorruptedBatches, DocumentBatches, WindowBatches
from course_lib.data.corpora import corpus
from course_lib.data.stream_batches import StreamBatches
from course_lib.data.tasks import has_labels, held_out, task, unlabelled
from course_lib.data.token_store import TokenStore, encode_corpus
