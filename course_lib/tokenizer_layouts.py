"""Tokenizers of the `tokenizers` library from the files of public checkpoints: tokenizer.json, or the older layouts.

What the older ones leave unsaid (normalising, splitting, the special tokens' places) is the model family's convention:
BERT's for vocab.txt; for vocab.json with merges.txt GPT-1's, GPT-2's, RoBERTa's or DeBERTa's, as the vocabulary shows.
"""

from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from course_lib.errors import CourseError
from course_lib.files import read_json

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


def wordpiece(
    vocab: dict[str, int],
    *,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    chinese: bool = True,
    roles: dict[str, str] | None = None,
) -> tokenizers.Tokenizer:
    """BERT's tokenizer over a WordPiece vocabulary; `roles` names special tokens that are not BERT's own."""
    named = {r: ROLES[r][0] for r in ("pad", "unk", "cls", "sep", "mask")} | (roles or {})
    backend = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=named["unk"], max_input_chars_per_word=100))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=chinese, strip_accents=strip_accents, lowercase=lowercase
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    cls, sep = named["cls"], named["sep"]
    if cls in vocab and sep in vocab:
        backend.post_processor = _bert_frame(vocab, cls, sep)
    backend.add_special_tokens([s for s in named.values() if s in vocab])
    return backend


def _bert_frame(vocab: dict[str, int], cls: str, sep: str) -> processors.TemplateProcessing:
    return processors.TemplateProcessing(
        single=f"{cls}:0 $A:0 {sep}:0",
        pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
        special_tokens=[(cls, vocab[cls]), (sep, vocab[sep])],
    )


def _bpe(vocab: dict[str, int], merges: list[tuple[str, str]], config: dict[str, Any]) -> tokenizers.Tokenizer:
    if any(token.endswith("</w>") for token in vocab):  # GPT-1: BPE over lower-cased words, not over bytes
        unknown = "<unk>"
        model = models.BPE(vocab, merges, unk_token=unknown, end_of_word_suffix="</w>", fuse_unk=False)
        backend = tokenizers.Tokenizer(model)
        backend.normalizer = normalizers.BertNormalizer(lowercase=True)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        backend.decoder = decoders.BPEDecoder(suffix="</w>")
    else:
        prefix = bool(config.get("add_prefix_space", False))
        backend = tokenizers.Tokenizer(models.BPE(vocab, merges))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
        backend.decoder = decoders.ByteLevel()
        if "<mask>" in vocab:  # RoBERTa and BART frame every input; GPT-2 does not
            ends = ("</s>", vocab["</s>"]), ("<s>", vocab["<s>"])
            backend.post_processor = processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=prefix)
        if "[MASK]" in vocab:  # DeBERTa frames as BERT does
            backend.post_processor = _bert_frame(vocab, "[CLS]", "[SEP]")
    known = [name for names in ROLES.values() for name in names if name in vocab]
    backend.add_special_tokens(list(dict.fromkeys(known)))
    return backend


def open_backend(path: Path) -> tuple[tokenizers.Tokenizer, dict[str, str]]:
    """Build the library's tokenizer from whichever of the three layouts is there.

    Returns: the tokenizer, and the special tokens that its configuration names, by role.
    """
    folder = path if path.is_dir() else path.parent
    config = read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    roles = {r: s for r in ROLES if (s := _name(config.get(f"{r}_token")))}
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.is_file() and file.suffix == ".json":
        return tokenizers.Tokenizer.from_file(str(file)), roles
    if (folder / "vocab.txt").is_file():
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
        vocab = {token: i for i, token in enumerate(lines[:-1] if lines[-1] == "" else lines)}
        backend = wordpiece(
            vocab,
            lowercase=config.get("do_lower_case", True),
            strip_accents=config.get("strip_accents"),
            chinese=config.get("tokenize_chinese_chars", True),
            roles=roles,
        )
        return backend, roles
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        vocab = read_json(folder / "vocab.json")
        lines = (folder / "merges.txt").read_text(encoding="utf-8").split("\n")
        pairs = [line.split(" ") for line in lines if line and not line.startswith("#version")]
        return _bpe(vocab, [(a, b) for a, b in pairs], config), roles
    raise CourseError(f"{path} holds no tokenizer (tokenizer.json, vocab.txt, or vocab.json with merges.txt).")


def _name(token: Any) -> str | None:
    """A special token's text; older checkpoints wrap it in a dictionary."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
