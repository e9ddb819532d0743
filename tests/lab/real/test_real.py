"""The scores of real English: windows, sentences, and the arms of public tasks."""

import json
import math
import zipfile
from functools import partial

import pytest
import torch
from datasets import ClassLabel, Dataset, Features, List, Value, concatenate_datasets

from course_lib import zoo
from course_lib.analysis import probing
from course_lib.families import word_vectors
from lab.real import baselines, senses, sentences, tasks, text, words
from lab.real.remembered import Remembered

PAIRS = [
    ("He has been waiting for two hours.", "He has been waiting at two hours."),
    ("She opened the door and went in.", "She opened the door and gone in."),
    ("I was so tired that I fell asleep.", "I was so tired that I fell kitchen."),
]


@pytest.mark.parametrize(
    ("name", "scorer"), [("gpt-english", text.causal), ("bert-english", text.masked)]
)
def test_the_likelier_sentence_is_english(name, scorer):
    model, tokenizer, _ = zoo.load(name)
    with torch.inference_mode():
        assert scorer(model, tokenizer, PAIRS) == [0, 0, 0]
        assert scorer(model, tokenizer, [(bad, good) for good, bad in PAIRS]) == [1, 1, 1]


def test_wikitext_as_people_write():
    spelt = 'He said , " it \'s a well @-@ known cat " ( of $ 3 @.@ 5 ) . \n'
    assert text.detokenized(spelt) == 'He said, "it\'s a well-known cat" (of $3.5). \n'


def test_every_token_is_predicted_once():
    class Uniform:
        def __call__(self, ids):
            return torch.zeros(*ids.shape, tokenizer.vocab.size)

    tokenizer = zoo.load("gpt-english").tokenizer
    long = "The old man sat by the fire. " * 9
    found = text.likelihood(Uniform(), tokenizer, [long, "One line.\nAnother.\n"], length=16)
    tokens = sum(len(tokenizer.encode(part).ids) for part in (long, "One line.\nAnother.\n"))
    assert found["tokens"] == tokens and math.isclose(
        found["perplexity_per_token"], tokenizer.vocab.size, rel_tol=1e-5
    )
    nats, size = tokens * math.log(tokenizer.vocab.size), len(long.encode()) + 19
    assert math.isclose(found["bits_per_byte"], nats / math.log(2) / size, rel_tol=1e-5)
    assert math.isclose(
        found["perplexity_per_word"], math.exp(nats / (63 + 1 + 3 + 2)), rel_tol=1e-4
    )


def test_windows_give_a_model_half_their_length_to_look_back():
    model, tokenizer, _ = zoo.load("gpt-english")
    story = "The king went to the sea, and the king saw the ship, and the ship was on the sea. " * 3
    with torch.inference_mode():
        whole, short = (text.likelihood(model, tokenizer, [story], length) for length in (256, 16))
    assert whole["tokens"] == short["tokens"] and whole["bits_per_byte"] < short["bits_per_byte"]


def test_blimp_is_a_mean_over_paradigms(tmp_path):
    with zipfile.ZipFile(tmp_path / "BLiMP.zip", "w") as archive:
        for name, term, right in (("a", "binding", 3), ("b", "binding", 1), ("c", "island", 2)):
            rows = [
                {"sentence_good": str(i < right), "sentence_bad": "", "linguistics_term": term}
                for i in range(4)
            ]
            archive.writestr(f"BLiMP/data/{name}.jsonl", "\n".join(map(json.dumps, rows)))
    found = text.blimp(
        lambda pairs: [int(good != "True") for good, _ in pairs], tmp_path / "BLiMP.zip", pairs=1000
    )
    assert found == {"mean": 0.5, "terms": {"binding": 0.5, "island": 0.5}, "pairs": 1000}


def test_what_english_teaches():
    model, tokenizer, _ = zoo.load("gpt-english")
    with torch.inference_mode():
        found = text.knowledge(partial(text.causal, model, tokenizer))
    recorded = json.loads((tasks.RESULTS / "real_text.json").read_text("utf-8"))["gpt-english"][
        "knowledge"
    ]
    assert found == pytest.approx(recorded, abs=0.03), (
        "of float32 weights; those that ship are halved"
    )


