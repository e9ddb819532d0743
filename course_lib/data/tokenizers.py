"""Text to token ids and back.

    WordPiece         BERT; Wu et al. 2016
    byte-level BPE    GPT-2; Sennrich et al. 2016, over bytes

The `tokenizers` library does the work. This file adds reproducible training, the roles of special
tokens, and the older files of public checkpoints.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from course_lib.data import tokenizer_settings
from course_lib.errors import CourseError
from course_lib.files import atomic_folder, atomic_write, finish_save, write_json
from course_lib.vocab import Vocab

Text = str | Sequence[str]  # plain text, or words that are already separated (tagging)

WORDPIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
MAX_VOCAB = 2_000_000  # limit of a trained vocabulary; the largest published ones have 256,000
BPE_SPECIALS = ("<|pad|>", "<|endoftext|>")  # ids 0 and 1
# WordPiece learns this many characters, the most frequent ones. Others become [UNK]: with every
# emoji in the vocabulary there would be less room for words.
ALPHABET = 1000
# The names that public vocabularies have for each role. The first name that is present counts.
ROLES: dict[str, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<|endoftext|>", "<s>"),
    "eos": ("<|endoftext|>", "</s>"),
}

# Replacements in decoded texts of T5 and ALBERT, if the settings ask for them: they delete the
# blank before punctuation marks and contractions.
CLEANED_UP = {f" {mark}": mark for mark in (".", "?", "!", ",")}
CLEANED_UP |= {" ' ": "'"} | {f" {end}": end for end in ("n't", "'m", "'s", "'ve", "'re")}

SENTENCE_ENDS = (".", "?", "!")
SENTINEL = "<extra_id_{}>"  # T5's names of its sentinels, the tokens that mark removed spans


@dataclass(frozen=True)
class Encoding:
    """One encoded text or pair. Every list has one entry for each token.

    Attributes:
        ids: token ids.
        segments: 0 for tokens of the first text, 1 for those of the second.
        words: the index of the word that each token belongs to; None at special tokens. The words
            of a second text are numbered after those of the first.
        offsets: where each token starts and stops in its own text, in characters.
        tokens: the tokens as they are written in the vocabulary.
        is_cut: whether the text was longer than `max_length`.
    """

    ids: list[int]
    segments: list[int]
    words: list[int | None]
    offsets: list[tuple[int, int]]
    tokens: list[str]
    is_cut: bool = False

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer:
    """A trained tokenizer: `encode`, `decode`, and `vocab` with its special tokens.

    >>> tokenizer = train_wordpiece(["the cat sat on the mat"] * 3, 60)
    >>> tokenizer.encode("the cat").tokens
    ['[CLS]', 'the', 'cat', '[SEP]']
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        roles: dict[str, str] | None = None,
        max_length: int | None = None,
    ) -> None:
        """A tokenizer of the course.

        Args:
            backend: the tokenizer of the library `tokenizers`.
            roles: role -> special token, for tokens whose names are not in `ROLES`.
            max_length: maximum number of tokens in a text, as the tokenizer's files say; None if
                they say nothing.
        """
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.roles = roles or {}
        self.max_length = max_length
        self.vocab = _vocab(backend, self.roles)
        self.byte_level = isinstance(backend.decoder, decoders.ByteLevel)
        # SentencePiece's way (T5, ALBERT): a word's first token spells the space before it as "▁".
        self.marks_spaces = any(len(t) > 1 and t.startswith("▁") for t in backend.get_vocab())
        self._kinds: Tensor | None = None

    def encode(
        self,
        text: Text,
        pair: Text | None = None,
        special: bool = True,
        *,
        max_length: int | None = None,
    ) -> Encoding:
        """Encode one text, or two for one input.

        Args:
            text: a text, or a list of words.
            pair: the second text.
            special: whether to add special tokens ([CLS] and [SEP] for BERT, none for GPT).
            max_length: maximum number of tokens, special tokens included. The longer text of a pair
                is cut first, at its end.
        """
        pairs = None if pair is None else [pair]
        (encoding,) = self.encode_batch([text], pairs, special, max_length=max_length)
        return encoding

    def encode_batch(
        self,
        texts: Sequence[Text],
        pairs: Sequence[Text] | None = None,
        special: bool = True,
        *,
        max_length: int | None = None,
    ) -> list[Encoding]:
        """Encode many texts (or pairs) in parallel; arguments as for `encode`."""
        return [_encoding(raw) for raw in self._run(texts, pairs, special, max_length, fast=False)]

    def ids(
        self, texts: Sequence[Text], special: bool = True, *, max_length: int | None = None
    ) -> list[list[int]]:
        """Encode many texts, and return only their token ids. It is faster than `encode_batch`."""
        return [raw.ids for raw in self._run(texts, None, special, max_length, fast=True)]

    def decode(self, ids: Iterable[int] | Tensor, special: bool = False) -> str:
        """The text of these ids, with special tokens only if `special` is true."""
        numbers = _list(ids)
        odd = [i for i in numbers if not 0 <= i < self.vocab.size]
        if odd:
            raise CourseError(
                f"There is no token {odd[0]}; they are numbered from 0 to {self.vocab.size - 1}."
            )
        return self.backend.decode(numbers, skip_special_tokens=not special)

    def tokens(self, ids: Iterable[int] | Tensor) -> list[str]:
        """The tokens as the vocabulary spells them ("##ing", "Ġthe")."""
        return [self.backend.id_to_token(i) or "" for i in _list(ids)]

    def words(self, ids: Tensor) -> Tensor:
        """The index of the word that each token belongs to, from the tokens' spelling.

        For the WordPieces [CLS] the play ##ing cat [SEP] it is -1 0 1 1 2 -1.

        Args:
            ids: Int[B T] or Int[T].

        Returns:
            Int of the same shape; -1 at special tokens.
        """
        if self._kinds is None:
            # 0: continues a word. 1: starts a word, as [UNK] does. -1: a special token.
            kinds = [int(self._starts_word(t)) for t in self.tokens(range(self.vocab.size))]
            for i in set(self.vocab.special) - {self.vocab.unk}:
                kinds[i] = -1
            self._kinds = torch.tensor(kinds)
        kinds_here = self._kinds[ids]
        outside = kinds_here == -1
        # The first token of a text starts a word, however it is spelled.
        is_first = torch.cat([torch.ones_like(outside[..., :1]), outside[..., :-1]], dim=-1)
        starts = (kinds_here == 1) | (is_first & ~outside)
        return (starts.cumsum(-1) - 1).masked_fill(outside, -1)

    def save(self, path: str | Path, *, segments: bool = False) -> Path:
        """Write tokenizer.json; into a folder also tokenizer_config.json, for transformers.

        Args:
            path: a file whose name ends in .json, or a folder.
            segments: whether transformers' AutoTokenizer also returns segments (`token_type_ids`).

        Returns:
            The path of tokenizer.json.
        """
        path = Path(path)
        if path.suffix == ".json":
            with atomic_write(path) as handle:
                handle.write(self.backend.to_str())
            return path
        ids = {role: getattr(self.vocab, role) for role in ROLES}
        roles = {f"{role}_token": self.tokens([i])[0] for role, i in ids.items() if i is not None}
        inputs = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
        about: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": inputs,
        }
        if self.max_length is not None:
            about["model_max_length"] = self.max_length
        with atomic_folder(path) as new:
            (new / "tokenizer.json").write_text(self.backend.to_str(), encoding="utf-8")
            write_json(new / "tokenizer_config.json", about | roles)
        return path / "tokenizer.json"

    @staticmethod
    def from_json(text: str) -> "Tokenizer":
        """The tokenizer of a tokenizer.json, given as the text of that file."""
        return Tokenizer(tokenizers.Tokenizer.from_str(text))

    @staticmethod
    def load(path: str | Path) -> "Tokenizer":
        """Open a tokenizer.

        Args:
            path: a tokenizer.json, or a folder with one, or a folder with a public model's older
                files: vocab.txt (BERT's) or vocab.json (GPT-2's), if its config.json does not name
                another family.

        Raises:
            CourseError: there is no tokenizer, or it is damaged.
        """
        try:
            tokenizer = Tokenizer(*_open(Path(path)))
            # We encode a rare letter: the library raises an error if the vocabulary has no unknown
            # token.
            tokenizer.ids(["\N{VAI SYLLABLE EE}"])
            return tokenizer
        except CourseError:
            raise
        except Exception as error:  # the library raises bare Exception for a broken file
            raise CourseError(
                f"The tokenizer in {path} is damaged ({error}); fetch or train it again."
            ) from error

    def __len__(self) -> int:
        return self.vocab.size

    def __repr__(self) -> str:
        kind = "byte-level BPE" if self.byte_level else type(self.backend.model).__name__
        return f"Tokenizer({kind}, {self.vocab.size} tokens)"

    def _starts_word(self, token: str) -> bool:
        if self.marks_spaces:
            return token.startswith("▁")
        if not self.byte_level:
            return not token.startswith("##")
        return token[:1] in ("Ġ", "Ċ", "ĉ") or not token[:1].isalnum()

    def _run(
        self,
        texts: Sequence[Text],
        pairs: Sequence[Text] | None,
        special: bool,
        max_length: int | None,
        *,
        fast: bool,
    ) -> list[tokenizers.Encoding]:
        if isinstance(texts, str):
            raise CourseError(
                "Expected a list of texts, got one string; put it in a list, or call encode()."
            )
        are_words = bool(texts) and not isinstance(texts[0], str)
        rows: list[Any] = [self._input(text) for text in texts]
        if pairs is not None:
            seconds = [self._input(pair) for pair in pairs]
            rows = list(zip(rows, seconds, strict=True))
        run = self.backend.encode_batch_fast if fast else self.backend.encode_batch
        if max_length is not None:
            specials = self.backend.num_special_tokens_to_add(pairs is not None) if special else 0
            if max_length < specials:
                raise CourseError(
                    f"max_length {max_length} has no room for the {specials} special tokens."
                )
            self.backend.enable_truncation(max_length)
        try:
            return list(run(rows, is_pretokenized=are_words, add_special_tokens=special))
        except TypeError:
            # None, a number, or half a character: a terminal's bytes that are no UTF-8 become such.
            raise CourseError(
                f"One of these texts is no text of whole characters: {f'{rows!a:.60}'}."
            ) from None
        finally:
            self.backend.no_truncation()

    def _input(self, text: Text) -> Text:
        """For byte-level BPE, put a blank before each word but the first, as in a running text."""
        if isinstance(text, str) or not self.byte_level:
            return text
        return [word if i == 0 else " " + word for i, word in enumerate(text)]


