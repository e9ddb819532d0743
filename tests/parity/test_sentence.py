"""Sentence-BERT against sentence-transformers: vectors, folders both ways, losses and gradients."""

import json

import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses as theirs_losses
from sentence_transformers.sentence_transformer import modules

from course_lib.analysis.retrieval import Index
from course_lib.data.embedders import encode
from course_lib.data.text_batches import text_batch
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families import family
from course_lib.families import sentence as sbert
from course_lib.families.weight_tables import convert
from course_lib.objectives import losses
from course_lib.zoo import load_sentence
from tests.parity.public import close, randomise

TEXTS = [
    "the cat sat on the mat",
    "a dog",
    "the house of the old dog is on the hill and the cat sat in it all day long",
    "cat",
    "a cat sat on a hill",
    "the old house",
]
PAIRS = [*TEXTS[1:], TEXTS[0]]
OTHERS = [*TEXTS[2:], *TEXTS[:2]]
BERTS = [
    {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 24},
    {"hidden_size": 24, "num_attention_heads": 3, "num_hidden_layers": 1, "intermediate_size": 40},
]
TOPS = {
    "mean": ("mean", []),
    "cls": ("cls", ["normalize"]),
    "max": ("max", [("tanh", torch.nn.Tanh(), True)]),
    "lasttoken": (
        "lasttoken",
        [("relu", torch.nn.ReLU(), False), ("identity", torch.nn.Identity(), True)],
    ),
    "all": ("mean", [("gelu", torch.nn.GELU(), True), "normalize"]),
}


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_wordpiece([" ".join(TEXTS)] * 5, 90)


def bert_folder(folder, tokenizer, which=0, family="Bert"):
    """A random public BERT and its tokenizer."""
    sizes = {"vocab_size": len(tokenizer), "max_position_embeddings": 16} | BERTS[which]
    config = getattr(transformers, f"{family}Config")(**sizes)
    randomise(getattr(transformers, f"{family}Model")(config), which).save_pretrained(folder)
    tokenizer.save(folder)
    return folder


def public(tmp_path, tokenizer, name="mean", which=0, family="Bert"):
    """A random SentenceTransformer, saved to a folder: (model, folder)."""
    pool, top = TOPS[name]
    body = modules.Transformer(str(bert_folder(tmp_path / "bert", tokenizer, which, family=family)))
    width = BERTS[which]["hidden_size"]
    made = [body, modules.Pooling(width, pool)]
    for number, layer in enumerate(top):
        if layer == "normalize":
            made.append(modules.Normalize())
        else:
            made.append(
                randomise(
                    modules.Dense(width, 8 + number, bias=layer[2], activation_function=layer[1])
                )
            )
            width = 8 + number
    model = SentenceTransformer(modules=made, device="cpu").eval()
    model.save(str(tmp_path / "theirs"))
    return model, tmp_path / "theirs"


def vectors(model) -> torch.Tensor:
    return torch.from_numpy(model.encode(TEXTS, show_progress_bar=False))


@pytest.mark.parametrize(
    ("name", "which", "family"),
    [*((name, 0, "Bert") for name in TOPS), ("all", 1, "Bert"), ("mean", 0, "MegatronBert")],
)
def test_folders_give_equal_vectors(name, which, family, tokenizer, tmp_path):
    theirs, folder = public(tmp_path, tokenizer, name, which, family)
    ours = load_sentence(folder)
    expected = vectors(theirs)
    assert ours.max_length == 16 < len(tokenizer.encode(TEXTS[2]))  # one text is cut
    assert close(encode(ours, TEXTS, batch=2), expected)
    assert [type(layer).__name__ for layer in ours.model.top] == [
        type(m).__name__ for m in list(theirs)[2:]
    ]


