"""Split texts into words, for models that read whole words: word vectors, ELMo, the baselines."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from course_lib.data.tokenizers import Tokenizer
from course_lib.families.baselines import PAD
from course_lib.families.elmo import BOS, EOS, UNK

WORD = re.compile(r"['’]s\b|\w+(?:['’-](?!s\b)\w+)*|[^\w\s]")


def split_words(text: str) -> list[str]:
    """Split a text into words and punctuation marks. The possessive 's is a word of its own.

    >>> split_words("Anna's dog isn't here.")
    ['Anna', "'s", 'dog', "isn't", 'here', '.']
    """
    return WORD.findall(text)


def lowercase_words(texts: Iterable[str]) -> Iterator[list[str]]:
    """The words of each text in lower case, punctuation marks included."""
    return (split_words(text.lower()) for text in texts)


def task_words(task: Mapping[str, Iterable[Mapping[str, Any]]]) -> list[str]:
    """The different words of a task's texts, in all its splits, in order of first occurrence.

    It may include the test split, because ELMo reads spelling and so has a vector for every word.
    No count and no label is taken from there.
    """
    words: dict[str, None] = {}  # used as a set that keeps its order
    for rows in task.values():
        for row in rows:
            for value in row.values():
                texts = value if isinstance(value, list) else [value]
                for text in texts:
                    if isinstance(text, str):
                        words |= dict.fromkeys(split_words(text))
    return list(words)


def word_tokenizer(words: Iterable[str]) -> Tokenizer:
    """A tokenizer whose tokens are whole words and punctuation marks.

    A text becomes `<S> text </S>`, and a pair becomes two of these. Words that are not in `words`
    become `<UNK>`.
    """
    import tokenizers
    from tokenizers import models, pre_tokenizers, processors

    special = (PAD, UNK, BOS, EOS)
    vocab = {word: i for i, word in enumerate(dict.fromkeys([*special, *words]))}
    backend = tokenizers.Tokenizer(models.WordLevel(vocab, unk_token=UNK))
    backend.pre_tokenizer = pre_tokenizers.Split(
        tokenizers.Regex(WORD.pattern), "removed", invert=True
    )
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS}:0 $A:0 {EOS}:0",
        pair=f"{BOS}:0 $A:0 {EOS}:0 {BOS}:1 $B:1 {EOS}:1",
        special_tokens=[(BOS, vocab[BOS]), (EOS, vocab[EOS])],
    )
    backend.add_special_tokens(list(special))
    return Tokenizer(backend, {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS})