def train_wordpiece(texts: Iterable[str], size: int, lowercase: bool = True) -> Tokenizer:
    """Learn WordPiece from texts.

    Args:
        texts: to learn from.
        size: maximum size of the vocabulary; [PAD] [UNK] [CLS] [SEP] [MASK] are ids 0 to 4.
        lowercase: whether to lowercase every text before it is tokenized.

    Raises:
        CourseError: there is no text, or `size` has no room for the letters.
    """
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    texts = list(texts)
    counts: Counter[str] = Counter()  # character -> number of occurrences
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    characters = [character for character in counts if not character.isspace()]
    characters.sort(key=lambda character: (-counts[character], character))
    alphabet = sorted(characters[:ALPHABET])
    inner = [f"##{character}" for character in alphabet if _inside_words(character)]
    _require_room(size, len(WORDPIECE_SPECIALS) + len(alphabet) + len(inner), bool(alphabet))

    _, unknown, cls, sep, _ = WORDPIECE_SPECIALS
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token=unknown))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    # The library would number the "##x" entries in the order of a hash table, and these ids decide
    # between merges of equal frequency. As special tokens they get the same ids in every run.
    specials = [*WORDPIECE_SPECIALS, *inner]
    trainer = trainers.WordPieceTrainer(
        limit_alphabet=len(alphabet), **_learning(size, alphabet, specials)
    )
    learner.train_from_iterator(texts, trainer, len(texts))
    model = models.WordPiece(learner.get_vocab(), unk_token=unknown, max_input_chars_per_word=100)
    # We build the tokenizer again from the vocabulary, in which the "##x" are ordinary tokens.
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = learner.normalizer
    backend.pre_tokenizer = learner.pre_tokenizer
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, 2), (sep, 3)],
    )
    backend.add_special_tokens(list(WORDPIECE_SPECIALS))
    return Tokenizer(backend)


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn byte-level BPE from texts; any text, once encoded, comes back unchanged.

    Args:
        texts: to learn from.
        size: maximum size of the vocabulary; <|pad|> and <|endoftext|> are ids 0 and 1, and the 256
            bytes follow.

    Raises:
        CourseError: there is no text, or `size` has no room for the bytes.
    """
    texts = list(texts)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    _require_room(size, len(BPE_SPECIALS) + len(alphabet), any(texts))
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(**_learning(size, alphabet, BPE_SPECIALS))
    backend.train_from_iterator(texts, trainer, len(texts))
    backend.decoder = decoders.ByteLevel()
    return Tokenizer(backend)


def add_sentinels(tokenizer: Tokenizer, n: int = 100) -> Tokenizer:
    """A copy of a tokenizer with `n` sentinels at the end of its vocabulary; T5 has 100."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([SENTINEL.format(i) for i in range(n)])
    return Tokenizer(backend, tokenizer.roles, tokenizer.max_length)


