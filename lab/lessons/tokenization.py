"""The claims of lesson 05: what a byte-level tokenizer restores, and what a vocabulary buys."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import tokenizers as rust
import torch
from tokenizers import models, pre_tokenizers, trainers

from course_lib import data, zoo
from course_lib.data import tokenizers
from course_lib.files import DATA
from course_lib.objectives import seeded_generator
from lab.lessons import Lab, experiment, given, small_models, town

NAMES = (
    "bytes alone",
    "byte-level BPE",
    "byte-level BPE, gpt-mini",
    "WordPiece",
    "WordPiece, bert-mini",
)
TEXTS = ("all of Unicode", "random strings", "held-out documents")


@experiment("bytes-bpe")
def bytes_bpe(lab: Lab, seed: int) -> dict[str, float]:
    """Share of the texts that come back to the letter, and unknown tokens, by tokenizer. The texts:
    every character of UTF-8, in random company; random strings; documents that no tokenizer has
    read."""
    points = [*range(0xD800), *range(0xE000, 0x110000)]  # without the surrogates
    chars = [
        chr(points[i])
        for i in torch.randperm(len(points), generator=seeded_generator(seed, 1)).tolist()
    ]
    whole = ["".join(chars[i : i + 64]) for i in range(0, len(chars), 64)]
    random = ["".join(chars[7 * i : 7 * i + i % 40 + 1]) for i in range(2000)]
    write = town(small_models.WORLD).document
    read, unread = (
        [write(i, s)["text"] for i in range(n)] for s, n in (("train", 2000), ("validation", 300))
    )
    bpe = (
        tokenizers.train_bpe(read[:50], 258),
        tokenizers.train_bpe(read, 4096),
        zoo.load("gpt-mini")[1],
    )
    wordpiece = (
        tokenizers.train_wordpiece(read, 4096, lowercase=False),
        zoo.load("bert-mini")[1],
    )
    values: dict[str, float] = {}
    for name, tokenizer in zip(NAMES, (*bpe, *wordpiece), strict=True):
        unknown, unknowns = -1 if tokenizer.vocab.unk is None else tokenizer.vocab.unk, 0
        for kind, texts in zip(TEXTS, (whole, random, unread), strict=True):
            rows = tokenizer.ids(texts, special=False)
            back = tokenizer.backend.decode_batch(rows, skip_special_tokens=False)
            values[f"restored/{name}/{kind}"] = sum(
                a == b for a, b in zip(texts, back, strict=True)
            ) / len(texts)
            unknowns += sum(row.count(unknown) for row in rows)
        values[f"unknown/{name}"] = unknowns
        values[f"has an unknown token/{name}"] = float(unknown >= 0)
    return values


Count = Callable[[str], tuple[int, int]]  # text -> its tokens, and how many of them are unknown
UNKNOWN = "<unk>"


def counter(tokenizer: tokenizers.Tokenizer) -> Count:
    """Counts the tokens of a tokenizer of the library, without special tokens around the text."""

    def count(text: str) -> tuple[int, int]:
        ids = tokenizer.ids([text], special=False)[0]
        unknown = tokenizer.vocab.unk
        return len(ids), 0 if unknown is None else ids.count(unknown)

    return count


def unigram(texts: Sequence[str], size: int) -> Count:
    """Counts the tokens of a unigram language model's vocabulary (Kudo 2018), as T5 has one."""
    backend = rust.Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=size, special_tokens=[UNKNOWN], unk_token=UNKNOWN, show_progress=False
    )
    backend.train_from_iterator(texts, trainer, len(texts))
    unknown = backend.encode("\N{SNOWMAN}").ids[-1]  # a character that no book has

    def count(text: str) -> tuple[int, int]:
        ids = backend.encode(text).ids
        return len(ids), ids.count(unknown)

    return count


# A kind of vocabulary: (texts, size) -> what counts the tokens of a text.
VOCABULARIES: dict[str, Callable[[Sequence[str], int], Count]] = {
    "BPE": lambda texts, size: counter(tokenizers.train_bpe(texts, size)),
    "WordPiece": lambda texts, size: counter(
        tokenizers.train_wordpiece(texts, size, lowercase=False)
    ),
    "Unigram": unigram,
}


def kinds_of_text(lab: Lab, characters: int) -> dict[str, str]:
    """Four texts of that many characters: like the text that the vocabularies learn from, and
    less and less like it.
    """
    books = data.corpus(lab.public_data("english"), split="test")["text"]
    ours = data.corpus(DATA / "text", split="train")["text"]
    german = json.loads((lab.public_data("xquad_en") / "xquad.de.json").read_text("utf-8"))
    paragraphs = [part["context"] for one in german["data"] for part in one["paragraphs"]]
    code = Path(json.__file__).parent.glob("*.py")
    texts = {
        "books": books,
        "messages and news": ours,
        "German": paragraphs,
        "Python": [path.read_text("utf-8") for path in sorted(code)],
    }
    return {name: "\n".join(some)[:characters] for name, some in texts.items()}


@experiment("tokens-per-character")
def tokens_per_character(lab: Lab, seed: int) -> dict[str, float]:
    """Tokens a character, and unknown tokens, by kind of vocabulary, size and kind of text."""
    size = given("tokenization")["vocabularies"][lab.plan.scale]
    read = data.corpus(lab.public_data("english"), n=size["documents"], seed=seed)["text"]
    values: dict[str, float] = {}
    counts: dict[str, Count] = {
        "characters": lambda text: (len(text), 0),
        "bytes": lambda text: (len(text.encode()), 0),
    }
    for kind, learn in VOCABULARIES.items():
        for name, entries in size["entries"].items():
            counts[f"{kind}, {name}"] = learn(read, entries)
    for kind, text in kinds_of_text(lab, size["characters"]).items():
        for name, count in counts.items():
            tokens, unknown = count(text)
            values[f"tokens, {kind}/{name}"] = tokens / len(text)
            values[f"unknown, {kind}/{name}"] = unknown / tokens
    return values
