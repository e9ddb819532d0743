"""Text to token numbers and back: WordPiece (Wu et al. 2016; BERT) and byte-level BPE (Sennrich et
al. 2016 over bytes; GPT-2). The `tokenizers` library does the work; this file adds reproducible
training, the roles of special tokens, and the older files of public checkpoints."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor

from course_lib.errors import CourseError
from course_lib.files import atomic_write, read_json, write_json
from course_lib.vocab import Vocab

Text = str | Sequence[str]  # plain text, or words that are already separated (tagging)

WORDPIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
BPE_SPECIALS = ("<|pad|>", "<|endoftext|>")  # ids 0 and 1
# rarer characters become [UNK]: an alphabet of every emoji would crowd out the words
ALPHABET = 1000
# The names under which public vocabularies keep each role, the first present one counts.
ROLES: dict[str, tuple[str, ...]] = {
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
    "bos": ("<|endoftext|>", "<s>"),
    "eos": ("<|endoftext|>", "</s>"),
}

SENTENCE_ENDS = (".", "?", "!")
SENTINEL = "<extra_id_{}>"  # what stands for a span that T5 is asked for, in public vocabularies


@dataclass(frozen=True)
class Encoding:
    """One encoded text or pair; every list has one entry a token. words: counted on through a pair,
    None at special tokens. offsets: first and past-the-last character of each token in its own
    text."""

    ids: list[int]
    segments: list[int]
    words: list[int | None]
    offsets: list[tuple[int, int]]
    tokens: list[str]

    def __len__(self) -> int:
        return len(self.ids)


class Tokenizer:
    """A trained tokenizer: `encode`, `decode`, and `vocab` with its special tokens.

    >>> tokenizer = train_wordpiece(["the cat sat on the mat"] * 3, 60)
    >>> tokenizer.encode("the cat").tokens
    ['[CLS]', 'the', 'cat', '[SEP]']
    """

    def __init__(self, backend: tokenizers.Tokenizer, roles: dict[str, str] | None = None) -> None:
        backend.no_padding()
        backend.no_truncation()
        self.backend = backend
        self.vocab = _vocab(backend, roles or {})
        self.byte_level = isinstance(backend.decoder, decoders.ByteLevel)
        self._kinds: Tensor | None = None

    def encode(
        self,
        text: Text,
        pair: Text | None = None,
        special: bool = True,
        *,
        max_length: int | None = None,
    ) -> Encoding:
        """Encode one text, or two for one input. special: with this vocabulary's special tokens
        ([CLS] and [SEP] for BERT, none for GPT). max_length: cut to so many tokens, specials
        included, from the end of the longer text."""
        return self.encode_batch(
            [text], None if pair is None else [pair], special, max_length=max_length
        )[0]

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
        """Only the ids: the quick way through a corpus."""
        return [raw.ids for raw in self._run(texts, None, special, max_length, fast=True)]

    def decode(self, ids: Iterable[int] | Tensor, special: bool = False) -> str:
        """Text of these ids; special tokens are left out unless `special`."""
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
        """Number the words of each row of Int[B T] (or [T]), read off the tokens' spelling; -1 at
        special tokens.
        """
        if self._kinds is None:
            # 0: inside a word, 1: starts one (an unknown word too), -1: no word at all.
            kinds = [int(self._starts_word(t)) for t in self.tokens(range(self.vocab.size))]
            for i in set(self.vocab.special) - {self.vocab.unk}:
                kinds[i] = -1
            self._kinds = torch.tensor(kinds)
        kinds_here = self._kinds[ids]
        outside = kinds_here == -1
        # first of a text
        opens = torch.cat([torch.ones_like(outside[..., :1]), outside[..., :-1]], dim=-1)
        starts = (kinds_here == 1) | (opens & ~outside)
        return (starts.cumsum(-1) - 1).masked_fill(outside, -1)

    def save(self, path: str | Path, *, segments: bool = False) -> Path:
        """Write tokenizer.json, the file or into a folder; a folder also gets a
        tokenizer_config.json naming the roles, so that transformers' AutoTokenizer opens it.
        segments: whether it then gives them."""
        path = Path(path)
        file = path if path.suffix == ".json" else path / "tokenizer.json"
        with atomic_write(file) as handle:
            handle.write(self.backend.to_str())
        if path.suffix != ".json":
            ids = {role: getattr(self.vocab, role) for role in ROLES}
            roles = {
                f"{role}_token": self.tokens([i])[0] for role, i in ids.items() if i is not None
            }
            inputs = ["input_ids", *(["token_type_ids"] if segments else []), "attention_mask"]
            about = {"tokenizer_class": "PreTrainedTokenizerFast", "model_input_names": inputs}
            write_json(path / "tokenizer_config.json", about | roles)
        return file

    @staticmethod
    def load(path: str | Path) -> "Tokenizer":
        """Open a tokenizer.json, or a folder with one or with a public model's older files,
        vocab.txt or vocab.json (BERT's and GPT-2's, if no config.json says otherwise)."""
        try:
            made = Tokenizer(*_open(Path(path)))
            # a rare letter: the library says so if there is no token for the unknown
            made.ids(["\N{VAI SYLLABLE EE}"])
            return made
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
        split = bool(texts) and not isinstance(texts[0], str)
        rows: list[Any] = [self._input(t) for t in texts]
        if pairs is not None:
            rows = list(zip(rows, (self._input(p) for p in pairs), strict=True))
        run = self.backend.encode_batch_fast if fast else self.backend.encode_batch
        if max_length is not None:
            least = self.backend.num_special_tokens_to_add(pairs is not None) if special else 0
            if max_length < least:
                raise CourseError(
                    f"max_length {max_length} has no room for the {least} special tokens."
                )
            self.backend.enable_truncation(max_length)
        try:
            return list(run(rows, is_pretokenized=split, add_special_tokens=special))
        finally:
            self.backend.no_truncation()

    def _input(self, text: Text) -> Text:
        if isinstance(text, str) or not self.byte_level:
            return text
        return [word if i == 0 else " " + word for i, word in enumerate(text)]


def train_wordpiece(texts: Iterable[str], size: int, lowercase: bool = True) -> Tokenizer:
    """Learn WordPiece with at most `size` entries; [PAD] [UNK] [CLS] [SEP] [MASK] are ids 0 to 4.
    The library numbers "##x" pieces, which decide ties between merges, in the order of a hash
    table; so the alphabet is numbered first."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    texts = list(texts)
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(normalizer.normalize_str(text))
    kept = sorted((c for c in counts if not c.isspace()), key=lambda c: (-counts[c], c))[:ALPHABET]
    alphabet = sorted(kept)
    inner = [f"##{c}" for c in alphabet if _inside_words(c)]
    _require_room(size, len(WORDPIECE_SPECIALS) + len(alphabet) + len(inner), bool(alphabet))

    unknown, cls, sep = (WORDPIECE_SPECIALS[i] for i in (1, 2, 3))
    learner = tokenizers.Tokenizer(models.WordPiece(unk_token=unknown))
    learner.normalizer = normalizer
    learner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = [*WORDPIECE_SPECIALS, *inner]
    trainer = trainers.WordPieceTrainer(
        limit_alphabet=len(alphabet), **_learning(size, alphabet, specials)
    )
    learner.train_from_iterator(texts, trainer, len(texts))
    model = models.WordPiece(learner.get_vocab(), unk_token=unknown, max_input_chars_per_word=100)
    backend = tokenizers.Tokenizer(model)
    backend.normalizer, backend.pre_tokenizer = learner.normalizer, learner.pre_tokenizer
    backend.decoder = decoders.WordPiece(prefix="##")
    backend.post_processor = processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, 2), (sep, 3)],
    )
    backend.add_special_tokens(list(WORDPIECE_SPECIALS))
    return Tokenizer(backend)