def _inside_words(char: str) -> bool:
    """Whether a character can stand inside a word: no punctuation, no Chinese character."""
    ascii_symbol = char.isascii() and not char.isalnum()
    ideograph = 0x3400 <= ord(char) <= 0x9FFF
    return not (ascii_symbol or ideograph or unicodedata.category(char).startswith("P"))


def _require_room(size: int, min_size: int, has_text: bool) -> None:
    if not has_text:
        raise CourseError(
            "A tokenizer cannot be trained on empty text; check the corpus it was given."
        )
    if size < min_size:
        raise CourseError(
            f"A vocabulary of {size} holds not even specials and alphabet; ask for at least"
            f" {min_size}."
        )
    if size > MAX_VOCAB:  # the trainer allocates memory for the whole vocabulary when it starts
        raise CourseError(
            f"A vocabulary of {size:,} is more than can be learned; ask for at most {MAX_VOCAB:,}."
        )


def _vocab(backend: tokenizers.Tokenizer, roles: dict[str, str]) -> Vocab:
    """The special tokens by their roles: as `roles` names them, else by their usual names."""
    role_ids: dict[str, int | None] = {}
    for role, names in ROLES.items():
        candidates = (roles[role],) if role in roles else names
        ids = [backend.token_to_id(name) for name in candidates]
        role_ids[role] = next((i for i in ids if i is not None), None)
    if "sep" not in roles and role_ids["cls"] is None:
        role_ids["sep"] = None  # T5's "</s>" is an end token and no separator
    added = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    special = tuple(sorted(added | {i for i in role_ids.values() if i is not None}))
    tokens = backend.get_vocab()
    size = max(tokens.values(), default=-1) + 1
    ends = sorted(i for name, i in tokens.items() if name.lstrip("Ġ▁#") in SENTENCE_ENDS)
    return Vocab(
        size=size, special=special, ends=tuple(ends), sentinels=_sentinels(tokens), **role_ids
    )


