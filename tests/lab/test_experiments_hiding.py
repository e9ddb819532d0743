"""A masked model asked for each word of a statement."""

import pytest
import torch

from course_lib.data.tokenizers import train_wordpiece
from course_lib.families import preset
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from lab.town import hiding
from lab.town.hiding import AHEAD, LEAST, stand_ins, summary, whole_words, word_scores

CONTEXT = "Ann has a lamp. Bob has keys."
STATEMENTS = ["pobkas has a lamp .", "Bob has keys."]
TOKENIZER = train_wordpiece(["ann bob has a lamp keys . ?"] * 20, 60)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return heads.MLM(Transformer(preset("bert-mini", vocab=TOKENIZER.vocab.size, length=64))).eval()


def by_hand(model, context, statement, word):
    """The log probabilities at the first piece of this word of the statement, all its pieces
    hidden.
    """
    given, said = TOKENIZER.ids([context, statement], special=False)
    places = [i for i, w in enumerate(TOKENIZER.words(torch.tensor(said)).tolist()) if w == word]
    hidden = [TOKENIZER.vocab.mask if i in places else token for i, token in enumerate(said)]
    ids = torch.tensor([[TOKENIZER.vocab.cls, *given, *hidden, TOKENIZER.vocab.sep]])
    logs = model(ids)[0].log_softmax(-1)[1 + len(given) + places[0]]
    return logs, said[places[0]]


def test_every_word_is_hidden_alone_behind_the_context(model):
    whole = TOKENIZER.words(torch.tensor(TOKENIZER.ids([STATEMENTS[0]], special=False)[0])).tolist()
    assert len(whole) > len(set(whole)) == 5  # the first word is in pieces
    # one batch has both lengths
    found = word_scores(model, TOKENIZER, [CONTEXT, CONTEXT], STATEMENTS)
    for scores, statement, absent in zip(
        found, STATEMENTS, ("ann bob keys", "ann a lamp"), strict=True
    ):
        others = sorted(TOKENIZER.ids([absent], special=False)[0])
        for word, (own, lead) in enumerate(scores.tolist()):
            logs, piece = by_hand(model, CONTEXT, statement, word)
            assert own == pytest.approx(logs[piece].item(), abs=1e-5)
            assert lead == pytest.approx((logs[piece] - logs[others].max()).item(), abs=1e-5)
    assert [len(scores) for scores in found] == [5, 4]


def test_a_long_context_loses_its_beginning(model, monkeypatch):
    monkeypatch.setattr(hiding, "MOST", 20)
    (cut,) = word_scores(model, TOKENIZER, ["Bob has keys. " * 30], ["Ann has a lamp."])
    given = TOKENIZER.ids(["Bob has keys. " * 30], special=False)[0]
    said = TOKENIZER.ids(["Ann has a lamp."], special=False)[0]
    kept = TOKENIZER.decode(given[len(given) - (20 - 2 - len(said)) :])
    (same,) = word_scores(model, TOKENIZER, [kept], ["Ann has a lamp."])
    assert torch.allclose(cut, same, atol=1e-5)


def test_eight_numbers_of_any_number_of_words():
    scores = torch.tensor([[-1.0, 2.0], [-30.0, -20.0], [-3.0, 9.0], [-2.0, 1.0], [0.0, 3.0]])
    worst = summary(scores)
    assert worst[:4].tolist() == pytest.approx([(-1 + LEAST - 3 - 2) / 5, LEAST, -3, -2])
    assert worst[4:].tolist() == pytest.approx(
        [(2 + AHEAD[0] + AHEAD[1] + 1 + 3) / 5, AHEAD[0], 1, 2]
    )
    assert torch.equal(worst, summary(scores.flip(0)))
    assert summary(scores[:1]).tolist() == [-1, -1, 0, 0, 2, 2, AHEAD[1], AHEAD[1]]


def test_who_is_called_by_pieces_gets_another_name_everywhere():
    names, things = (
        whole_words(TOKENIZER, ["Ann", "Bob", "Graham"]),
        whole_words(TOKENIZER, ["lamp", "keys", "rug"]),
    )
    assert (names, things) == (["Ann", "Bob"], ["lamp", "keys"])
    told = ["Graham has the keys. Ann painted a rug", "the rug is Graham's."]
    assert stand_ins(TOKENIZER, told, names, things) == [
        "Bob has the keys. Ann painted a lamp",
        "the lamp is Bob's.",
    ]
    assert stand_ins(TOKENIZER, ["Ann has keys.", "a lamp"], names, things) == [
        "Ann has keys.",
        "a lamp",
    ]
    two = stand_ins(TOKENIZER, ["Graham saw Zoe."], names, things)[0]
    assert sorted(two.rstrip(".").split(" saw ")) == ["Ann", "Bob"]  # one each
    assert stand_ins(TOKENIZER, ["GRAHAM saw Graham."], ["Ann"], things) == ["Ann saw Ann."]


def test_a_stand_in_follows_from_the_word_alone():
    names = [f"Name{letter}" for letter in "abcdefghij"]
    alone = {
        word: stand_ins(TOKENIZER, [word], names, []) for word in ("Graham", "Zoe", "Una", "Ivo")
    }
    assert len({text for (text,) in alone.values()}) > 1
    assert all(stand_ins(TOKENIZER, [word.upper()], names, []) == alone[word] for word in alone)
    assert stand_ins(TOKENIZER, ["Ann saw keys.", "Zoe"], names, [])[1:] == alone["Zoe"]
