"""Turn text into token ids and back.

A token is a word or a part of a word from a fixed vocabulary; its id is its number there.

    tokenizer = train_wordpiece(texts, size=3000)
    tokenizer.encode("unkind").tokens    ['[CLS]', 'un', '##kind', '[SEP]']
    tokenizer.encode("unkind").ids       [2, 417, 905, 3]

Two ways to learn a vocabulary are here: WordPiece (BERT; Wu et al. 2016), where "##" marks a token
that continues a word, and byte-level BPE (GPT-2; Sennrich et al. 2016, over bytes). Special tokens
such as [CLS] are not part of a text; `Vocab` holds the ids of those with a role.

The library `tokenizers` does the work. This file makes its training reproducible and opens the
files of public models.
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
BPE_SPECIALS = ("<|pad|>", "<|endoftext|>")  # ids 0 and 1
MAX_VOCAB = 2_000_000  # tokens in a trained vocabulary; the largest published ones have 256,000
# WordPiece keeps this many characters, the most frequent ones. Others become [UNK]: with every
# emoji in the vocabulary there would be less room for words.
ALPHABET = 1000
# Role of a special token -> its usual names. The first one that a vocabulary has is taken.
ROLES: dict[str, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<|endoftext|>", "<s>"),
    "eos": ("<|endoftext|>", "</s>"),
}

# Replacements after decoding a text of T5 or ALBERT, if its settings ask for them: "it 's late ."
# becomes "it's late.".
CLEANED_UP = {f" {mark}": mark for mark in (".", "?", "!", ",")}
CLEANED_UP |= {" ' ": "'"} | {f" {end}": end for end in ("n't", "'m", "'s", "'ve", "'re")}

SENTENCE_ENDS = (".", "?", "!")
SENTINEL = "<extra_id_{}>"  # T5's sentinels: special tokens that replace spans of a text


@dataclass(frozen=True)
class Encoding:
    """One encoded text or pair. Every list has one entry for each token.

    Attributes:
        ids: token ids.
        segments: 0 for tokens of the first text, 1 for those of the second.
        words: the number of the word that each token belongs to, from 0; None at special tokens.
            The words of a second text are counted after those of the first.
        offsets: the characters at which each token starts and stops in its own text.
        tokens: the tokens as the vocabulary spells them, such as "##ing".
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
        """Wrap a tokenizer of the library `tokenizers`.

        Args:
            backend: the library's tokenizer.
            roles: role -> special token, such as "pad" -> "<empty>"; needed for names that are not
                in `ROLES`.
            max_length: the maximum number of tokens in a text that the tokenizer's files give;
                None if they give none.
        """
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.roles = roles or {}
        self.max_length = max_length
        self.vocab = _vocab(backend, self.roles)
        self.byte_level = isinstance(backend.decoder, decoders.ByteLevel)
        # T5 and ALBERT (SentencePiece) write "▁" for the space before a word: "▁the".
        self.marks_spaces = any(len(t) > 1 and t.startswith("▁") for t in backend.get_vocab())
        self._word_starts: Tensor | None = None  # see `words`

    def encode(
        self,
        text: Text,
        pair: Text | None = None,
        special: bool = True,
        *,
        max_length: int | None = None,
    ) -> Encoding:
        """Encode one text, or a pair of texts.

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

    def pretokenize(self, text: str) -> list[str]:
        """The words that no token crosses: the text is normalized, then cut at spaces and marks.

        >>> train_wordpiece(["the cat"], 60).pretokenize("The cat, here")
        ['the', 'cat', ',', 'here']
        """
        if self.backend.normalizer is not None:
            text = self.backend.normalizer.normalize_str(text)
        if self.backend.pre_tokenizer is None:
            return [text]
        return [word for word, _ in self.backend.pre_tokenizer.pre_tokenize_str(text)]

    def cut(self, word: str) -> list[str]:
        """The tokens of one word as `pretokenize` gives it."""
        return [token.value for token in self.backend.model.tokenize(word)]

    def decode(self, ids: Iterable[int] | Tensor, special: bool = False) -> str:
        """The text of these ids, without special tokens unless `special` is true."""
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
        """The number of the word that each token belongs to, found out from its spelling.

        For the tokens [CLS] the play ##ing cat [SEP] the result is -1 0 1 1 2 -1.

        Args:
            ids: Int[B T] or Int[T].

        Returns:
            Int of the same shape; -1 at special tokens.
        """
        if self._word_starts is None:
            # For each token of the vocabulary: 1 if it starts a word ([UNK] does), 0 if it
            # continues one, -1 if it is a special token. This is computed once.
            flags = [int(self._starts_word(t)) for t in self.tokens(range(self.vocab.size))]
            for i in set(self.vocab.special) - {self.vocab.unk}:
                flags[i] = -1
            self._word_starts = torch.tensor(flags)
        flags_here = self._word_starts[ids]
        outside = flags_here == -1
        # The first token of a text starts a word, however it is spelled.
        is_first = torch.cat([torch.ones_like(outside[..., :1]), outside[..., :-1]], dim=-1)
        starts = (flags_here == 1) | (is_first & ~outside)
        return (starts.cumsum(-1) - 1).masked_fill(outside, -1)

    def save(self, path: str | Path, *, segments: bool = False) -> Path:
        """Write the file tokenizer.json; in a folder also tokenizer_config.json for transformers.

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
            # Try to encode a rare letter. If the vocabulary has no unknown token, this fails now
            # and not later.
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
            # None, a number, or half a character, which Python makes of bytes that are not UTF-8.
            raise CourseError(
                f"One of these texts is no text of whole characters: {f'{rows!a:.60}'}."
            ) from None
        finally:
            self.backend.no_truncation()

    def _input(self, text: Text) -> Text:
        """A list of words as the library needs it.

        In byte-level BPE a token includes the blank before a word, so each word but the first gets
        one: ["the", "cat"] becomes ["the", " cat"].
        """
        if isinstance(text, str) or not self.byte_level:
            return text
        return [word if i == 0 else " " + word for i, word in enumerate(text)]


