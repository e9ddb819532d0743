"""Requests and short answers: what a chat model is made of in lesson 21.

remarks.read("tasks/sentiment", "train")        rows of request, answer, and whether it praises
remarks.rows(tokenizer, pairs)                  requests with their answers as token ids
remarks.write(model, tokenizer, requests)       the answers that a model draws
remarks.repeated("so good, so good")            0.5, half of its words stood there before
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from course_lib import data, generation
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from course_lib.files import DATA
from course_lib.objectives.collate import pad_to_longest

OURS = "tasks/sentiment"
ABOUT = {
    "films_books": "a film or a book",
    "food_stays": "food or a hotel",
    "things_services": "a thing or a service",
}


class Remark(NamedTuple):
    """A request, an answer to it, and whether the answer praises."""

    request: str
    answer: str
    good: bool


def read(source: str = OURS, split: str = "train", words: int = 30) -> list[Remark]:
    """The remarks of a task with two labels, the second of which is praise.

    Those of the course come with what they are about, so there are three requests. Others have one.
    A source without such labels is replaced by the course's.

    Args:
        source: a name, folder or file, as for `data.task`.
        split: "train" or "test".
        words: longer answers are left out.
    """
    found = _labelled(source, split) or _ours(split)
    return [row for row in found if len(row.answer.split()) <= words]


def _labelled(source: str, split: str) -> list[Remark]:
    """The rows of a source that is not ours; none if it has not two labels."""
    if source != OURS and data.has_labels(source):
        found = data.task(source, split=split if split == "train" else data.held_out(source))
        if {"text", "label"} <= set(found.column_names) and set(found["label"]) == {0, 1}:
            asked = "Please write a review:"
            return [Remark(asked, row["text"], row["label"] == 1) for row in found]
    return []


def _ours(split: str) -> list[Remark]:
    lines = (DATA / OURS / f"{split}.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return [
        Remark(f"Please review {ABOUT[row['domain']]}:", row["text"], row["label"] == "positive")
        for row in found
    ]


def rows(
    tokenizer: Tokenizer, pairs: Iterable[tuple[str, str]], longest: int = 30
) -> dict[str, Tensor]:
    """Requests and answers as a batch: start token, request, answer, end token.

    Args:
        pairs: request and answer of each row.
        longest: an answer is cut after so many tokens.

    Returns:
        `ids` Int[B T]; `lengths` Int[B], the tokens of each request with the start token; and
        `attention_mask` Bool[B T].
    """
    lines = []
    lengths = []
    for request, answer in pairs:
        asked = _request(tokenizer, request)
        told = tokenizer.encode(f" {answer}", special=False).ids[:longest]
        lines.append([*asked, *told, _end(tokenizer)])
        lengths.append(len(asked))
    padded = pad_to_longest(lines, tokenizer.vocab.padding_id)
    return padded | {"lengths": torch.tensor(lengths)}


def write(
    model: nn.Module,
    tokenizer: Tokenizer,
    requests: Sequence[str],
    seed: int = 0,
    longest: int = 24,
) -> list[str]:
    """One answer to each request, drawn token by token (top-p 0.9). An answer that has no end
    within `longest` tokens ends in " ...".
    """
    vocab = tokenizer.vocab
    asked = [_request(tokenizer, request) for request in requests]
    ids, attention_mask = generation.left_pad(asked, vocab.padding_id)
    drawn = generation.generate(
        model.eval(),
        ids,
        attention_mask=attention_mask,
        max_new_tokens=longest,
        eos=vocab.eos,
        pad=vocab.pad,
        do_sample=True,
        top_p=0.9,
        generator=torch.Generator().manual_seed(seed),
    )
    answers = []
    for row in drawn[:, ids.shape[1] :].tolist():
        text = tokenizer.decode([token for token in row if token not in vocab.special])
        end = "" if vocab.eos in row else " ..."
        answers.append(" ".join(text.split()) + end)
    return answers


def repeated(text: str) -> float:
    """The share of a text's words that stood in it before; 0 for an empty one."""
    words = re.findall(r"\w+", text.lower())
    return 1 - len(set(words)) / len(words) if words else 0.0


def _request(tokenizer: Tokenizer, request: str) -> list[int]:
    return [_end(tokenizer), *tokenizer.encode(request, special=False).ids]


def _end(tokenizer: Tokenizer) -> int:
    """The token between two texts."""
    if tokenizer.vocab.eos is None:
        raise CourseError("The tokenizer has no token for the end of a text.")
    return tokenizer.vocab.eos
