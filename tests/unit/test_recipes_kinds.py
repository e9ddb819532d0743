"""Every recipe, small: built, stopped and gone on with to the same bits, loaded by the zoo, its card complete."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from course_lib import corrupt, heads, probes, recipes, zoo
from course_lib.electra import Judged
from course_lib.errors import CourseError
from course_lib.models import elmo, static
from course_lib.models.sentence import Sentence, SentenceEncoder
from course_lib.recipes import ElmoRecipe, Recipe, SentenceRecipe, StaticRecipe, base
from course_lib.seq2seq import Seq2SeqLM
from course_lib.tokenizers import Tokenizer, train_wordpiece

TINY: dict[str, Any] = {
    "steps": 6, "rows": 3, "warmup": 1, "probe_every": 2, "checkpoint_every": 2, "precision": "fp32",
}  # fmt: skip
STEPS = 4  # where the stopped runs stop, just after a state was written and the probe taken
COPY = {"name", "object", "place"}
MODELS: dict[str, tuple[type, set[str]]] = {  # what is loaded, and what its card scores
    "bert-mini": (heads.Pretraining, {*COPY, "loss"}),
    "gpt-mini": (heads.LM, {*COPY, "loss"}),
    "gpt-nano": (heads.LM, {*COPY, "loss"}),
    "gpt-tiny": (heads.LM, {*COPY, "loss"}),
    "gpt-small": (heads.LM, {*COPY, "loss"}),
    "elmo-mini": (elmo.BiLM, {*COPY, "loss"}),
    "roberta-mini": (heads.MLM, {*COPY, "loss"}),
    "electra-mini": (heads.RTD, {"detection", "generator", "loss"}),
    "t5-mini": (Seq2SeqLM, {*COPY, "loss", "tokens"}),
    "bart-mini": (Seq2SeqLM, {*COPY, "loss", "tokens"}),
    "distilbert-mini": (heads.MLM, {*COPY, "loss"}),
    "sbert-mini": (Sentence, {"similarity", "similarity test"}),
    "word2vec-mini": (static.WordVectors, {"analogies", "choice", "similarity"}),
    "glove-mini": (static.WordVectors, {"analogies", "choice", "similarity"}),
}


PARENTS = dict.fromkeys(MODELS, "") | {
    "bert-mini": "gpt-mini", "roberta-mini": "gpt-mini", "distilbert-mini": "bert-mini", "sbert-mini": "bert-mini",
    "bart-mini": "gpt-mini",
}  # fmt: skip


def small(recipe: Any) -> Any:
    """The recipe in a few seconds' size."""
    if isinstance(recipe, Recipe):
        layers = min(recipe.layers, 2) if not recipe.teacher else 1
        size = {"layers": layers, "width": 16, "heads": 2, "vocab": 700, "pool": 2, "primer": (0, 0)}
        size["causal"] = min(recipe.causal, 2)
        return replace(recipe, **TINY, **size)
    if isinstance(recipe, ElmoRecipe):
        return replace(recipe, **TINY, vocab=300, width=8, hidden=12, pool=2)
    if isinstance(recipe, SentenceRecipe):
        return replace(recipe, **TINY, inference=3, pairs=8)
    return replace(recipe, documents=150, size=8, least=1, epochs=1)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "TOKENIZER_DOCUMENTS", 60)
    monkeypatch.setattr(base, "BLANKS", 4)
    monkeypatch.setattr(base, "LOG", 2)
    monkeypatch.setattr(recipes.sentences, "ASKED", 20)
    monkeypatch.setattr(recipes, "RECIPES", {name: small(recipe) for name, recipe in recipes.RECIPES.items()})


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small gpt-mini and the bert-mini that starts from it, for the recipes that start from these."""
    place = tmp_path_factory.mktemp("parents")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "TOKENIZER_DOCUMENTS", 60)
        patch.setattr(base, "BLANKS", 4)
        for name, recipe in {"gpt-mini": recipes.GPT, "bert-mini": recipes.BERT}.items():
            list(recipes.Run(name, small(recipe), place / name, place / "done").build(place / "done"))
    return place / "done"


def starting(place: Path, parents: Path) -> Path:
    """A folder of checkpoints that holds the parent."""
    import shutil

    shutil.copytree(parents, place)
    return place


def test_there_is_a_test_of_every_recipe() -> None:
    assert set(MODELS) == set(recipes.RECIPES)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("bert-mini", "gpt-tiny", "gpt-small")])
def test_it_is_built_stopped_resumed_and_loaded(name: str, tmp_path: Path, parents: Path) -> None:
    recipe, done = recipes.RECIPES[name], {}
    for way, stops in (("whole", []), ("stopped", [STEPS])):
        done[way] = starting(tmp_path / way, parents)
        for stop in [*stops, None]:
            for point in recipes.build(name, work=tmp_path / f"work-{way}", to=done[way]):
                if point.step == stop:
                    break
    both = [(done[way] / name / "model.safetensors").read_bytes() for way in ("whole", "stopped")]
    assert both[0] == both[1]

    kind, scored = MODELS[name]
    model, known, card = zoo.load(name, folder=done["whole"])
    assert type(model) is kind
    assert set(card["scores"]) == scored and all(torch.tensor(v).isfinite() for v in card["scores"].values())
    assert card["name"] == name and card["seed"] == 0 and card["recipe"]["world"] == 0
    assert card["tokens"] > 0 and card["curve"][-1]["step"] == card["steps"]
    assert {"data", "seconds", "torch", "python", "hardware", "made"} <= card.keys()
    assert set(card.get("from", {})) == {PARENTS[name]} - {""}
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
        assert torch.equal(model.stack.decoder.embed.tokens.weight, model.stack.encoder.embed.tokens.weight)
        assert model(ids, ids).shape == (1, ids.shape[1], known.vocab.size)
        assert model.stack.start == (known.vocab.pad if name == "t5-mini" else known.vocab.sep)
    elif isinstance(model, Sentence):
        vectors = SentenceEncoder(model, known).embed(["anna saw the judge .", "the judge"])
        assert vectors.shape == (2, 16)
    else:
        assert model(ids).shape[:2] == ids.shape


def test_both_sides_of_bart_begin_as_the_parent(tmp_path: Path, parents: Path) -> None:
    model = recipes.Run("bart-mini", recipes.RECIPES["bart-mini"], tmp_path, parents).model()
    parent = dict(zoo.load("gpt-mini", folder=parents).model.stack.blocks.named_parameters())
    assert isinstance(model, Seq2SeqLM)
    for side in (model.stack.encoder, model.stack.decoder):
        own = dict(side.blocks.named_parameters())
        assert all(torch.equal(own[name], weight) for name, weight in parent.items())


def test_one_tokenizer_for_the_masked_models_and_their_kin_and_one_for_the_gpts(tmp_path: Path) -> None:
    texts: dict[str, str] = {}
    for name, recipe in recipes.RECIPES.items():
        if name in ("bert-mini", "electra-mini", "bart-mini", "distilbert-mini", "gpt-mini", "gpt-nano"):
            run = recipes.Run(name, recipe, tmp_path / name)
            texts[name] = run.tokenizer.backend.to_str()
    gpts = {text for name, text in texts.items() if name.startswith("gpt")}
    others = {text for name, text in texts.items() if not name.startswith("gpt")}
    assert len(gpts) == len(others) == 1 and gpts != others
    t5 = recipes.Run("t5-mini", recipes.RECIPES["t5-mini"], tmp_path / "t5").tokenizer
    bert = recipes.Run("bert-mini", recipes.RECIPES["bert-mini"], tmp_path / "bert-mini").tokenizer
    assert t5.tokens(range(t5.vocab.size))[: bert.vocab.size] == bert.tokens(range(bert.vocab.size))


def test_electra_ships_both_models(tmp_path: Path) -> None:
    list(recipes.build("electra-mini", work=tmp_path / "work", to=tmp_path / "done"))
    small_one, _, card = zoo.load("electra-mini-generator", folder=tmp_path / "done")
    model = zoo.load("electra-mini", folder=tmp_path / "done").model
    assert isinstance(small_one, heads.MLM) and card["name"] == "electra-mini-generator"
    assert small_one.stack.config.width < model.stack.config.width
    assert torch.equal(small_one.stack.embed.tokens.weight, model.stack.embed.tokens.weight)


def test_a_student_learns_nothing_before_its_teacher_is_there(tmp_path: Path) -> None:
    for name, parent in PARENTS.items():
        if parent:
            with pytest.raises(CourseError, match=f"starts from {parent}; build that first"):
                recipes.build(name, work=tmp_path / "work", to=tmp_path / "done")


def test_a_run_does_not_go_on_from_another_teacher(tmp_path: Path, parents: Path) -> None:
    folder = starting(tmp_path / "done", parents)
    next(recipes.build("distilbert-mini", work=tmp_path / "work", to=folder))
    loaded = zoo.load("bert-mini", folder=folder)
    with torch.no_grad():
        loaded.model.stack.embed.tokens.weight.add_(1.0)
    zoo.export("bert-mini", loaded.model, loaded.tokenizer, loaded.card, folder)
    with pytest.raises(CourseError, match="holds a run with from = "):
        recipes.build("distilbert-mini", work=tmp_path / "work", to=folder)


def test_full_sentences_pack_every_sentence_once(tmp_path: Path) -> None:
    """Rows are full; a batch of packed rows reads as many documents as one of single ones."""
    recipe = replace(recipes.RECIPES["roberta-mini"], rows=6, pool=4, length=60, causal=0)
    run = recipes.Run("roberta-mini", recipe, tmp_path)
    batches, vocab = run.batches(), run.tokenizer.vocab
    packed = [batches[step] for step in range(4)]
    rows = [torch.where(b["at"], b["labels"], b["ids"])[r][b["keep"][r]] for b in packed for r in range(len(b["ids"]))]
    assert all(row[0] == vocab.cls and row[-1] == vocab.sep and len(row) <= 60 for row in rows)
    assert sum(len(row) > 40 for row in rows) > 0.8 * len(rows)
    read = sorted(t for row in rows for t in row.tolist() if t not in (vocab.cls, vocab.sep))
    lessons = run.lessons()
    said = run.tokenizer.ids([sentence for i in range(24) for sentence in lessons(i)], special=False)
    assert read == sorted(t for ids in said for t in ids)
    assert not {"next", "segments"} & packed[0].keys()


class Restorer(nn.Module):
    """Says `answer` wherever it is asked, and keeps what it was given."""

    def __init__(self, answer: list[int], size: int) -> None:
        super().__init__()
        self.stack, self.answer, self.size = SimpleNamespace(start=2), answer, size
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, ids: Tensor, decoder_ids: Tensor, *, keep: Tensor, at: Tensor) -> Tensor:
        self.seen = ids, decoder_ids
        said = torch.tensor(self.answer * len(ids))
        return nn.functional.one_hot(said, self.size).float()


@pytest.mark.parametrize("marked", [False, True], ids=["bart", "t5"])
def test_an_encoder_decoder_is_asked_for_a_word_by_one_sign(marked: bool) -> None:
    plain = train_wordpiece(["anna sold the sled to ivor ."] * 9 + ["b o"], 40)
    words = corrupt.add_sentinels(plain, 3) if marked else plain
    signs = corrupt.sentinels(words) if marked else ()
    blank = probes.Blank("anna sold the sled . ", "bob", " sold the sled .")
    pieces = words.ids(["bob"], special=False)[0]
    assert len(pieces) > 1
    right = Restorer(pieces, words.vocab.size)
    assert probes.restore_accuracy(right, words, [blank, blank], sentinels=signs) == 1  # type: ignore[arg-type]
    read, fed = (ids[0].tolist() for ids in right.seen)
    sign = signs[0] if marked else words.vocab.mask
    assert read.count(sign) == 1 and not set(pieces[1:]) & set(read)
    assert fed[0] == 2 and [i for i in fed if i in pieces] == pieces[: len(fed)]
    assert fed[1] == (sign if marked else words.vocab.cls)
    wrong = Restorer([*pieces[:-1], words.vocab.sep or 0], words.vocab.size)
    assert probes.restore_accuracy(wrong, words, [blank], sentinels=signs) == 0  # type: ignore[arg-type]


def test_detection_counts_real_tokens_only() -> None:
    """A discriminator that calls everything replaced: F1 = 2 p / (1 + p), p the share that is."""

    class Both(nn.Module):
        def forward(self, ids: Tensor, *, labels: Tensor, at: Tensor, keep: Tensor) -> Judged:
            guesses = nn.functional.one_hot(labels[at], 9).float()
            return Judged(guesses, ids, at & keep, torch.ones(ids.shape))

        parameters = lambda self: iter([torch.zeros(1)])  # noqa: E731

    ids, keep = torch.full((2, 5), 7), torch.tensor([[True] * 4 + [False]] * 2)
    at = torch.zeros(2, 5, dtype=torch.bool)
    at[:, 1:3] = True
    found = probes.detection(Both(), [{"ids": ids, "labels": ids, "at": at, "keep": keep}])  # type: ignore[arg-type]
    assert found == {"detection": pytest.approx(2 / 3), "generator": 1.0}


@pytest.mark.parametrize("name", ["roberta-mini", "electra-mini", "bart-mini", "t5-mini"])
def test_primer_pages_are_asked_as_the_objective_asks(name: str, tmp_path: Path) -> None:
    """Masked models: what is known by then, whole pages, [MASK] alone; encoder-decoders as ever."""
    run = recipes.Run(name, replace(recipes.RECIPES[name], primer=(2, 2), causal=0, vocab=2000), tmp_path)
    batches, vocab = run.batches(), run.tokenizer.vocab
    page, later = batches[0], batches[4]
    assert page.keys() == later.keys()
    if "at" in page:
        assert page["at"].any() and (page["ids"][page["at"]] == vocab.mask).all()
        asked = set(page["labels"][page["at"]].tolist())
        assert asked <= set(batches.names)
        firsts = [int(row.nonzero()[0]) for row in page["at"] if row.any()]
        assert min(firsts) > 4, "nothing is known before it was said"


def test_the_sentence_encoder_learns_inference_first_then_grades(tmp_path: Path, parents: Path) -> None:
    run = recipes.SentenceRun("sbert-mini", recipes.RECIPES["sbert-mini"], tmp_path, parents)
    batches = run.batches()
    kinds = [batches[step]["labels"].is_floating_point() for step in range(6)]
    assert kinds == [False] * 3 + [True] * 3
    assert 0 <= float(batches[4]["labels"].min()) <= float(batches[4]["labels"].max()) <= 1