def test_an_arm_chooses_on_training_rows_and_is_scored_on_others():
    seen = []

    def run(train, test, choice, seed):
        seen.append((len(train), len(test), choice, seed))
        return {1: 0.4, 2: 0.9, 3: 0.7}[choice] + seed / 100

    rows = Dataset.from_dict({"text": ["x"] * 100})
    tasks.arm(run, (1,), rows, rows, seeds=1, trial=20)
    assert seen.pop(0)[:2] == (20, 10) and seen.pop(0)[:2] == (100, 100)  # a trial on fewer rows
    found = tasks.arm(run, (1, 2, 3), rows, rows.select(range(30)), seeds=5)
    assert (
        found["chosen"] == 2 and found["mean"] == pytest.approx(0.92) and len(found["seeds"]) == 5
    )
    assert seen[:3] == [(90, 10, choice, 0) for choice in (1, 2, 3)]
    assert seen[3:] == [(100, 30, 2, seed) for seed in range(5)]


def test_the_linear_model_reads_words_letters_and_pairs():
    label = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
    kind = ["a good film", "a bad film", "good fun", "bad luck"] * 4
    single = Dataset.from_dict({"text": kind, "label": [1, 0] * 8}, features=label)
    assert (
        tasks.linear(tasks.TASKS["sst2"].metric)(single, single.select(range(4)), 100.0, 0) == 1.0
    )
    told = [
        ("a cat sat", "a cat sat"),
        ("a dog ran", "the sun rose"),
        ("the sun rose", "sun rose"),
    ] * 4
    pair = dict(zip(("text", "pair"), zip(*told, strict=True), strict=True))
    scores = Dataset.from_dict(pair | {"label": [5.0, 0.0, 4.0] * 4})
    assert tasks.linear(tasks.TASKS["stsb"].metric)(
        scores, scores.select(range(3)), 10.0, 0
    ) == pytest.approx(1.0)
    names = Features(
        {"tokens": List(Value("string")), "labels": List(ClassLabel(names=["O", "B-person"]))}
    )
    tags = {
        "tokens": [["Anna", "sat"], ["he", "met", "Bert"]] * 4,
        "labels": [[1, 0], [0, 0, 1]] * 4,
    }
    tagged = Dataset.from_dict(tags, features=names)
    assert (
        tasks.linear(tasks.TASKS["wnut17"].metric)(tagged, tagged.select(range(2)), 100.0, 0) == 1.0
    )


def test_the_most_frequent_label_is_that_of_the_training_words():
    rows = Dataset.from_dict({"tokens": [["a", "b"], ["c"]], "labels": [[1, 0], [1]]})
    test = Dataset.from_dict({"tokens": [["a", "b", "c", "d"]], "labels": [[0, 0, 0, 1]]})
    assert baselines.most_frequent(rows, test) == 0.25
    texts = Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]})
    assert baselines.most_frequent(texts.select([1]), texts) == 0.5


def test_a_frozen_stack_reads_every_text_once():
    model, _, _ = zoo.load("bert-mini")
    stack = model.stack.train()  # its dropout must stay off
    ids = torch.tensor([[2, 20, 30, 3], [2, 40, 3, 0]])
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool()
    frozen = Remembered(stack)
    first = frozen(ids, attention_mask=real)
    with torch.no_grad():
        right = stack.eval()(ids, attention_mask=real) * real[..., None]
    assert torch.allclose(first, right, atol=1e-6)
    stack.forward = None  # whoever reads again, fails
    alone = frozen(ids[1:, :3], attention_mask=real[1:, :3])
    assert torch.equal(alone, first[1:, :3])


