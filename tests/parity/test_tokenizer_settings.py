"""What stands beside tokenizer.json is obeyed as by transformers, harmless, or refused."""

import json

import pytest
import transformers

from course_lib.data.tokenizer_settings import TOKENS
from course_lib.data.tokenizers import Tokenizer
from course_lib.errors import CourseError
from tests.parity.test_pretrained import FAMILIES

TEXTS = [
    "The judge went home, and Été!",
    "  the  fox [ent] went <user> home .",
    "x [MASK] <mask> </s> <|endoftext|> 東京 n't",
]
ADDED = {
    "content": "[ent]",
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "single_word": False,
    "special": True,
}


def folder_of(model_type, folder):
    """A tokenizer as transformers writes it, in the layout with tokenizer.json."""
    tokenizer = FAMILIES[model_type][2]()
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}))
    return tokenizer


def change(folder, file="tokenizer_config.json", **fields):
    path = folder / file
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(known | fields))


def others(name, value, size):
    """Values that a setting does not have."""
    if name == "added_tokens_decoder":
        return [{str(size): ADDED}]
    if name in ("additional_special_tokens", "extra_special_tokens"):
        return [["[ent]", "<user>"]]
    if name == "extra_ids":
        return [3]
    if name == "wordpieces_prefix":
        return ["@@"]
    if name == "added_tokens":
        return []
    return [True, False]


def same_tokens(ours, theirs):
    """The first text that is cut otherwise, if there is one."""
    for text in TEXTS:
        expected = theirs(text)["input_ids"]
        if ours.encode(text).ids != expected:
            return text, ours.encode(text).tokens, theirs.convert_ids_to_tokens(expected)
        decoded = theirs.decode(expected, skip_special_tokens=True)
        if ours.decode(expected) != decoded:
            return text, ours.decode(expected), decoded
    return None


@pytest.mark.parametrize("model_type", FAMILIES)
@pytest.mark.parametrize("name", TOKENS)
def test_a_setting_that_changes_their_tokens_changes_ours(name, model_type, tmp_path):
    size = len(folder_of(model_type, tmp_path))
    path = tmp_path / "tokenizer_config.json"
    fields = json.loads(path.read_text())
    for value in others(name, fields.get(name), size):
        path.write_text(json.dumps(fields | {name: value}))
        try:
            theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        except Exception:  # noqa: BLE001  transformers cannot read it either
            continue
        try:
            ours = Tokenizer.load(tmp_path)
        except CourseError:
            continue
        assert same_tokens(ours, theirs) is None, value


@pytest.mark.parametrize("model_type", ["bert", "gpt2", "t5", "albert"])
def test_a_setting_that_is_harmless_changes_none_of_their_tokens(model_type, tmp_path):
    folder_of(model_type, tmp_path)
    path = tmp_path / "tokenizer_config.json"
    fields = json.loads(path.read_text())
    values = {"model_input_names": ["input_ids"], "padding_side": "left", "errors": "ignore"}
    values |= {"chat_template": "{{ messages }}", "vocab_size": 3, "max_length": 2, "stride": 1}
    values |= {"pad_to_multiple_of": 8, "pad_token_type_id": 1, "never_split": ["judge"]}
    values |= {"name_or_path": "x", "verbose": False, "do_basic_tokenize": False}
    for name, value in values.items():
        path.write_text(json.dumps(fields | {name: value}))
        theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
        assert same_tokens(Tokenizer.load(tmp_path), theirs) is None, name


@pytest.mark.parametrize("role", ["pad", "cls", "sep", "mask", "bos", "eos"])
@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_role_is_the_token_that_the_files_name(file, role, tmp_path):
    """Also one that the vocabulary does not have yet."""
    for token in ("[unused1]", "<new>"):
        folder = tmp_path / token.strip("[]<>")
        folder_of("bert", folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        config.pop(f"{role}_token", None)
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        change(folder, file, **{f"{role}_token": token})
        theirs = transformers.AutoTokenizer.from_pretrained(folder)
        ours = Tokenizer.load(folder)
        assert getattr(ours.vocab, role) == getattr(theirs, f"{role}_token_id")
        assert same_tokens(ours, theirs) is None


def test_tokens_added_beside_the_vocabulary(tmp_path):
    """Older folders list them in a file of their own."""
    size = len(folder_of("bert", tmp_path))
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config.pop("added_tokens_decoder", None)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[ent]": size, "<user>": size + 1}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    assert "[ent]" in ours.encode(TEXTS[1]).tokens
    assert same_tokens(ours, theirs) is None


def test_a_folder_that_says_nothing_else_needs_no_transformers(tmp_path, monkeypatch):
    folder_of("bert", tmp_path)
    change(tmp_path, do_lower_case=True, strip_accents=None, tokenize_chinese_chars=True)

    def refuse(*_):
        raise AssertionError("transformers was asked")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", refuse)
    assert Tokenizer.load(tmp_path)
    change(tmp_path, do_lower_case=False)
    with pytest.raises(CourseError, match="transformers was asked"):
        Tokenizer.load(tmp_path)


def test_the_longest_text_is_kept(tmp_path):
    folder_of("bert", tmp_path)
    for said, meant in ((10**30, None), (7, 7)):
        change(tmp_path, model_max_length=said)
        assert Tokenizer.load(tmp_path).max_length == meant
    Tokenizer.load(tmp_path).save(tmp_path / "again")
    assert Tokenizer.load(tmp_path / "again").max_length == 7
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    assert theirs.model_max_length == 7


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"auto_map": {"AutoTokenizer": ["x.Y", None]}}, "auto_map is"),
        ({"truncation_side": "left"}, "truncation_side right, not left"),
        ({"word_splitter": "mecab"}, "word_splitter is 'mecab', and the course does not know"),
    ],
)
def test_a_setting_that_is_not_known_is_refused(fields, message, tmp_path):
    folder_of("bert", tmp_path)
    change(tmp_path, **fields)
    with pytest.raises(CourseError, match=message):
        Tokenizer.load(tmp_path)
