"""Every recipe, small: built, stopped and gone on with to the same bits, loaded by the zoo, its
card complete.
"""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_lib import zoo
from course_lib.analysis import evaluation
from course_lib.data.embedders import SentenceEncoder
from course_lib.data.tokenizers import Tokenizer, add_sentinels, train_wordpiece
from course_lib.errors import CourseError
from course_lib.families import elmo, word_vectors
from course_lib.families.electra import ElectraOutput
from course_lib.families.sentence import Sentence
from course_lib.model import heads
from course_lib.model.seq2seq import Seq2SeqLM
from lab import recipes
from lab.recipes import base
from lab.recipes.documents import Recipe
from lab.recipes.sentences import SentenceRecipe
from lab.recipes.words import ElmoRecipe, StaticRecipe

TINY: dict[str, Any] = {
    "steps": 6,
    "rows": 3,
    "warmup": 1,
    "probe_every": 2,
    "checkpoint_every": 2,
    "precision": "fp32",
}
STEPS = 4  # where the stopped runs stop, just after a state was written and the probe taken
COPY = {"name", "object", "place", "loss"}
MODELS: dict[str, tuple[type, set[str]]] = {  # what is loaded, and what its card scores
    "gpt-mini": (heads.LM, COPY),
    "gpt-nano": (heads.LM, COPY),
    "elmo-mini": (elmo.BiLM, COPY),
    "roberta-mini": (heads.MLM, COPY),
    "electra-mini": (heads.RTD, {"detection", "generator", "loss"}),
    "t5-mini": (Seq2SeqLM, {*COPY, "tokens"}),
    "bart-mini": (Seq2SeqLM, {*COPY, "tokens"}),
    "distilbert-mini": (heads.MLM, COPY),
    "sbert-mini": (Sentence, {"similarity", "similarity test"}),
    "word2vec-mini": (word_vectors.WordVectors, {"analogies", "choice", "similarity"}),
    "glove-mini": (word_vectors.WordVectors, {"analogies", "choice", "similarity"}),
}
PARENTS = {
    "bert-mini": "gpt-mini",
    "roberta-mini": "gpt-mini",
    "distilbert-mini": "bert-mini",
    "sbert-mini": "bert-mini",
    "bart-mini": "gpt-mini",
    "t5-mini": "bert-mini",
}


