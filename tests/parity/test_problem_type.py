"""Classifiers whose labels may hold together, and scores, against transformers."""

import json

import pytest
import torch
import transformers

from course_lib import zoo
from course_lib.__main__ import main
from course_lib.data import task
from course_lib.data.inputs import Frame
from course_lib.data.tokenizers import Tokenizer, train_wordpiece
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.objectives import losses
from course_lib.training.finetune import FinetuneConfig, finetune, load, predict
from tests.parity.public import close, randomise

NAMES = ["toxic", "insult", "threat", "spam"]
TEXTS = ["the soup was cold", "a fine day", "good and bad", "the film was boring and cold"]
TOKENIZER = train_wordpiece([" ".join(TEXTS)] * 5, 80)
MULTI = "multi_label_classification"


def public(folder, kind="Bert", classes=4, problem=MULTI):
    """A random public classifier with a tokenizer."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    more = {"dim": 16, "n_heads": 2, "n_layers": 2, "hidden_dim": 24, "embedding_size": 16}
    known = getattr(transformers, f"{kind}Config")().to_dict()
    values = {name: size for name, size in (sizes | more).items() if name in known}
    config = getattr(transformers, f"{kind}Config")(
        **values,
        vocab_size=len(TOKENIZER),
        num_labels=classes,
        problem_type=problem,
        id2label=dict(enumerate(NAMES[:classes])),
        label2id={name: number for number, name in enumerate(NAMES[:classes])},
        pad_token_id=TOKENIZER.vocab.pad,
    )
    model = getattr(transformers, f"{kind}ForSequenceClassification")(config)
    randomise(model, scale=0.8).save_pretrained(folder)
    TOKENIZER.save(folder, segments=kind == "Bert")
    return model.eval()


def probabilities(model, text):
    """What transformers' pipeline does for this problem_type."""
    code = TOKENIZER.encode(text)
    with torch.no_grad():
        return model(torch.tensor([code.ids])).logits.sigmoid()[0].tolist()


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Albert", "Electra"])
def test_all_labels_above_a_half_are_predicted(kind, tmp_path, capsys, monkeypatch):
    theirs = public(tmp_path, kind)
    expected = [
        [number for number, p in enumerate(probabilities(theirs, text)) if p > 0.5]
        for text in TEXTS
    ]
    assert any(len(labels) != 1 for labels in expected)
    assert predict(tmp_path, [{"text": text} for text in TEXTS]) == expected
    for text, labels in zip(TEXTS, expected, strict=True):
        monkeypatch.setattr("sys.argv", ["course_lib", "predict", str(tmp_path), text])
        with pytest.raises(SystemExit):
            main()
        words = ", ".join(NAMES[label] for label in labels) or "(no label)"
        assert capsys.readouterr().out == f"{words}\t{text}\n"


def test_the_loss_is_theirs(tmp_path):
    theirs = public(tmp_path)
    tuned = load(tmp_path)
    labels = [[0, 3], [], [1], [0, 1, 2, 3]]
    rows = [{"text": text, "label": list(own)} for text, own in zip(TEXTS, labels, strict=True)]
    batch = tuned.frame.collate(tuned.frame.rows(rows))
    assert batch["labels"].tolist()[0] == [1.0, 0.0, 0.0, 1.0]
    expected = theirs(
        batch["ids"], attention_mask=batch["attention_mask"].long(), labels=batch["labels"]
    )
    assert close(losses.classification(tuned.model, batch), expected.loss)


def rows_of_two_words():
    """Which of two words stand in a text, each by itself."""
    fillers = ["the", "soup", "was", "fine", "day", "film", "boring", "bad"]
    rows = []
    for number in range(64):
        words = fillers[number % 5 :][:3]
        label = []
        if number % 2:
            words.append("cold")
            label.append("first")
        if number % 4 > 1:
            words.insert(0, "good")
            label.append("second")
        rows.append({"text": " ".join(words), "label": label})
    return rows


def body(folder):
    config = transformers.BertConfig(
        vocab_size=len(TOKENIZER),
        hidden_size=32,
        num_attention_heads=4,
        num_hidden_layers=1,
        intermediate_size=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
    )
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return zoo.load_pretrained(folder)


def test_a_file_with_lists_of_labels_is_tuned_saved_and_read_again(tmp_path):
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows_of_two_words()))
    data = {"train": task(file), "test": task(file)}
    assert data["train"].features["label"].feature.names == ["first", "second"]
    config = FinetuneConfig(epochs=16, batch=8, lr=2e-3, out=tmp_path / "out")
    result = finetune(body(tmp_path / "body"), data, TOKENIZER, config)
    assert result.metric == "micro_f1"
    assert result.score > 0.9
    assert result.truth[:4] == [[], [0], [1], [0, 1]]
    assert result.per_class["first"]["count"] == 32
    assert 0 < result.by("accuracy") <= result.score  # rows whose labels are all right
    assert read_json(tmp_path / "out" / "config.json")["problem_type"] == MULTI

    again = load(tmp_path / "out")
    assert again.names == ["first", "second"]
    assert predict(again, data["test"]) == result.predictions
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    probability = probabilities(theirs, data["test"][3]["text"])
    assert [n for n, p in enumerate(probability) if p > 0.5] == result.predictions[3]


def test_one_label_that_may_hold_or_not(tmp_path):
    """With one label, theirs is a probability and no score."""
    theirs = public(tmp_path, classes=1)
    expected = [[0] if probabilities(theirs, text)[0] > 0.5 else [] for text in TEXTS]
    assert predict(tmp_path, [{"text": text} for text in TEXTS]) == expected


def test_a_score_stays_a_score(tmp_path):
    theirs = public(tmp_path, classes=1, problem="regression")
    with torch.no_grad():
        expected = theirs(torch.tensor([TOKENIZER.encode(TEXTS[0]).ids])).logits.item()
    (score,) = predict(tmp_path, [{"text": TEXTS[0]}])
    assert score == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("classes", "problem", "message"),
    [
        (3, "regression", "Several scores at once"),
        (1, "single_label_classification", "only one"),
    ],
)
def test_a_problem_that_the_course_has_not_is_refused(classes, problem, message, tmp_path):
    public(tmp_path, classes=classes)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"problem_type": problem}))
    with pytest.raises(CourseError, match=message):
        zoo.load_pretrained(tmp_path)


def test_lists_and_single_labels_are_not_mixed():
    config = zoo.load("bert-mini").model.stack.config
    frame = Frame(Tokenizer(TOKENIZER.backend), config, "single", classes=2, multi_label=True)
    with pytest.raises(CourseError, match="Row 1 has the label 1, not a list of labels"):
        frame.rows([{"text": "a", "label": [0]}, {"text": "b", "label": 1}])
    frame = Frame(Tokenizer(TOKENIZER.backend), config, "single", classes=2)
    with pytest.raises(CourseError, match=r"Row 0 has the label \[0\], not one label"):
        frame.rows([{"text": "a", "label": [0]}])