def test_an_older_folder_and_its_settings(tokenizer, tmp_path):
    """The stack in 0_Transformer, pooling by flags, the length beside the stack, a default
    prompt.
    """
    bert_folder(tmp_path / "0_Transformer", tokenizer)
    (tmp_path / "1_Pooling").mkdir()
    flags = {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": False,
        "pooling_mode_max_tokens": True,
    }
    write = {
        "modules.json": [
            {
                "idx": 0,
                "name": "0",
                "path": "0_Transformer",
                "type": "sentence_transformers.models.Transformer",
            },
            {
                "idx": 1,
                "name": "1",
                "path": "1_Pooling",
                "type": "sentence_transformers.models.Pooling",
            },
        ],
        "0_Transformer/sentence_bert_config.json": {"max_seq_length": 6, "do_lower_case": False},
        "1_Pooling/config.json": flags | {"pooling_mode_mean_tokens": False},
        "config_sentence_transformers.json": {
            "prompts": {"q": "the old "},
            "default_prompt_name": "q",
        },
    }
    for path, value in write.items():
        (tmp_path / path).write_text(json.dumps(value))
    ours = load_sentence(tmp_path)
    assert (ours.max_length, ours.prompt, ours.model.pool) == (6, "the old ", "max")
    expected = vectors(SentenceTransformer(str(tmp_path), device="cpu"))
    assert close(encode(ours, TEXTS), expected)


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        ("1_Pooling", {"pooling_mode": ["mean", "max"]}, r"mean \+ max"),
        ("1_Pooling", {"pooling_mode": "weightedmean"}, "weightedmean"),
        ("1_Pooling", {"include_prompt": False}, "prompt"),
        ("2_Dense", {"use_residual": True}, "use_residual False, not True"),
        ("2_Dense", {"activation_function": "torch.nn.modules.activation.Softplus"}, "activation"),
        ("2_Dense", {"module_input_name": "token_embeddings"}, "module_input_name sentence_emb"),
        ("2_Dense", {"rank": 4}, "rank is 4, and the course does not know what"),
        ("1_Pooling", {"weights": [1, 2]}, "weights is"),
        ("3_Normalize", {"module_input_name": "token_embeddings"}, "module_input_name"),
    ],
)
def test_what_is_not_known_is_refused(path, change, message, tokenizer, tmp_path):
    _, folder = public(tmp_path, tokenizer, "all")
    file = folder / path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(CourseError, match=message):
        load_sentence(folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pooling.Pooling", "bow.BoW", "Transformer, BoW"),
        ("sentence_transformers.base.modules.transformer", "custom_st", "which is code"),
        ('"path": "1_Pooling"', '"path": "../1_Pooling"', "a place of its own"),
        ('"idx": 1', '"kwargs": ["task"], "idx": 1', "kwargs is"),
    ],
)
def test_a_foreign_module_is_refused(old, new, message, tokenizer, tmp_path):
    _, folder = public(tmp_path, tokenizer)
    listed = folder / "modules.json"
    assert old in listed.read_text()
    listed.write_text(listed.read_text().replace(old, new))
    with pytest.raises(CourseError, match=message):
        load_sentence(folder)


def test_lower_case_before_the_tokenizer(tokenizer, tmp_path):
    """Also where the tokenizer itself tells cases apart."""
    cased = train_wordpiece([" ".join(TEXTS), " ".join(TEXTS).upper()] * 5, 120, lowercase=False)
    _, folder = public(tmp_path, cased)
    settings = {"max_seq_length": 8, "do_lower_case": True}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    theirs = SentenceTransformer(str(folder), device="cpu").eval()
    shouted = [text.upper() for text in TEXTS]
    expected = torch.from_numpy(theirs.encode(shouted, show_progress_bar=False))
    assert close(encode(load_sentence(folder), shouted), expected)
    assert close(encode(load_sentence(folder), TEXTS), expected)


# A field of the folder's files, and another value.
FIELDS = {
    "sentence_bert_config.json": {
        "max_seq_length": 5,
        "do_lower_case": True,
        "transformer_task": "fill-mask",
        "module_output_name": "sentence_embedding",
        "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        "processing_kwargs": {"text": {"truncation": False}},
        "unpad_inputs": False,
        "query_length": 3,
        "document_length": 3,
        "query_expansion": {"token": "[MASK]"},
    },
    "1_Pooling/config.json": {
        "pooling_mode": "cls",
        "include_prompt": False,
        "embedding_dimension": 16,
    },
    "config_sentence_transformers.json": {
        "prompts": {"query": "a dog ", "document": ""},
        "default_prompt_name": "query",
        "similarity_fn_name": "dot",
        "__version__": {"sentence_transformers": "2.0.0"},
        "model_type": "SentenceTransformer",
    },
    "tokenizer_config.json": {"model_max_length": 6},
}


@pytest.mark.parametrize(
    ("file", "field"), [(file, name) for file in FIELDS for name in FIELDS[file]]
)
def test_a_field_that_changes_their_vectors_changes_ours_or_is_refused(
    file, field, tokenizer, tmp_path
):
    _, folder = public(tmp_path, tokenizer, "all")
    path = folder / file
    values = json.loads(path.read_text()) if path.exists() else {}
    if field == "default_prompt_name":
        values["prompts"] = {"query": "a dog ", "document": ""}
    path.write_text(json.dumps(values | {field: FIELDS[file][field]}))
    try:
        ours = load_sentence(folder)
    except CourseError:
        return
    theirs = SentenceTransformer(str(folder), device="cpu").eval()
    assert close(encode(ours, TEXTS), vectors(theirs))
    assert ours.similarity == theirs.similarity_fn_name


