"""Make token files of a text: a tokenizer, and the text as token ids, in a folder.

The commands `tokenize` and `pretrain` write them once, and every later run only opens them:

    tokenizer.json    learned from the text
    tokens/           the ids of all documents to train on, and a note of what they are made from
    held_out/         the ids of a few documents that are not trained on; their loss is measured
"""

import shutil
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from course_lib.data import corpora, sources
from course_lib.data.token_store import FORMAT, TokenStore, encode_corpus, fingerprint
from course_lib.data.tokenizers import Tokenizer, add_sentinels, train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.files import read_json, write_json
from course_lib.training.pretrain_config import TokenizeConfig
from course_lib.training.sizes import family_and_size

LEARN_FROM = 50_000  # number of documents that the vocabulary is learned from, the first ones
HELD_OUT = 200  # number of documents that are taken from the validation split
# The note of what the files are made from. It is written before all other files.
MADE_FROM = Path("tokens", "made_from.json")
Corpus = Callable[[], Iterable[Any]]  # a function that reads a corpus from its first document


class TokenFiles(NamedTuple):
    """The tokenizer and the token files that a run reads."""

    tokenizer: Tokenizer
    store: TokenStore  # tokens to train on
    held_out: TokenStore | None  # tokens for the held-out loss, if the corpus has any


def tokenize(config: TokenizeConfig, tokenizer: Tokenizer | None = None) -> TokenFiles:
    """Learn a tokenizer and write a corpus as token files, unless the folder has them already.

    Files that were made from other texts, or in another way, are made again; so is a tokenizer that
    was learned here.

    `out/held_out` gets the first documents of the validation split. If the corpus has none, it gets
    the first `config.held_out` documents, which are then not trained on.

    Args:
        config: the settings.
        tokenizer: the tokenizer to use; None learns a new one.

    Raises:
        CourseError: the folder holds a run on other data, or nothing is left to train on.
    """
    if _has_tokens(config.data):
        return _reopen(config, tokenizer)
    note = _note(config, tokenizer)
    old_note = _read_note(config.out) if _has_tokens(config.out) else None
    # A fresh run uses the old tokens only where their texts are known to be the same.
    if old_note == note and (config.resume or note["content"] is not None):
        return _reopen(config, tokenizer)
    _check_other_run(config, old_note, note)

    corpus = partial(
        corpora.corpus,
        config.data,
        n=config.documents,
        seed=config.seed,
        column=config.column,
        streaming=True,
    )
    held_out, taken = _hold_out(config, corpus)
    if not _has_tokenizer(config, note):
        # If the source does not exist, the error comes here, before anything is written.
        chosen = tokenizer or _learn(config, corpus)
        write_json(config.out / MADE_FROM, note)  # before the tokenizer, for we may be stopped
        chosen.save(config.out)

    stored = Tokenizer.load(config.out)
    shutil.rmtree(config.out / "held_out", ignore_errors=True)  # of other data
    if held_out:
        encode_corpus(held_out, stored, config.out / "held_out")
    encode_corpus(islice(corpus(), taken, None), stored, config.out / "tokens", note=note)
    return open_files(config.out, config.data, tokenizer)


