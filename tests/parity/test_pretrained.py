"""Checkpoints by name: model and tokenizer of every family, as transformers wrote them, from the
cache and offline.
"""

from pathlib import Path

import pytest
import torch
import transformers

from course_lib import zoo
from course_lib.errors import CourseError
from course_lib.families import MODEL_TYPES
from tests.parity.public import TRAINING, byte_level, close, randomise, wordpiece

OLD, NEW = "a" * 40, "b" * 40
TEXTS = [("the judge went home", None), ("The quick dogs", "went over the fox, home.")]
SMALL = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 24,
}
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2}


def unigram(kind, *special):
    letters = sorted({c for text in TRAINING for c in text.lower() if c != " "})
    words = ["▁the", "▁judge", "▁went", "▁home", "▁fox", "▁dog", "▁"]
    scores = [(s, 0.0) for s in special] + [(w, -2.0) for w in words] + [(c, -5.0) for c in letters]
    return getattr(transformers, kind)(vocab=scores)


def gpt1():
    letters = sorted({c for text in TRAINING for c in text.lower() if c != " "})
    merges = [("t", "h"), ("th", "e</w>"), ("o", "x</w>"), ("f", "ox</w>")]
    tokens = ["<unk>", *letters, *(c + "</w>" for c in letters), *("".join(m) for m in merges)]
    return transformers.OpenAIGPTTokenizer(
        vocab={t: i for i, t in enumerate(tokens)}, merges=merges
    )