def small(recipe: Any) -> Any:
    """The recipe in a few seconds' size."""
    if isinstance(recipe, Recipe):
        primer = recipe.primer
        layers = 1 if recipe.start.teacher else 2
        return replace(
            recipe,
            **TINY,
            size=replace(recipe.size, layers=layers, width=16, heads=2, vocab=700),
            primer=replace(
                primer, levels=(0, min(primer.alone, 4)), causal=min(primer.causal, 2), alone=2
            ),
            documents=replace(recipe.documents, pool=2),
        )
    if isinstance(recipe, ElmoRecipe):
        return replace(recipe, **TINY, vocab=300, width=8, hidden=12, pool=2)
    if isinstance(recipe, SentenceRecipe):
        return replace(recipe, **TINY, inference=3, pairs=8)
    return replace(recipe, documents=150, size=8, least=1, epochs=1)


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"TOKENIZER_DOCUMENTS": 60, "BLANKS": 4, "LOG": 2}.items():
            patch.setattr(base, name, value)
        patch.setattr("lab.recipes.sentences.ASKED", 20)
        patch.setattr(
            recipes, "RECIPES", {name: small(recipe) for name, recipe in recipes.RECIPES.items()}
        )
        yield


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small gpt-mini and the bert-mini that starts from it, for the recipes that start from
    these.
    """
    place = tmp_path_factory.mktemp("parents")
    for name in ("gpt-mini", "bert-mini"):
        list(recipes.build(name, work=place, to=place / "done"))
    return place / "done"


@pytest.mark.parametrize("name", MODELS)
def test_it_is_built_stopped_resumed_and_loaded(name: str, tmp_path: Path, parents: Path) -> None:
    recipe, done = recipes.RECIPES[name], {}
    for way, stops in (("whole", []), ("stopped", [STEPS])):
        done[way] = shutil.copytree(parents, tmp_path / way)
        for stop in [*stops, None]:
            for point in recipes.build(name, work=tmp_path / f"work-{way}", to=done[way]):
                if point.step == stop:
                    break
    both = [(done[way] / name / "model.safetensors").read_bytes() for way in ("whole", "stopped")]
    assert both[0] == both[1]

    kind, scored = MODELS[name]
    model, known, card = zoo.load(name, folder=done["whole"])
    assert type(model) is kind
    assert set(card["scores"]) == scored and all(
        torch.tensor(v).isfinite() for v in card["scores"].values()
    )
    assert card["name"] == name and card["seed"] == 0 and card["recipe"]["world"] == 0
    assert card["tokens"] > 0 and card["curve"][-1]["step"] == card["steps"]
    assert {"data", "seconds", "torch", "python", "hardware", "made"} <= card.keys()
    assert list(card.get("from", {})) == [
        parent for child, parent in PARENTS.items() if child == name
    ]
    if isinstance(recipe, StaticRecipe):
        assert known is None and model["the"].shape == (8,) and model.matrix.dtype == torch.float32
        return
    assert not model.training and all(p.dtype == torch.float32 for p in model.parameters())
    if isinstance(model, elmo.BiLM):
        assert isinstance(known, elmo.Vocabulary) and len(known) == model.elmo.config.vocab
        assert model.elmo(**elmo.characters([["the", "bank"]], 24))[-1].shape == (1, 4, 16)
        return
    assert isinstance(known, Tokenizer)
    ids = torch.tensor([known.encode("anna saw the judge .").ids])
    if isinstance(model, Seq2SeqLM):
        assert torch.equal(
            model.stack.decoder.embed.tokens.weight, model.stack.encoder.embed.tokens.weight
        )
        assert model(ids, ids).shape == (1, ids.shape[1], known.vocab.size)
        assert model.stack.start == (known.vocab.pad if name == "t5-mini" else known.vocab.sep)
    elif isinstance(model, Sentence):
        vectors = SentenceEncoder(model, known).embed(["anna saw the judge .", "the judge"])
        assert vectors.shape == (2, 16)
    else:
        assert model(ids).shape[:2] == ids.shape


def test_electra_ships_both_models(tmp_path: Path) -> None:
    list(recipes.build("electra-mini", work=tmp_path / "work", to=tmp_path / "done"))
    small_one, _, card = zoo.load("electra-mini-generator", folder=tmp_path / "done")
    model = zoo.load("electra-mini", folder=tmp_path / "done").model
    assert isinstance(small_one, heads.MLM) and card["name"] == "electra-mini-generator"
    assert small_one.stack.config.width < model.stack.config.width
    assert torch.equal(small_one.stack.embed.tokens.weight, model.stack.embed.tokens.weight)


def test_a_student_learns_nothing_before_its_teacher_is_there(tmp_path: Path) -> None:
    for name, parent in PARENTS.items():
        with pytest.raises(CourseError, match=f"starts from {parent}; build that first"):
            recipes.build(name, work=tmp_path / "work", to=tmp_path / "done")


class Restorer(nn.Module):
    """Says `answer` wherever it is asked, and keeps what it was given."""

    def __init__(self, answer: list[int], size: int) -> None:
        super().__init__()
        self.stack, self.answer, self.size = SimpleNamespace(start=2), answer, size
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(
        self, ids: Tensor, decoder_ids: Tensor, *, attention_mask: Tensor, loss_mask: Tensor
    ) -> Tensor:
        self.seen = ids, decoder_ids
        said = torch.tensor(self.answer * len(ids))
        return nn.functional.one_hot(said, self.size).float()


@pytest.mark.parametrize("marked", [False, True], ids=["bart", "t5"])
def test_an_encoder_decoder_is_asked_for_a_word_by_one_sign(marked: bool) -> None:
    plain = train_wordpiece(["anna sold the sled to ivor ."] * 9 + ["b o"], 40)
    words = add_sentinels(plain, 3) if marked else plain
    signs = words.vocab.sentinels if marked else ()
    blank = evaluation.Blank("anna sold the sled . ", "bob", " sold the sled .")
    pieces = words.ids(["bob"], special=False)[0]
    assert len(pieces) > 1
    right = Restorer(pieces, words.vocab.size)
    assert evaluation.restore_accuracy(right, words, [blank, blank], sentinels=signs) == 1  # type: ignore[arg-type]
    read, fed = (ids[0].tolist() for ids in right.seen)
    sign = signs[0] if marked else words.vocab.mask
    assert read.count(sign) == 1 and not set(pieces[1:]) & set(read)
    assert fed[0] == 2 and [i for i in fed if i in pieces] == pieces[: len(fed)]
    assert fed[1] == (sign if marked else words.vocab.cls)
    wrong = Restorer([*pieces[:-1], words.vocab.sep or 0], words.vocab.size)
    assert evaluation.restore_accuracy(wrong, words, [blank], sentinels=signs) == 0  # type: ignore[arg-type]


def test_detection_counts_real_tokens_only() -> None:
    """A discriminator that calls everything replaced: F1 = 2 p / (1 + p), p the share that is."""

    class Both(nn.Module):
        def forward(
            self, ids: Tensor, *, labels: Tensor, loss_mask: Tensor, attention_mask: Tensor
        ) -> ElectraOutput:
            guesses = nn.functional.one_hot(labels[loss_mask], 9).float()
            return ElectraOutput(guesses, ids, loss_mask & attention_mask, torch.ones(ids.shape))

        parameters = lambda self: iter([torch.zeros(1)])  # noqa: E731

    ids, attention_mask = torch.full((2, 5), 7), torch.tensor([[True] * 4 + [False]] * 2)
    at = torch.zeros(2, 5, dtype=torch.bool)
    at[:, 1:3] = True
    found = evaluation.detection(
        Both(), [{"ids": ids, "labels": ids, "loss_mask": at, "attention_mask": attention_mask}]
    )  # type: ignore[arg-type]
    assert found == {"detection": pytest.approx(2 / 3), "generator": 1.0}