def _sentinels(tokens: dict[str, int]) -> tuple[int, ...]:
    """The ids of <extra_id_0>, <extra_id_1>, ..., as far as they go."""
    ids: list[int] = []
    while SENTINEL.format(len(ids)) in tokens:
        ids.append(tokens[SENTINEL.format(len(ids))])
    return tuple(ids)


def _encoding(raw: tokenizers.Encoding) -> Encoding:
    """Our form of the library's result, which numbers the words of a second text from 0 again."""
    words: list[int | None] = list(raw.word_ids)
    if raw.n_sequences > 1:
        texts = list(zip(words, raw.sequence_ids, strict=True))  # (word, which text it is in)
        in_first = [word for word, text in texts if text == 0 and word is not None]
        count = max(in_first, default=-1) + 1
        words = []
        for word, text in texts:
            words.append(word + count if word is not None and text == 1 else word)
    is_cut = bool(raw.overflowing)
    return Encoding(raw.ids, raw.type_ids, words, raw.offsets, raw.tokens, is_cut)


def _learning(size: int, alphabet: list[str], specials: Iterable[str]) -> dict[str, Any]:
    """The trainer's options that WordPiece and BPE share."""
    return {
        "vocab_size": size,
        "min_frequency": 2,
        "show_progress": False,
        "initial_alphabet": alphabet,
        "special_tokens": list(specials),
    }


def _list(ids: Iterable[int] | Tensor) -> list[int]:
    try:
        numbers = ids.tolist() if isinstance(ids, Tensor) else ids
        return [int(number) for number in numbers]
    except (TypeError, ValueError):
        raise CourseError(
            f"Token numbers are a list of whole numbers, not {f'{ids!r:.60}'}."
        ) from None


def _open(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, str], int | None]:
    """Read a tokenizer's files: the library's tokenizer, role -> special token, maximum length."""
    folder = path if path.is_dir() else path.parent
    finish_save(folder)
    settings = tokenizer_settings.read(folder)
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file() and file.suffix == ".json":
        backend = tokenizers.Tokenizer.from_file(str(file))
        if file.name == "tokenizer.json" and tokenizer_settings.disputed(settings, backend):
            backend = _opened_by_transformers(folder, "AutoTokenizer", settings.values)
        return backend, settings.roles, settings.max_length
    if (path / "vocab.txt").is_file() or (path / "vocab.json").is_file():
        kind = "BertTokenizerFast" if (path / "vocab.txt").is_file() else "GPT2TokenizerFast"
        if (path / "config.json").is_file():
            kind = "AutoTokenizer"
        backend = _opened_by_transformers(path, kind, settings.values)
        return backend, settings.roles, settings.max_length
    raise CourseError(
        f"{path} holds no tokenizer (tokenizer.json, vocab.txt, or vocab.json with merges.txt)."
    )


def _opened_by_transformers(
    folder: Path, kind: str, settings: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """Let transformers open a folder, because it knows the rules of each family of models.

    Args:
        folder: with the tokenizer's files.
        kind: name of the class of transformers that opens it.
        settings: the fields of tokenizer_config.json.
    """
    import transformers

    opened: Any = getattr(transformers, kind).from_pretrained(folder)
    backend: tokenizers.Tokenizer = opened.backend_tokenizer
    cleans_up = settings.get("clean_up_tokenization_spaces")
    if cleans_up and isinstance(backend.model, models.Unigram):
        steps = [decoders.Replace(before, after) for before, after in CLEANED_UP.items()]
        backend.decoder = decoders.Sequence([backend.decoder, decoders.Fuse(), *steps])
    return backend