def _note(config: TokenizeConfig, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """What is written beside the tokens: the texts and the tokenizer that they are made from."""
    note: dict[str, Any] = {
        "format": FORMAT,
        "data": config.data,
        "content": sources.digest(config.data),
        "documents": config.documents,
        "seed": config.seed,
    }
    if config.held_out:
        note["held_out"] = config.held_out
    if config.column:
        note["column"] = config.column
    if tokenizer is None and _brought_tokenizer(config.out):
        tokenizer = Tokenizer.load(config.out)
    if tokenizer is not None:
        return note | {"tokenizer": fingerprint(tokenizer)}
    family, _ = family_and_size(config.model)
    kind = "span_corrupted" if family.objective == "span_corrupted" else family.tokenizer
    return note | {"tokenizer": kind, "vocab": config.vocab, "cased": config.cased}


def _read_note(out: Path) -> dict[str, Any]:
    """What the folder's tokens, or the tokenizer that was learned for them, are made from."""
    file = out / MADE_FROM
    if file.is_file():
        note = read_json(file)
        return note if isinstance(note, dict) else {}
    return TokenStore.open(out / "tokens").note if _has_tokens(out) else {}


def _brought_tokenizer(out: Path) -> bool:
    """Whether the folder's tokenizer.json is the user's own, and not learned by `tokenize`."""
    made_here = "vocab" in _read_note(out) or (_has_tokens(out) and "format" not in _read_note(out))
    return (out / "tokenizer.json").exists() and not made_here


def _has_tokenizer(config: TokenizeConfig, note: dict[str, Any]) -> bool:
    """Whether the folder has a tokenizer that can be used: the user's own, or a matching one."""
    is_there = (config.out / "tokenizer.json").exists()
    is_the_same = config.resume and _read_note(config.out) == note
    return is_there and (_brought_tokenizer(config.out) or is_the_same)


def _check_other_run(
    config: TokenizeConfig, old_note: dict[str, Any] | None, note: dict[str, Any]
) -> None:
    """Refuse to write over the tokens that a run in the folder learns from."""
    has_run = (config.out / "run" / "state.safetensors").exists()
    if old_note is None or not config.resume or not has_run:
        return
    changes = []
    if "format" not in old_note:
        changes.append("written by an earlier version of the course")
        note = {key: value for key, value in note.items() if key in old_note}
    for key in note:
        old = old_note.get(key)
        if key == "content" and old != note[key]:
            changes.append("its files have changed")
        elif old != note[key]:
            changes.append(f"{key} {old}, not {note[key]}")
    raise CourseError(
        f"{config.out} holds a run on other data ({'; '.join(changes)}); name another folder, or"
        " say --afresh."
    )


def _hold_out(config: TokenizeConfig, corpus: Corpus) -> tuple[Iterable[Any], int]:
    """The held-out documents, and how many of them were taken from the training documents."""
    held_out = _validation(config.data, config.seed, config.column)
    if held_out or not config.held_out:
        return held_out, 0
    taken = config.held_out
    # Is there one more document after those that were taken?
    if next(islice(corpus(), taken, None), None) is None:
        raise CourseError(
            f"{taken} documents kept aside leave nothing to train on; {config.data} has no more."
        )
    return islice(corpus(), taken), taken


def _validation(source: str | None, seed: int, column: str | None) -> Any:
    """The first documents of a source's validation split; none if it has no such split."""
    if not source:
        return []
    try:
        return corpora.corpus(source, split="validation", n=HELD_OUT, seed=seed, column=column)
    except CourseError:  # no such split, or the source is no longer there
        return []


def _learn(config: TokenizeConfig, corpus: Corpus) -> Tokenizer:
    """A new tokenizer of the family's kind."""
    texts = (row["text"] for row in islice(corpus(), LEARN_FROM))
    family, _ = family_and_size(config.model)
    if family.tokenizer == "bpe":
        return train_bpe(texts, config.vocab)
    learned = train_wordpiece(texts, config.vocab, lowercase=not config.cased)
    return add_sentinels(learned) if family.objective == "span_corrupted" else learned


def _reopen(config: TokenizeConfig, tokenizer: Tokenizer | None) -> TokenFiles:
    """Existing token files; held-out text is added if they have none."""
    files = open_files(config.out, config.data, tokenizer)
    if files.held_out is None:
        note = files.store.note
        held_out = _validation(note.get("data"), config.seed, note.get("column"))
        if held_out:
            encode_corpus(held_out, files.tokenizer, config.out / "held_out")
    return open_files(config.out, config.data)  # once more, with the held-out text


def _has_tokens(place: str | Path) -> bool:
    return TokenStore.exists(Path(place) / "tokens")


def open_files(out: Path, data: str, expected: Tokenizer | None = None) -> TokenFiles:
    """What a run reads: the token files in `data` if it is a folder of them, else those in `out`.

    Args:
        out: the run's folder.
        data: its corpus, or a folder of token files.
        expected: the tokenizer of the model that the run begins with.

    Raises:
        CourseError: the tokens are those of another tokenizer.
    """
    place = Path(data) if _has_tokens(data) else out
    tokenizer = Tokenizer.load(place)
    if expected is not None and expected.backend.to_str() != tokenizer.backend.to_str():
        raise CourseError(
            f"The tokens in {place} are those of another tokenizer than the model's to begin with."
        )
    if place != out and not (out / "tokenizer.json").exists():
        tokenizer.save(out)
    held_out = None
    for folder in (place / "held_out", out / "held_out"):
        if held_out is None and TokenStore.exists(folder):
            held_out = TokenStore.open(folder, tokenizer)
    return TokenFiles(tokenizer, TokenStore.open(place / "tokens", tokenizer), held_out)