def train_wordpiece(texts: Iterable[str], size: int, lowercase: bool = True) -> Tokenizer:
    """Learn WordPiece from texts.

    Args:
        texts: the texts to learn from.
        size: the largest size of the vocabulary; [PAD] [UNK] [CLS] [SEP] [MASK] are ids 0 to 4.
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
    # The trainer joins the most frequent pair of tokens again and again; of equally frequent pairs
    # it takes the one with the lower ids. By itself it would number the tokens "##a", "##b", ... in
    # a random order. Given as special tokens, they have the same ids in every run.
    specials = [*WORDPIECE_SPECIALS, *inner]
    trainer = trainers.WordPieceTrainer(
        limit_alphabet=len(alphabet), **_learning(size, alphabet, specials)
    )
    learner.train_from_iterator(texts, trainer, len(texts))
    model = models.WordPiece(learner.get_vocab(), unk_token=unknown, max_input_chars_per_word=100)
    # Build the tokenizer again from the vocabulary. In this one "##a" is an ordinary token.
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = learner.normalizer
    backend.pre_tokenizer = learner.pre_tokenizer
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, 2), (sep, 3)],  # their ids, by their order in WORDPIECE_SPECIALS
    )
    backend.add_special_tokens(list(WORDPIECE_SPECIALS))
    return Tokenizer(backend)


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn byte-level BPE from texts. Decoding gives every text back unchanged.

    Args:
        texts: the texts to learn from.
        size: the largest size of the vocabulary; <|pad|> and <|endoftext|> are ids 0 and 1, and the
            256 bytes follow.

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
    """A copy of a tokenizer with `n` sentinels, <extra_id_0> and so on, at the vocabulary's end.

    T5 has 100 of them. They replace spans of a text (objectives/denoising.py).
    """
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([SENTINEL.format(i) for i in range(n)])
    return Tokenizer(backend, tokenizer.roles, tokenizer.max_length)


def _inside_words(char: str) -> bool:
    """Whether a character may continue a word: not punctuation, not a Chinese character."""
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
    """The special tokens by role: those that `roles` names, else those with a usual name."""
    role_ids: dict[str, int | None] = {}
    for role, names in ROLES.items():
        candidates = (roles[role],) if role in roles else names
        ids = [backend.token_to_id(name) for name in candidates]
        role_ids[role] = next((i for i in ids if i is not None), None)
    if "sep" not in roles and role_ids["cls"] is None:
        role_ids["sep"] = None  # T5's "</s>" ends a text; it does not separate two
    added = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    special = tuple(sorted(added | {i for i in role_ids.values() if i is not None}))
    tokens = backend.get_vocab()
    size = max(tokens.values(), default=-1) + 1
    ends = sorted(i for name, i in tokens.items() if name.lstrip("Ġ▁#") in SENTENCE_ENDS)
    return Vocab(
        size=size, special=special, ends=tuple(ends), sentinels=_sentinels(tokens), **role_ids
    )


def _sentinels(tokens: dict[str, int]) -> tuple[int, ...]:
    """The ids of <extra_id_0>, <extra_id_1>, ... that the vocabulary has."""
    ids: list[int] = []
    while SENTINEL.format(len(ids)) in tokens:
        ids.append(tokens[SENTINEL.format(len(ids))])
    return tuple(ids)


def _encoding(raw: tokenizers.Encoding) -> Encoding:
    """Convert the library's result, which counts the words of a second text from 0 again."""
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
    """The options that the trainers of WordPiece and BPE share."""
    return {
        "vocab_size": size,
        "min_frequency": 2,  # a pair of tokens is joined if it occurs at least twice
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
    """Read a tokenizer's files. Returns the arguments of `Tokenizer`."""
    folder = path if path.is_dir() else path.parent
    finish_save(folder)
    settings = tokenizer_settings.read(folder)
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file() and file.suffix == ".json":
        backend = tokenizers.Tokenizer.from_file(str(file))
        if file.name == "tokenizer.json" and tokenizer_settings.disputed(settings, backend):
            backend = _opened_by_transformers(folder, "AutoTokenizer", settings.values)
    elif (path / "vocab.txt").is_file() or (path / "vocab.json").is_file():
        class_name = "BertTokenizerFast" if (path / "vocab.txt").is_file() else "GPT2TokenizerFast"
        if (path / "config.json").is_file():
            class_name = "AutoTokenizer"
        backend = _opened_by_transformers(path, class_name, settings.values)
    else:
        raise CourseError(
            f"{path} holds no tokenizer (tokenizer.json, vocab.txt, or vocab.json with merges.txt)."
        )
    return backend, settings.roles, settings.max_length


def _opened_by_transformers(
    folder: Path, class_name: str, settings: Mapping[str, Any]
) -> tokenizers.Tokenizer:
    """Open a folder by the library transformers, which knows the rules of each family of models.

    Args:
        folder: the folder with the tokenizer's files.
        class_name: the name of transformers' class for it.
        settings: the fields of tokenizer_config.json.
    """
    import transformers

    opened: Any = getattr(transformers, class_name).from_pretrained(folder)
    backend: tokenizers.Tokenizer = opened.backend_tokenizer
    cleans_up = settings.get("clean_up_tokenization_spaces")
    if cleans_up and isinstance(backend.model, models.Unigram):
        steps = [decoders.Replace(before, after) for before, after in CLEANED_UP.items()]
        backend.decoder = decoders.Sequence([backend.decoder, decoders.Fuse(), *steps])
    return backend