SIDES = {
    f"{side}_{part}": 2 for side in ("encoder", "decoder") for part in ("layers", "attention_heads")
}
FAMILIES = {
    "bert": ("BertForMaskedLM", SMALL, lambda: wordpiece("BertTokenizer")),
    "megatron-bert": ("MegatronBertForMaskedLM", SMALL, lambda: wordpiece("BertTokenizer")),
    "roberta": (
        "RobertaForMaskedLM",
        SMALL | {"type_vocab_size": 1},
        lambda: byte_level("RobertaTokenizer", "<s>", "<pad>", "</s>", "<unk>", "<mask>"),
    ),
    "albert": (
        "AlbertForMaskedLM",
        SMALL | {"embedding_size": 8},
        lambda: unigram("AlbertTokenizer", "<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
    ),
    "distilbert": (
        "DistilBertForMaskedLM",
        {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24},
        lambda: wordpiece("DistilBertTokenizer"),
    ),
    "electra": (
        "ElectraForPreTraining",
        SMALL | {"embedding_size": 8},
        lambda: wordpiece("ElectraTokenizer"),
    ),
    "deberta": (
        "DebertaForMaskedLM",
        SMALL
        | {"relative_attention": True, "position_biased_input": False, "pos_att_type": "c2p|p2c"},
        lambda: byte_level("DebertaTokenizer", "[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"),
    ),
    # its published vocabulary is byte-level; any tokenizer will do here
    "modernbert": (
        "ModernBertForMaskedLM",
        SMALL | {"global_attn_every_n_layers": 2, "local_attention": 4, "pad_token_id": 0},
        lambda: wordpiece("BertTokenizer"),
    ),
    "openai-gpt": ("OpenAIGPTLMHeadModel", GPT, gpt1),
    "gpt2": ("GPT2LMHeadModel", GPT, lambda: byte_level("GPT2Tokenizer", "<|endoftext|>")),
    **{
        name.lower(): (
            f"{name}ForConditionalGeneration",
            {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24} | SIDES,
            lambda: byte_level("BartTokenizer", "<s>", "<pad>", "</s>", "<unk>", "<mask>"),
        )
        for name in ("Bart", "Blenderbot")
    },
    "t5": (
        "T5ForConditionalGeneration",
        {
            "d_model": 16,
            "d_ff": 24,
            "d_kv": 8,
            "num_layers": 2,
            "num_heads": 2,
            "decoder_start_token_id": 0,
        },
        lambda: unigram(
            "T5Tokenizer", "<pad>", "</s>", "<unk>", *(f"<extra_id_{n}>" for n in range(100))
        ),
    ),
}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The hub library's cache, in a folder of the test's own; the tests run without a network."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def fetched(cache: Path, name: str, commit: str = NEW, *refs: str) -> Path:
    """The folder of a commit as the library lays it out; `refs` stand for it."""
    place = cache / f"models--{name.replace('/', '--')}"
    (place / "refs").mkdir(parents=True, exist_ok=True)
    for ref in refs:
        (place / "refs" / ref).write_text(commit)
    return place / "snapshots" / commit


def public(family: str, folder: Path, seed: int = 0):
    """What transformers writes into a repository: a random model with its tokenizer."""
    architecture, sizes, make = FAMILIES[family]
    tokenizer = make()
    config = transformers.AutoConfig.for_model(family, vocab_size=len(tokenizer), **sizes)
    model = randomise(getattr(transformers, architecture)(config), seed)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def on(model: torch.nn.Module, ids: torch.Tensor, decoder: bool) -> torch.Tensor:
    out = model(ids, decoder_input_ids=ids[:, :2]) if decoder else model(ids)
    return out.logits


@pytest.mark.parametrize("family", MODEL_TYPES)
def test_model_and_tokenizer_by_name(family, cache):
    name = f"{family}-base-uncased"
    theirs, tokenizer = public(family, fetched(cache, name, NEW, "main"))
    ours, words, card = zoo.open_model(name)
    assert card["name"] == name and not ours.training
    for text, pair in TEXTS:
        expected, got = tokenizer(text, pair, return_token_type_ids=True), words.encode(text, pair)
        assert got.ids == expected["input_ids"] and len(got.ids) > 3
        assert (
            family in ("roberta", "bart", "blenderbot")
            or got.segments == expected["token_type_ids"]
        )
        assert words.decode(got.ids) == tokenizer.decode(
            expected["input_ids"], skip_special_tokens=True
        )
    for role in ("pad", "cls", "sep", "mask"):
        assert getattr(words.vocab, role) == getattr(tokenizer, f"{role}_token_id"), role
    assert words.vocab.size <= theirs.config.vocab_size
    decoder = family in ("bart", "blenderbot", "t5")
    ids = torch.tensor([words.encode("the judge went home").ids])
    with torch.no_grad():
        actual = ours(ids, ids[:, :2]) if decoder else ours(ids)
        assert close(actual, on(theirs, ids, decoder))


def test_owner_revision_and_prefix(cache):
    first, _ = public("bert", fetched(cache, "toy/bert", OLD, "v1"), seed=1)
    second, _ = public("bert", fetched(cache, "toy/bert", NEW, "main"), seed=2)
    for name, theirs in {
        "toy/bert": second,
        "hub:toy/bert": second,
        "toy/bert@main": second,
        "toy/bert@v1": first,
        f"toy/bert@{OLD}": first,
    }.items():
        for model in (zoo.load_pretrained(name), zoo.open_model(name).model):
            expected = theirs.bert.embeddings.word_embeddings.weight
            assert torch.equal(model.stack.embed.tokens.weight, expected), name


def test_a_folder_comes_before_a_name(cache, tmp_path, monkeypatch):
    public("bert", fetched(cache, "toy/bert", NEW, "main"), seed=1)
    local, _ = public("bert", tmp_path / "work" / "toy" / "bert", seed=2)
    monkeypatch.chdir(tmp_path / "work")
    for source in ("toy/bert", Path("toy/bert"), "./toy/bert"):
        model = zoo.load_pretrained(source)
        assert torch.equal(
            model.stack.embed.tokens.weight, local.bert.embeddings.word_embeddings.weight
        )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("bert-base-unkased", r"The model 'bert-base-unkased' cannot be had: the hub"),
        ("toy/bert@v9", r"The model 'toy/bert' at revision 'v9' cannot be had"),
        ("no/such/folder", "no folder 'no/such/folder'; give the path"),
        ("./bert", "no folder './bert'; give the path"),
        (Path("bert-base-uncased"), "no folder 'bert-base-uncased'; give the path"),
        ("", "give the path"),
    ],
)
def test_what_is_not_to_be_had_is_one_sentence_or_two(
    source, message, cache, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    public("bert", fetched(cache, "toy/bert", NEW, "main"))
    with pytest.raises(CourseError, match=message) as error:
        zoo.load_pretrained(source)
    assert "\n" not in str(error.value)
    with pytest.raises(
        CourseError, match=r"no checkpoint 'bert-minni'; there are .*cannot be had: the hub"
    ):
        zoo.open_model("bert-minni")


def test_a_name_of_the_hub_needs_no_shipped_checkpoint(cache, tmp_path, monkeypatch):
    public("bert", fetched(cache, "toy/bert", NEW, "main"))
    monkeypatch.setattr(zoo.shipped, "FOLDER", tmp_path)
    monkeypatch.setattr(zoo.names, "__defaults__", (tmp_path,))
    assert zoo.open_model("toy/bert").card == {"name": "toy/bert"}
