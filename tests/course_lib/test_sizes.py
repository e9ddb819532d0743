"""Sizes that no machine has are one sentence, before any memory is asked for."""

import pytest

from course_lib.data.tokenizers import train_bpe, train_wordpiece
from course_lib.errors import CourseError
from course_lib.training import pretraining
from course_lib.training.pretrain_config import PretrainConfig
from course_lib.training.sizes import family_and_size, model_shape

BOOK = "The cat sat near the door. The dog ran to the old house. " * 200


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ({"--width": 10**7, "--heads": 2}, "GB are free"),
        ({"--length": 10**14}, "GB are free"),
        ({"--layers": 10**8}, "--layers"),
        ({"--vocab": 10**9}, "at most 2,000,000"),
        ({"--threads": 10**5}, "--threads 100000 is too much"),
        ({"--held-out": 10**20}, "--held-out"),
    ],
)
def test_a_size_that_cannot_fit_is_refused(call, tmp_path, size, says):
    (tmp_path / "book.txt").write_text(BOOK)
    words = [str(word) for pair in size.items() for word in pair]
    out = tmp_path / "out"
    code, _, err = call(
        "pretrain", "gpt", "--data", tmp_path / "book.txt", "--out", out, "--steps", "1", *words
    )
    assert code != 0 and says in " ".join(err.split()), err
    assert not list(out.rglob("*.safetensors"))


@pytest.mark.parametrize("learn", [train_bpe, train_wordpiece])
def test_a_vocabulary_that_cannot_be_learned(learn):
    with pytest.raises(CourseError, match="at most 2,000,000"):
        learn([BOOK], 10**9)


def test_the_vocabulary_counts_when_it_is_known(tmp_path, monkeypatch):
    """A model that would fit with few tokens, and does not fit with those that were learned."""
    (tmp_path / "book.txt").write_text(BOOK)
    config = PretrainConfig(
        model="gpt", data=str(tmp_path / "book.txt"), out=tmp_path / "out", layers=1, steps=1
    )
    family, _ = family_and_size(config.model)
    stack = family.config(pretraining.SMALLEST_VOCAB, **model_shape(config))
    least = 16 * pretraining.cost.parameters(lambda: family.model(stack, 0))
    monkeypatch.setattr(pretraining, "free_bytes", lambda: least)
    with pytest.raises(CourseError, match="GB are free"):
        pretraining.pretrain(config)
    assert (tmp_path / "out" / "tokenizer.json").exists()  # the first check let it pass
    monkeypatch.setattr(pretraining, "free_bytes", lambda: least - 1)
    with pytest.raises(CourseError, match="GB are free"):
        pretraining.pretrain(config.__class__(**{**vars(config), "out": tmp_path / "other"}))
    assert not (tmp_path / "other" / "tokenizer.json").exists()
