"""A lesson's parameters: each wrong one gives one sentence that begins with its name; right ones
seed and pick.
"""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from classroom import lesson
from course_lib import CourseError, zoo


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale": "huge"}, "SCALE is 'huge'; it must be one of smoke, lesson, cpu, gpu."),
        ({"seed": -1}, "SEED is -1"),
        ({"seed": 2**32}, "SEED is 4294967296"),
        ({"seed": True}, "SEED is True"),
        ({"device": "tpu"}, "DEVICE is 'tpu'"),
        ({"data": ""}, "DATA is ''"),
        ({"data": "hub:"}, "DATA is 'hub:'"),
        ({"data": "/no/such/folder"}, "DATA is '/no/such/folder', which is neither"),
        ({"out": 3}, "OUT is 3"),
        ({"out": __file__}, "which is a file"),
    ],
)
def test_a_wrong_parameter_is_one_sentence(change: dict[str, object], words: str) -> None:
    with pytest.raises(CourseError) as caught:
        lesson.start(**change)  # type: ignore[arg-type]
    assert words in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_gpu_is_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(CourseError, match=r'^SCALE is "gpu" but PyTorch sees no GPU'):
        lesson.start("gpu")
    with pytest.raises(CourseError, match=r"^DEVICE is 'cuda' but PyTorch sees 0 GPUs"):
        lesson.start(device="cuda")
    assert lesson.start("gpu", device="cpu").device == torch.device("cpu")


def test_pick_falls_back_to_the_next_smaller_scale() -> None:
    runs = [lesson.start(scale, device="cpu") for scale in lesson.SCALES]
    assert [run.pick(smoke=1, lesson=2, cpu=3, gpu=4) for run in runs] == [1, 2, 3, 4]
    assert [run.pick(smoke=1, lesson=2) for run in runs] == [1, 2, 2, 2]
    assert [run.pick(smoke=1, lesson=0, cpu=3) for run in runs] == [1, 0, 3, 3]


def test_seeds_everything() -> None:
    def draws(seed: int) -> tuple[float, float, float]:
        lesson.start("smoke", seed)
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    first = draws(7)
    assert draws(7) == first and all(a != b for a, b in zip(draws(8), first, strict=True))
    run = lesson.start("smoke", 3)
    a, b, c = (
        torch.rand(4, generator=g) for g in (run.generator(), run.generator(), run.generator(1))
    )
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_paths_lie_in_the_out_folder_and_data_may_be_a_path_or_the_hub(tmp_path: Path) -> None:
    run = lesson.start(out=str(tmp_path / "a b"))
    path = run.path("sub/model.safetensors")
    assert path == tmp_path / "a b" / "sub" / "model.safetensors" and path.parent.is_dir()
    assert lesson.start().out.parts[-2:] == ("build", "out")
    for data in ("world", "docs", "hub:imdb", str(tmp_path)):
        assert lesson.start(data=data).data == data


def test_threads_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    lesson.start()
    assert asked == []
    monkeypatch.delenv("OMP_NUM_THREADS")
    lesson.start()
    assert 1 <= asked[0] <= 4


@pytest.mark.parametrize("name", ["sbert-mini", "bert-mini", "sbert-english"])
def test_an_encoder_of_sentences_by_its_name(name: str) -> None:
    encoder = lesson.sentence_encoder(name)
    alone = encoder.embed(["The cat sleeps."])
    beside = encoder.embed(["The cat sleeps.", "Nobody knows where the other cat has gone today."])
    torch.testing.assert_close(alone[0], beside[0], atol=1e-5, rtol=0)  # padding is not counted


def test_sentence_transformers_opens_the_folder_of_an_adapter(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["The cat sleeps.", "Nobody knows where the other cat has gone today."]
    folder = lesson.sentence_folder("sbert-english", tmp_path / "encoder")
    theirs = SentenceTransformer(str(folder), device="cpu").encode(texts, convert_to_tensor=True)
    ours = lesson.sentence_encoder("sbert-english").embed(texts)
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=0)


def test_the_likeliest_tokens_come_first():
    tokenizer = zoo.load("bert-english").tokenizer
    shares = torch.zeros(tokenizer.vocab.size)
    shares[tokenizer.encode("key door", special=False).ids] = torch.tensor([0.6, 0.3])
    (first, high), (second, low) = lesson.likeliest(shares, tokenizer, 2)
    assert (first, second) == ("key", "door")
    assert (high, low) == pytest.approx((0.6, 0.3))


def test_an_adapter_marks_the_words_of_a_sentence() -> None:
    boxes = lesson.marked(lesson.adapted("pos-english"), "The old man sat down, slowly.")
    assert boxes[2][0] == "man/NOUN" and [text for text, _ in boxes][-1] == "./PUNCT"
    tints = {text.rpartition("/")[2]: tint for text, tint in boxes}
    assert tints["NOUN"] != tints["VERB"]


def test_what_an_encoder_decoder_writes_is_tidy_and_has_its_sentinels():
    assert lesson.tidy("don ' t : a well - known rule ; ask") == "don't: a well-known rule; ask"
    assert lesson.tidy("the boys ' house") == "the boys ' house"  # whose quote is it?
    model, tokenizer, _ = zoo.load("t5-english")
    said = lesson.written(model, tokenizer, ["He waited <extra_id_0> two hours."], longest=8)
    assert said[0].startswith("<extra_id_0>") and "[SEP]" not in said[0]


def test_answers_computed_in_batches_of_similar_length_come_in_the_rows_order():
    rows = [{"text": "x" * n} for n in (5, 1, 4, 2, 3)]
    widths = []

    def answer(some):
        widths.append([len(row["text"]) for row in some])
        return [len(row["text"]) for row in some]

    assert lesson.in_batches(rows, answer, size=2) == [5, 1, 4, 2, 3]
    assert widths == [[1, 2], [3, 4], [5]]
