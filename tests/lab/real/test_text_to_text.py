"""The recipe of t5-english at no size: its tasks, its training, its scores."""

import lzma
import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from course_lib import zoo
from course_lib.data.tokenizers import add_sentinels, train_wordpiece
from course_lib.families.t5 import t5, t5_lm
from course_lib.files import read_json
from lab.real import text_to_text

LINES = (
    "The old dog was by the door of the house. He was a good dog, and we liked him.",
    "Nobody came to the shop of the old man today. We have been there many times.",
)
TEXTS = {name: text_to_text.plain_sentences(" ".join(LINES)) for name in ("all", "novel")}
TEXTS["textbook"] = TEXTS["all"][:1]


def test_a_task_is_a_prefix_an_input_and_a_target() -> None:
    rng = random.Random(0)
    sentence = "The old dog was by the door of the house."
    assert sentence in TEXTS["all"] and len(TEXTS["all"]) == 4
    one = {name: [sentence] for name in TEXTS}
    for task in text_to_text.SHARES:
        if task in ("spans", "genre"):
            continue
        row = text_to_text.example(task, one, rng)
        assert row["text"].startswith(f"{task}: ")
        assert row["target"] == (text_to_text.bare(sentence) if task == "split" else sentence)
    assert text_to_text.example("genre", TEXTS, rng)["target"] in ("novel", "textbook")
    gap = text_to_text.example("spans", one, rng)
    word = gap["target"].split()[1]
    assert gap["text"].replace("<extra_id_0>", word) == sentence


def test_a_damaged_sentence_has_a_mistake_and_its_end() -> None:
    damaged = {text_to_text.damaged(LINES[0][:41], random.Random(i)) for i in range(20)}
    assert len(damaged) > 5 and all(text.endswith(".") for text in damaged)


def test_t5s_own_form_is_the_same_function() -> None:
    torch.manual_seed(0)
    model = t5_lm(t5(60, width=16, layers=1, heads=2, dropout=0.0), start=0).eval()
    ids = torch.randint(5, 60, (2, 7))
    other = text_to_text.in_form(model, scaled=True)
    assert other.stack.decoder.config.scale and not other.scaled
    torch.testing.assert_close(other(ids, ids), model(ids, ids), atol=1e-5, rtol=1e-5)


def test_word_errors_and_rules() -> None:
    assert text_to_text.word_errors(["a b"], ["a b c d"]) == 0.5
    counts = Counter({"the": 9, "cat": 3, "he": 5, "sat": 2})
    assert text_to_text.likeliest_split("thecatsat", counts) == "the cat sat"


def test_it_trains_and_the_checkpoint_says_how_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_to_text, "ASKED", 3)
    for name in text_to_text.FILES:
        with lzma.open(tmp_path / f"train-{name}.txt.xz", "wt", encoding="utf-8") as file:
            file.write("= A =\n\n" + "\n".join(LINES) + "\n")
    with lzma.open(tmp_path / "dev.txt.xz", "wt", encoding="utf-8") as file:
        for title in ("Understood Betsy", "Vision", "State of the Union"):
            file.write(f"= {title} =\n\n" + "\n".join(LINES) + "\n\n")
    held = text_to_text.held_out(tmp_path)
    assert len(held["all"]) == 12 and len(held["novel"]) == len(held["textbook"]) == 4

    tokenizer = add_sentinels(train_wordpiece(list(LINES) * 3, 120, lowercase=False))
    model = t5_lm(t5(tokenizer.vocab.size, width=16, layers=1, heads=2, dropout=0.0), start=0)
    zoo.export("start", model, tokenizer, {}, tmp_path / "start")
    text_to_text.train(tmp_path / "start", tmp_path, tmp_path / "out", steps=3, rows=4)
    text_to_text.score(tmp_path / "out", tmp_path, tmp_path / "to", limit=50)
    card = read_json(tmp_path / "to" / "t5-english" / "card.json")
    assert card["steps"] == 3 + text_to_text.FIRST["steps"]
    assert {"spans", "genre, rule", "split, rule", "correct, copied"} <= set(card["scores"])


def test_the_shipped_one_corrects_a_sentence() -> None:
    model, tokenizer, _ = zoo.load("t5-english")
    [said] = text_to_text.answered(model, tokenizer, ["correct: We goed home because it was late."])
    assert said == "We went home because it was late."