def train_bpe(texts: Iterable[str], size: int) -> Tokenizer:
    """Learn byte-level BPE with at most `size` entries; <|pad|> and <|endoftext|> are ids 0 and 1,
    the 256 bytes the alphabet; any text comes back unchanged."""
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
    """A copy of a tokenizer with `n` sentinels behind its vocabulary, all special; T5 has 100."""
    backend = tokenizers.Tokenizer.from_str(tokenizer.backend.to_str())
    backend.add_special_tokens([SENTINEL.format(i) for i in range(n)])
    return Tokenizer(backend)


def _inside_words(char: str) -> bool:
    """Whether the pre-tokenizer can leave `char` inside a word: not punctuation, not a CJK
    ideograph.
    """
    ascii_symbol = char.isascii() and not char.isalnum()
    ideograph = 0x3400 <= ord(char) <= 0x9FFF
    return not (ascii_symbol or ideograph or unicodedata.category(char).startswith("P"))


def _require_room(size: int, least: int, texts: bool) -> None:
    if not texts:
        raise CourseError(
            "A tokenizer cannot be trained on empty text; check the corpus it was given."
        )
    if size < least:
        raise CourseError(
            f"A vocabulary of {size} holds not even specials and alphabet; ask for at least"
            f" {least}."
        )