def test_a_search_compares_vectors_as_the_folder_says(tokenizer, tmp_path):
    theirs, folder = public(tmp_path, tokenizer, "max")  # its vectors have lengths of their own
    for name in ("cosine", "dot"):
        settings = {"similarity_fn_name": name}
        (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
        theirs.similarity_fn_name = name
        index = Index(TEXTS, embedder=load_sentence(folder))
        expected = theirs.similarity(vectors(theirs)[:1], vectors(theirs))[0]
        for hit in index.search(TEXTS[0], len(TEXTS), how="dense"):
            assert hit.score == pytest.approx(expected[hit.number].item(), abs=1e-5)
    (folder / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "manhattan"}')
    with pytest.raises(CourseError, match="compared by cosine, dot here, not by manhattan"):
        load_sentence(folder)


def features(model, columns):
    return [model.preprocess(texts) for texts in columns]


def compare(loss, expected, ours, theirs):
    """Equal values, and equal gradients of every weight of the stack and of the layers on top."""
    assert close(loss, expected)
    loss.backward()
    expected.backward()
    grads = {n: p.grad for n, p in theirs[0].model.named_parameters() if p.grad is not None}
    translated = convert(grads, family("bert").body_table(ours), ours)
    for name, weight in ours.stack.named_parameters():
        assert close(weight.grad, translated[name]), name
    dense = [m for m in theirs if isinstance(m, modules.Dense)]
    for layer, public_layer in zip(
        [m for m in ours.top if isinstance(m, sbert.Dense)], dense, strict=True
    ):
        assert close(layer.linear.weight.grad, public_layer.linear.weight.grad)
    assert any(weight.grad.abs().max() > 1e-3 for weight in ours.stack.parameters())


@pytest.fixture
def both(tokenizer, tmp_path):
    """The same model on both sides, gradients on, no dropout: (ours, theirs)."""
    theirs, folder = public(tmp_path, tokenizer, "max")
    return load_sentence(folder).model, theirs


def batch_of(tokenizer, *columns):
    return text_batch(tokenizer, list(zip(*columns, strict=True)), 16)


def test_softmax_loss(both, tokenizer):
    ours, theirs = both
    public_loss = theirs_losses.SoftmaxLoss(theirs, 8, 3)
    model = sbert.PairClassifier(ours, 3)
    model.out.load_state_dict(public_loss.classifier.state_dict())
    labels = torch.tensor([0, 1, 2, 2, 1, 0])
    loss = losses.classification(model, batch_of(tokenizer, TEXTS, PAIRS) | {"labels": labels})
    compare(loss, public_loss(features(theirs, [TEXTS, PAIRS]), labels), ours, theirs)
    assert close(model.out.weight.grad, public_loss.classifier.weight.grad)


def test_cosine_loss(both, tokenizer):
    ours, theirs = both
    labels = torch.tensor([0.0, 0.2, 1.0, 0.5, 0.9, 0.4])
    loss = sbert.cosine_regression(ours, batch_of(tokenizer, TEXTS, PAIRS) | {"labels": labels})
    expected = theirs_losses.CosineSimilarityLoss(theirs)(features(theirs, [TEXTS, PAIRS]), labels)
    compare(loss, expected, ours, theirs)


@pytest.mark.parametrize("margin", [1.0, 5.0])
def test_triplet_loss(margin, both, tokenizer):
    ours, theirs = both
    batch = batch_of(tokenizer, TEXTS, PAIRS, OTHERS)
    loss = sbert.triplet_loss(
        *ours(batch["ids"], attention_mask=batch["attention_mask"]).unbind(1), margin
    )
    public_loss = theirs_losses.TripletLoss(theirs, triplet_margin=margin)
    compare(loss, public_loss(features(theirs, [TEXTS, PAIRS, OTHERS]), None), ours, theirs)


@pytest.mark.parametrize(
    "columns", [(TEXTS, PAIRS), (TEXTS, PAIRS, OTHERS), (TEXTS, PAIRS, OTHERS, OTHERS[::-1])]
)
def test_ranking_loss(columns, both, tokenizer):
    ours, theirs = both
    public_loss = theirs_losses.MultipleNegativesRankingLoss(theirs)
    loss = sbert.ranking(ours, batch_of(tokenizer, *columns))
    compare(loss, public_loss(features(theirs, columns), None), ours, theirs)
