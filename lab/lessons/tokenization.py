"""The claim of lesson 05: what a byte-level tokenizer restores."""

import torch

from course_lib import zoo
from course_lib.data import tokenizers
from course_lib.objectives import seeded_generator
from lab.lessons import Lab, experiment, small_models, town

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
