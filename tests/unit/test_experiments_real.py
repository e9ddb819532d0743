"""The experiment on real text: its figures are counted as they say, and the whole path runs in miniature."""

import math
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from course_lib import heads
from course_lib.experiments import real
from course_lib.files import read_json
from course_lib.models.gpt import gpt
from course_lib.stack import Stack
from course_lib.tokenizers import train_bpe

TEXT = "The sea is wide .\n\n = Ships = \n\n A ship sails the wide sea , and the sea is deep .\n" * 6


def test_likelihood_counts_every_token_once() -> None:
    tokenizer = train_bpe([TEXT], 300)
    torch.manual_seed(0)
    model = heads.LM(Stack(gpt(300, width=16, layers=1, heads=2, length=12, dropout=0.0))).eval()
    ids = [tokenizer.vocab.bos, *tokenizer.encode(TEXT).ids]
    total = 0.0  # the same, one token at a time
    for i in range(1, len(ids)):
        start = 0 if i <= 12 else 6 * math.ceil((i - 12) / 6)
        with torch.no_grad():
            logits = model(torch.tensor([ids[start:i]]))[0, -1]
        total -= logits.log_softmax(-1)[ids[i]].item()
    got = real.likelihood(model, tokenizer, TEXT, 12, rows=4)
    assert got["tokens"] == len(ids) - 1
    assert got["bytes"] == len(TEXT.encode())
    assert got["words"] == 6 * (5 + 1 + 1 + 3 + 1 + 1 + 13 + 1)  # each line's end is a word
    assert got["perplexity_per_token"] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-4)
    assert got["perplexity_per_word"] == pytest.approx(math.exp(total / got["words"]), rel=1e-4)
    assert got["bits_per_byte"] == pytest.approx(total / math.log(2) / got["bytes"], rel=1e-4)


def test_interval_is_students() -> None:
    got = real.interval([0.8, 0.9, 1.0])
    assert got["mean"] == pytest.approx(0.9)
    assert got["interval95"] == pytest.approx([0.9 - 4.3027 * 0.1 / 3**0.5, 0.9 + 4.3027 * 0.1 / 3**0.5], abs=1e-4)
    assert real.interval([0.5])["interval95"] is None


def test_the_whole_path_in_miniature(tmp_path: Path) -> None:
    book, table = tmp_path / "book.txt", tmp_path / "sst2"
    book.write_text(TEXT * 10)
    table.mkdir()
    for name in ("train", "dev"):
        (table / f"{name}.tsv").write_text("a fine film\t1\na bad film\t0\nfine and wide\t1\nbad and deep\t0\n" * 4)
    folders = ["--work", str(tmp_path / "work"), "--out", str(tmp_path / "out")]
    sizes = {"docs": 0, "tokens": 64, "length": 16, "width": 32, "layers": 1, "vocab": 300}
    small = [word for name, value in sizes.items() for word in (f"--{name}", str(value))] + ["--precision", "fp32"]
    runs = [
        ["pretrain", "bert", "--text", str(book), "--steps", "3", *small],
        ["pretrain", "gpt", "--text", str(book), "--steps", "3", *small],
        ["pretrain", "gpt", "--text", str(book), "--steps", "5", *small],  # goes on
        ["finetune", f"sst2={table}", "--seeds", "2", "--epochs", "1", "--precision", "fp32"],
        ["score", str(book), "--name", "book"],
    ]
    for arguments in runs:
        result = CliRunner().invoke(real.app, [*arguments, *folders], catch_exceptions=False)
        assert result.exit_code == 0, result.output
    curve = read_json(tmp_path / "out" / "real_pretrain_gpt.json")["curve"]
    assert [point["step"] for point in curve] == [3, 5]
    figures = read_json(tmp_path / "out" / "real_sst2.json")["figures"]
    assert len(figures["pretrained"]["values"]) == len(figures["from_scratch"]["values"]) == 2
    assert figures["tfidf"]["mean"] == 1.0
    record = read_json(tmp_path / "out" / "real_book.json")
    assert record["figures"]["bytes"] == len(book.read_bytes()) and len(record["samples"]) == len(real.PROMPTS)
    assert str(tmp_path) not in (tmp_path / "out" / "real_sst2.json").read_text()

    other = CliRunner().invoke(real.app, ["pretrain", "gpt", "--text", str(table / "dev.tsv"), *small, *folders])
    assert "holds a run on other text" in str(other.exception)
