"""Text and labelled examples for the lessons, and batches of them for training.

    from course_lib import data
    documents = data.corpus("docs")             # or a file or folder, "hub:NAME", ...
    examples = data.task("reviews.csv", columns={"text": "review", "label": "stars"})

Both give a `datasets.Dataset`. Then documents or tasks become batches.

    corpora.py          `corpus`: the documents of a source
    tasks.py            `task`: the labelled examples of a source
    sources.py          finds a source by its name: a package, a file, a folder, the hub
    folders.py          which files of a folder belong to a split
    lines.py            the lines of a text file, compressed or not
    text_files.py       reads plain text and translations
    table_files.py      reads tables (.csv, .tsv)
    json_files.py       reads JSON
    tagged_files.py     reads sentences with a tag for each word
    formats.py          the columns of published formats
    columns.py          from a record of a file to a row in the course's columns
    rows.py             goes through the rows of a source
    labels.py           labels as numbers: classes or scores

    tokenizers.py       text to token ids and back
    tokenizer_settings.py   what stands beside tokenizer.json
    token_store.py      a corpus as token ids, in memory or in files
    batch_plans.py      which rows make up the batch of each step
    batches.py          batches of stored documents, for pretraining
    stream_batches.py   batches of documents that a function generates
    inputs.py           a task's rows as inputs and labels of a model, and batches of them
    text_to_text.py     tasks as text in and text out, as T5 has them
    text_batches.py     batches of text pairs and triplets, for sentence vectors
    words.py            texts as words
    word_batches.py     batches of words, for ELMo
    embedders.py        texts to vectors
"""
# ruff: noqa: F401  the names are the package's

from course_lib.data.batches import CorruptedBatches, DocumentBatches, WindowBatches
from course_lib.data.corpora import corpus
from course_lib.data.stream_batches import StreamBatches
from course_lib.data.tasks import has_labels, held_out, task, unlabelled
from course_lib.data.token_store import TokenStore, encode_corpus