def _vocab(backend: tokenizers.Tokenizer, roles: dict[str, str]) -> Vocab:
    found: dict[str, int | None] = {}
    for role, names in ROLES.items():
        candidates = (roles[role],) if role in roles else names
        ids = [backend.token_to_id(name) for name in candidates]
        found[role] = next((i for i in ids if i is not None), None)
    if "sep" not in roles and found["cls"] is None:
        found["sep"] = None  # T5 has "</s>" as its end only
    added = {i for i, token in backend.get_added_tokens_decoder().items() if token.special}
    special = tuple(sorted(added | {i for i in found.values() if i is not None}))
    tokens = backend.get_vocab()
    size = max(tokens.values(), default=-1) + 1
    ends = sorted(i for name, i in tokens.items() if name.lstrip("Ġ▁#") in SENTENCE_ENDS)
    return Vocab(
        size=size, special=special, ends=tuple(ends), sentinels=_sentinels(tokens), **found
    )


def _sentinels(tokens: dict[str, int]) -> tuple[int, ...]:
    """<extra_id_0>, <extra_id_1>, ..., as far as they go."""
    found: list[int] = []
    while SENTINEL.format(len(found)) in tokens:
        found.append(tokens[SENTINEL.format(len(found))])
    return tuple(found)


def _encoding(raw: tokenizers.Encoding) -> Encoding:
    words: list[int | None] = list(raw.word_ids)
    if raw.n_sequences > 1:
        parts = raw.sequence_ids
        first = 1 + max(
            (w for w, s in zip(words, parts, strict=True) if s == 0 and w is not None), default=-1
        )
        words = [w if w is None or s != 1 else w + first for w, s in zip(words, parts, strict=True)]
    return Encoding(raw.ids, raw.type_ids, words, raw.offsets, raw.tokens)


def _learning(size: int, alphabet: list[str], specials: Iterable[str]) -> dict[str, Any]:
    """What both kinds of pieces are learned with."""
    learn = {"vocab_size": size, "min_frequency": 2, "show_progress": False}
    return learn | {"initial_alphabet": alphabet, "special_tokens": list(specials)}


def _list(ids: Iterable[int] | Tensor) -> list[int]:
    try:
        return [int(i) for i in (ids.tolist() if isinstance(ids, Tensor) else ids)]
    except (TypeError, ValueError):
        raise CourseError(
            f"Token numbers are a list of whole numbers, not {f'{ids!r:.60}'}."
        ) from None


def _open(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, str]]:
    """The library's tokenizer, and the special tokens that its configuration names, by role."""
    folder = path if path.is_dir() else path.parent
    config = (
        read_json(folder / "tokenizer_config.json")
        if (folder / "tokenizer_config.json").is_file()
        else {}
    )
    named = {role: config.get(f"{role}_token") for role in ROLES}
    texts = {
        role: token.get("content") if isinstance(token, dict) else token
        for role, token in named.items()
    }
    roles = {role: text for role, text in texts.items() if isinstance(text, str)}
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file() and file.suffix == ".json":
        return tokenizers.Tokenizer.from_file(str(file)), roles
    if (path / "vocab.txt").is_file() or (path / "vocab.json").is_file():
        import transformers  # it knows how each family splits and frames

        kind = "BertTokenizerFast" if (path / "vocab.txt").is_file() else "GPT2TokenizerFast"
        if (path / "config.json").is_file():
            kind = "AutoTokenizer"
        return getattr(transformers, kind).from_pretrained(path).backend_tokenizer, roles
    raise CourseError(
        f"{path} holds no tokenizer (tokenizer.json, vocab.txt, or vocab.json with merges.txt)."
    )
