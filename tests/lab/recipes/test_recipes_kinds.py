"""Every recipe, small: built, stopped and gone on with to the same bits, loaded by the zoo, its
card complete.
"""

import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_lib import zoo
from course_lib.analysis import copy_probe, evaluation
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
from lab.recipes.words import ElmoRecipe

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


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, parents: Path) -> Callable[[str], Path]:
    """Name -> the folder of the finished checkpoints, built once without a stop."""

    @cache
    def build(name: str) -> Path:
        place = tmp_path_factory.mktemp(name)
        done = shutil.copytree(parents, place / "done")
        list(recipes.build(name, work=place / "work", to=done))
        return done

    return build


def test_the_lists_above_name_every_recipe(tmp_path: Path) -> None:
    # bert-mini is built as a parent; gpt-tiny and gpt-small are gpt-nano in other sizes.
    assert recipes.RECIPES.keys() - {"bert-mini", "gpt-tiny", "gpt-small"} == MODELS.keys()
    starts = {}
    for name, recipe in recipes.RECIPES.items():
        job = recipes.JOBS[type(recipe)](name, recipe, tmp_path, tmp_path)
        if job.starts_from:
            starts[name] = job.starts_from
    assert starts == {name: [parent] for name, parent in PARENTS.items()}


@pytest.mark.parametrize("name", MODELS)
def test_a_stopped_build_goes_on_to_the_same_bits(
    name: str, tmp_path: Path, parents: Path, built: Callable[[str], Path]
) -> None:
    done = shutil.copytree(parents, tmp_path / "done")
    for point in recipes.build(name, work=tmp_path / "work", to=done):
        if point.step == STEPS:
            break
    list(recipes.build(name, work=tmp_path / "work", to=done))
    weights = f"{name}/model.safetensors"
    assert (done / weights).read_bytes() == (built(name) / weights).read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_the_zoo_loads_the_kind_that_the_recipe_says(
    name: str, built: Callable[[str], Path]
) -> None:
    kind, _ = MODELS[name]
    model = zoo.load(name, folder=built(name)).model
    assert type(model) is kind
    if isinstance(model, nn.Module):
        assert not model.training
        assert all(p.dtype == torch.float32 for p in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_a_card_has_finite_scores(name: str, built: Callable[[str], Path]) -> None:
    _, scored = MODELS[name]
    scores = zoo.load(name, folder=built(name)).card["scores"]
    assert set(scores) == scored
    assert all(math.isfinite(score) for score in scores.values())


@pytest.mark.parametrize("name", MODELS)
def test_a_card_says_what_was_made_and_how(name: str, built: Callable[[str], Path]) -> None:
    card = zoo.load(name, folder=built(name)).card
    assert card["name"] == name
    assert card["seed"] == 0
    assert card["recipe"]["world"] == 0
    assert card["tokens"] > 0
    assert card["curve"][-1]["step"] == card["steps"]
    assert {"data", "seconds", "torch", "python", "hardware", "made"} <= card.keys()


@pytest.mark.parametrize("name", MODELS)
def test_a_card_names_the_checkpoint_it_starts_from(
    name: str, built: Callable[[str], Path]
) -> None:
    card = zoo.load(name, folder=built(name)).card
    expected = [PARENTS[name]] if name in PARENTS else []
    assert list(card.get("from", {})) == expected


@pytest.mark.parametrize("name", ["word2vec-mini", "glove-mini"])
def test_static_vectors_have_no_tokenizer(name: str, built: Callable[[str], Path]) -> None:
    vectors, tokenizer, _ = zoo.load(name, folder=built(name))
    assert tokenizer is None
    assert vectors["the"].shape == (8,)
    assert vectors.matrix.dtype == torch.float32


def test_elmo_reads_words_by_their_characters(built: Callable[[str], Path]) -> None:
    model, vocabulary, _ = zoo.load("elmo-mini", folder=built("elmo-mini"))
    assert isinstance(vocabulary, elmo.Vocabulary)
    assert len(vocabulary) == model.elmo.config.vocab
    states = model.elmo(**elmo.characters([["the", "bank"]], 24))
    assert states[-1].shape == (1, 4, 16)  # two words and the marks of their ends


@pytest.mark.parametrize("name", ["t5-mini", "bart-mini"])
def test_an_encoder_decoder_has_one_table_of_tokens(
    name: str, built: Callable[[str], Path]
) -> None:
    model, tokenizer, _ = zoo.load(name, folder=built(name))
    encoder, decoder = model.stack.encoder, model.stack.decoder
    assert torch.equal(decoder.embed.tokens.weight, encoder.embed.tokens.weight)
    ids = sentence(tokenizer)
    assert model(ids, ids).shape == (1, ids.shape[1], tokenizer.vocab.size)


def test_t5_starts_with_padding_and_bart_with_sep(built: Callable[[str], Path]) -> None:
    t5, t5_tokenizer, _ = zoo.load("t5-mini", folder=built("t5-mini"))
    bart, bart_tokenizer, _ = zoo.load("bart-mini", folder=built("bart-mini"))
    assert t5.stack.start == t5_tokenizer.vocab.pad
    assert bart.stack.start == bart_tokenizer.vocab.sep


def test_sbert_gives_each_text_one_vector(built: Callable[[str], Path]) -> None:
    model, tokenizer, _ = zoo.load("sbert-mini", folder=built("sbert-mini"))
    vectors = SentenceEncoder(model, tokenizer).embed(["anna saw the judge .", "the judge"])
    assert vectors.shape == (2, 16)


@pytest.mark.parametrize("name", ["gpt-mini", "gpt-nano", "roberta-mini", "distilbert-mini"])
def test_a_language_model_has_logits_for_each_token(
    name: str, built: Callable[[str], Path]
) -> None:
    model, tokenizer, _ = zoo.load(name, folder=built(name))
    ids = sentence(tokenizer)
    assert model(ids).shape == (*ids.shape, tokenizer.vocab.size)


def test_electra_judges_each_token(built: Callable[[str], Path]) -> None:
    model, tokenizer, _ = zoo.load("electra-mini", folder=built("electra-mini"))
    ids = sentence(tokenizer)
    assert model(ids).shape == ids.shape


def sentence(tokenizer: Tokenizer) -> Tensor:
    """A short text, Int[1 T]."""
    return torch.tensor([tokenizer.encode("anna saw the judge .").ids])


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
    blank = copy_probe.Blank("anna sold the sled . ", "bob", " sold the sled .")
    pieces = words.ids(["bob"], special=False)[0]
    assert len(pieces) > 1
    right = Restorer(pieces, words.vocab.size)
    assert copy_probe.restore_accuracy(right, words, [blank, blank], sentinels=signs) == 1  # type: ignore[arg-type]
    read, fed = (ids[0].tolist() for ids in right.seen)
    sign = signs[0] if marked else words.vocab.mask
    assert read.count(sign) == 1 and not set(pieces[1:]) & set(read)
    assert fed[0] == 2 and [i for i in fed if i in pieces] == pieces[: len(fed)]
    assert fed[1] == (sign if marked else words.vocab.cls)
    wrong = Restorer([*pieces[:-1], words.vocab.sep or 0], words.vocab.size)
    assert copy_probe.restore_accuracy(wrong, words, [blank], sentinels=signs) == 0  # type: ignore[arg-type]


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


def test_a_model_too_large_to_be_shipped_is_refused() -> None:
    base.check_size("a", nn.Linear(2000, 2000))
    with pytest.raises(CourseError, match=r"a takes .* bytes in half precision"):
        base.check_size("a", nn.Linear(3000, 3000))
