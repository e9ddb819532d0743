"""Read the settings of a public tokenizer, which are in files beside its tokenizer.json.

    tokenizer_config.json    {"do_lower_case": true, "pad_token": "[PAD]", "model_max_length": 512}

No setting is ignored that could change a text's tokens. Some are obeyed here, such as the maximum
length; some are harmless (tokenizer_settings.toml); unknown ones are refused. A setting such as
`do_lower_case` should agree with tokenizer.json. If it does not (`disputed`), the library
transformers opens the folder, because it knows what each class of tokenizer does then.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.known_fields import Config, KnownFields

KNOWN = KnownFields(Path(__file__).with_suffix(".toml"))
NO_LIMIT = 1_000_000  # larger values mean "no limit"; transformers writes 1e30
# The fields with the maximum number of tokens in a text; the second is the older name.
LENGTHS = ("model_max_length", "max_len")
ROLES = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
# The fields that change the tokens of a text.
TOKENS = (
    *("do_lower_case", "do_lowercase", "lowercase", "strip_accents", "tokenize_chinese_chars"),
    *("clean_text", "do_clean_text", "wordpieces_prefix", "add_prefix_space", "trim_offsets"),
    *("added_tokens_decoder", "added_tokens", "additional_special_tokens", "extra_special_tokens"),
    *("add_bos_token", "add_eos_token", "split_special_tokens", "keep_accents", "remove_space"),
    *("legacy", "extra_ids", "clean_up_tokenization_spaces"),
)
FLAGS = ("lstrip", "rstrip", "single_word", "special")  # of an added token


@dataclass(frozen=True)
class Settings:
    """The settings of a folder.

    Attributes:
        values: the fields of tokenizer_config.json and special_tokens_map.json.
        added: token -> id, from added_tokens.json.
    """

    values: Config
    added: dict[str, int]

    @property
    def roles(self) -> dict[str, str]:
        """Role -> special token, such as "pad" -> "<pad>"."""
        named = {role: _content(self.values.get(f"{role}_token")) for role in ROLES}
        return {role: token for role, token in named.items() if token}

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens in a text; None sets no limit."""
        for name in LENGTHS:
            length = self.values.get(name)
            if length is not None:
                return int(length) if length <= NO_LIMIT else None
        return None


def read(folder: Path) -> Settings:
    """Read the settings of a folder.

    Raises:
        CourseError: a setting is not known, or the course does not support it.
    """
    config = _json(folder / "tokenizer_config.json")
    # transformers reads the older files only where the newer one does not list the tokens.
    is_new = "added_tokens_decoder" in config
    values = config if is_new else config | _json(folder / "special_tokens_map.json")
    added = {} if is_new else _json(folder / "added_tokens.json")
    settings = Settings(Config(values), added)
    for name in (*LENGTHS, *TOKENS, *(f"{role}_token" for role in ROLES)):
        settings.values.get(name)  # the fields that are obeyed count as read
    try:
        KNOWN.check(settings.values, "tokenizer", subject="the tokens")
    except CourseError as error:
        raise CourseError(f"{folder}/tokenizer_config.json: {error}") from None
    return settings


def disputed(settings: Settings, backend: tokenizers.Tokenizer) -> list[str]:
    """The names of the settings that tokenizer.json contradicts."""
    names = [
        name
        for name in TOKENS
        if name in settings.values and not _agrees(name, settings.values[name], backend)
    ]
    known = {token.content for token in backend.get_added_tokens_decoder().values()}
    names += [f"{role}_token" for role, token in settings.roles.items() if token not in known]
    numbers = {token: backend.token_to_id(token) for token in settings.added}
    if numbers != settings.added or not known.issuperset(settings.added):
        names.append("added_tokens.json")
    return names


def _agrees(name: str, value: Any, backend: tokenizers.Tokenizer) -> bool:
    """Whether tokenizer.json agrees with a field that changes the tokens."""
    normalizer = backend.normalizer
    splitter = backend.pre_tokenizer
    is_bert = isinstance(normalizer, normalizers.BertNormalizer)
    if value is None and not is_bert:
        return True  # the field sets nothing
    match name:
        case "do_lower_case":
            return is_bert and normalizer.lowercase == value
        case "strip_accents":
            return is_bert and normalizer.strip_accents == value
        case "tokenize_chinese_chars":
            return is_bert and normalizer.handle_chinese_chars == value
        case "clean_text":
            return is_bert and normalizer.clean_text == value
        case "add_prefix_space":
            is_byte_level = isinstance(splitter, pre_tokenizers.ByteLevel)
            return is_byte_level and splitter.add_prefix_space == value
        case "added_tokens_decoder":
            return all(_has_added(int(i), token, backend) for i, token in value.items())
        case "additional_special_tokens" | "extra_special_tokens":
            added = backend.get_added_tokens_decoder().values()
            special = {token.content for token in added if token.special}
            return isinstance(value, list) and special.issuperset(map(_content, value))
        case "clean_up_tokenization_spaces":
            # WordPiece's decoder does it by itself, and transformers leaves BPE as it is.
            return not value or isinstance(backend.model, models.WordPiece | models.BPE)
        case "split_special_tokens":
            return not value
    return False


def _has_added(number: int, token: dict[str, Any], backend: tokenizers.Tokenizer) -> bool:
    """Whether the backend has this added token under this number."""
    own = backend.get_added_tokens_decoder().get(number)
    if own is None or own.content != token["content"]:
        return False
    return all(getattr(own, flag) == token.get(flag, False) for flag in FLAGS)


def _content(token: Any) -> str | None:
    """The text of a token. Files store a token as a text or as {"content": text}."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _json(path: Path) -> dict[str, Any]:
    return dict(read_json(path)) if path.is_file() else {}
