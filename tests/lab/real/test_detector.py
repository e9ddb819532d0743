"""The recipe of electra-english at no size: fakes, training, the card."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from course_lib import zoo
from course_lib.files import read_json
from lab.real import detector

TEXT = "The old dog slept by the door. It was a warm day in the town. Nobody came to the shop."


def test_fakes_stand_at_hidden_places_only_and_a_right_draw_is_none() -> None:
    tokenizer = zoo.load(detector.BODY).tokenizer
    rows = tokenizer.ids([TEXT, "A shorter one."], max_length=64)
    text = detector.collate.pad_to_longest(rows, tokenizer.vocab.padding_id)["ids"]
    batch = detector.hide(rows, 0.3, 0, 1)
    hidden = batch["loss_mask"]
    generator = zoo.load(detector.GENERATOR).model.eval()
    frequency = torch.ones(tokenizer.vocab.size)
    for plain in (0.0, 1.0):
        rng = torch.Generator().manual_seed(0)
        filled, replaced = detector.fake(generator, batch, frequency, plain, rng)
        assert bool((filled == text)[~hidden].all())
        assert torch.equal(replaced, filled != text)
    assert int(replaced.sum()) == int(hidden.sum())  # by frequency: all of them


def test_it_trains_goes_on_and_the_checkpoint_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RUNNING", "ALONE"):
        part = getattr(detector, name)
        monkeypatch.setattr(detector, name, replace(part, steps=2, rows=2))
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    for split in ("train", "validation"):
        (corpus / f"{split}.txt").write_text(f"{TEXT}\n\n" * 12)
    for _ in range(2):  # the second finds the state of the first
        detector.train(str(corpus), tmp_path / "work", tmp_path / "to", documents=9)
    card = read_json(tmp_path / "to" / "electra-english" / "card.json")
    assert (card["steps"], card["generator"]) == (4, "distilbert-english")
    assert card["tokens"] > 2 * 2 * detector.LENGTH  # the first part's, and sentences
    assert len(card["scores"]) == 8 and all(0 <= score <= 1 for score in card["scores"].values())
    model, tokenizer, _ = zoo.load("electra-english", folder=tmp_path / "to")
    ids = torch.tensor([tokenizer.encode(TEXT).ids])
    assert model(ids).shape == ids.shape


def test_the_shipped_one_suspects_a_word_that_does_not_fit() -> None:
    model, tokenizer, card = zoo.load("electra-english")
    ids = torch.tensor([tokenizer.encode("He opened the door and went into the of.").ids])
    with torch.no_grad():
        suspicion = model(ids)[0]
    assert tokenizer.tokens(ids[0])[int(suspicion.argmax())] == "of"
    assert card["body"] == "bert-english"