def test_a_word_s_vector_says_which_sense_is_meant(tmp_path):
    river = [
        f"the boat lay at the bank of the {name} in the water ."
        for name in ("river", "stream", "sea", "lake")
    ]
    money = [
        f"he took {sum_} dollars from the bank and paid the tax ."
        for sum_ in ("two", "five", "ten", "nine")
    ]
    for split, texts in (
        ("train", river[:3] + money[:3]),
        ("test", [f"{'so ' * 40}{river[3]}", money[3]]),
    ):
        lines = [f"{text.split().index('bank')}\t{text}" for text in texts]
        (tmp_path / f"{split}.data.txt").write_text("\n".join(lines) + "\n", "utf-8")
        gold = [int("dollars" in text) for text in texts]
        (tmp_path / f"{split}.gold.txt").write_text(
            "".join(f"{sense}\n" for sense in gold), "utf-8"
        )
    rows, test = (senses.read(tmp_path, split, each=9) for split in ("train", "test"))
    assert sorted(senses.read(tmp_path, "train", each=2)["label"]) == [0, 0, 1, 1]
    both = concatenate_datasets([rows, test])
    assert {
        text.split()[place] for text, place in zip(both["text"], both["place"], strict=True)
    } == {"bank"}
    (long,) = (row["text"] for row in test if row["label"] == 0)
    assert len(long.split()) == senses.AROUND + 8  # bank of the lake in the water .
    sentences_ = [text.split() for text in both["text"]]
    layers = senses.contextual("bert-english")(sentences_, both["place"])
    model, tokenizer, _ = zoo.load("bert-english")
    first = probing.word_layers(model, tokenizer, sentences_[:1])[0]
    assert torch.allclose(layers["layer 3"][0], first[3, both["place"][0]], atol=1e-5)
    means = senses.neighbours("vectors-english")(sentences_, both["place"])
    for features in (layers, means):
        found = senses.scores(features, both["label"], len(rows))
        assert found["chosen"] == 1.0 and found.keys() == features.keys() | {"chosen"}
    swapped = [*rows["label"], *(1 - label for label in test["label"])]
    assert senses.scores(layers, swapped, len(rows))["chosen"] == 0.0


def test_neighbours_stand_in_one_paragraph(tmp_path):
    one = (
        "Mrs. Bell opened the old green door. She saw a ship upon the sea. No. It was gone before"
        " she could call."
    )
    (tmp_path / "train.txt").write_text(
        f"= A =\n\n{one}\nA paragraph of one long sentence gives nothing here.\n", "utf-8"
    )
    (row,) = sentences.neighbours(str(tmp_path))
    assert row["query"] == "Mrs. Bell opened the old green door." and row["positive"].endswith(
        "upon the sea."
    )


def test_a_search_is_judged_by_the_paragraph_of_the_question():
    texts = ["The cats were running home.", "A dog sat by the sea.", "Nobody came to the mill."]
    asked = {"text": ["who ran to the mill", "a cat runs"], "pair": [texts[2], texts[0]]}
    rows = Dataset.from_dict({name: [*some, texts[1]] for name, some in asked.items()})
    whole, stems = (sentences.search(rows, None, stem=stem) for stem in (False, True))
    assert stems == {"mrr": 1.0, "recall@1": 1.0, "recall@5": 1.0} and whole[
        "recall@1"
    ] == pytest.approx(2 / 3)


def test_pairs_of_words(tmp_path):
    spelled = ["king", "queen", "man", "woman", "runs"]
    table = torch.tensor([[3.0, 0, 1], [3, 1, 0], [0, 0, 1], [0, 1, 0], [-1, 2, 2]])
    vectors = word_vectors.WordVectors(spelled, table)
    (tmp_path / "pairs").write_text(
        "king Queen 9.5\nman woman 4\nking runs 1\nking absent 3\n", "utf-8"
    )
    found = words.similarity(vectors, tmp_path / "pairs")
    assert found["vectors"] == pytest.approx(1.0) and (found["pairs"], found["of"]) == (3, 4)
    assert (
        words.letters("man", "man")
        == 1.0
        > words.letters("man", "woman")
        > words.letters("man", "king")
        == 0.0
    )
