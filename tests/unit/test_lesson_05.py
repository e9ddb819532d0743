"""Lesson 05: wrong answers are named, the hand-built tokenizers are the library's, what it calls exact is exact."""

import json
import math
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from course_lib import check, data, hub
from course_lib.files import read_json
from course_lib.tokenizers import Tokenizer, train_bpe, train_wordpiece
from tools.notebooks import lessons
from tools.notebooks.build import read

ROOT = Path(__file__).resolve().parents[2]
END = "·"


def _counts(words: Any, weight: Callable[[int], int] = lambda n: n) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for symbols, n in words.items():
        for pair in pairwise(symbols):
            counts[pair] += weight(n)
    return counts


def _across(words: Any) -> Counter[tuple[str, str]]:
    return Counter(pairwise([symbol for symbols, n in words.items() for _ in range(n) for symbol in symbols]))


def _best(words: Any, rank: Any) -> Any:
    counts = _counts(words)
    return min(counts, key=lambda p: (-counts[p], rank[p[0]], rank[p[1]]))


def _merge(symbols: Any, pair: Any) -> Any:
    out, i = [], 0
    while i < len(symbols):
        here = tuple(symbols[i : i + 2]) == tuple(pair)
        out.append("".join(pair) if here else symbols[i])
        i += 2 if here else 1
    return tuple(out)


def _encode(word: str, merges: Any, end: str = END) -> list[str]:
    symbols: Any = (*word, *end)
    for pair in merges:
        symbols = _merge(symbols, pair)
    return list(symbols)


def _greedy(word: str, merges: Any) -> list[str]:
    known, text, out = {a + b for a, b in merges}, word + END, []
    while text:
        n = next((n for n in range(len(text), 1, -1) if text[:n] in known), 1)
        out.append(text[:n])
        text = text[n:]
    return out


def _wordpiece(word: str, vocab: set[str], mark: str = "##", step: int = -1, whole: bool = True) -> list[str]:
    pieces: list[str] = []
    start = 0
    while start < len(word):
        for end in range(start + 1, len(word) + 1)[::step]:
            piece = (mark if start else "") + word[start:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"] if whole else [*pieces, "[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


def _split(word: str, log_p: dict[str, float], value: Callable[[float], float] = float) -> list[str]:
    best: list[tuple[float, list[str]]] = [(0.0, [])]
    for end in range(1, len(word) + 1):
        options: list[tuple[float, list[str]]] = [(-math.inf, [])]
        for start in range(end):
            piece = word[start:end]
            if piece in log_p:
                options.append((best[start][0] + value(log_p[piece]), [*best[start][1], piece]))
        best.append(max(options))
    return best[-1][1]


def _longest_piece(word: str, log_p: dict[str, float]) -> list[str]:
    out = []
    while word:
        n = next(n for n in range(len(word), 0, -1) if word[:n] in log_p)
        out.append(word[:n])
        word = word[n:]
    return out


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("best_pair", _best),
    ("merge_pair", _merge),
    ("bpe_encode", _encode),
    ("wordpiece_encode", _wordpiece),
    ("best_split", _split),
    ("bits_per_byte", lambda loss, tokens, text: loss * tokens / math.log(2) / len(text.encode())),
]

WRONG: list[tuple[str, Callable[..., Any], str]] = [
    ("best_pair", lambda w, r: min(c := _counts(w, lambda n: 1), key=lambda p: (-c[p], r[p[0]], r[p[1]])), "add `n`"),
    ("best_pair", lambda w, r: _counts(w).most_common(1)[0][0], "met first"),
    ("best_pair", lambda w, r: max(c := _counts(w), key=lambda p: (c[p], p)), "last in the alphabet"),
    ("best_pair", lambda w, r: min(c := _counts(w), key=lambda p: (-c[p], p)), "first in the alphabet"),
    ("best_pair", lambda w, r: max(c := _counts(w), key=lambda p: (c[p], r[p[0]], r[p[1]])), "highest rank"),
    ("best_pair", lambda w, r: min(c := _across(w), key=lambda p: (-c[p], r[p[0]], r[p[1]])), "across words"),
    ("best_pair", lambda w, r: "".join(_best(w, r)), "return the pair"),
    ("merge_pair", lambda s, p: tuple(" ".join(s).replace(" ".join(p), "".join(p)).split()), "text instead of symbols"),
    ("merge_pair", lambda s, p: tuple(
        "".join(p) if tuple(s[i : i + 2]) == p else s[i] for i in range(len(s))), "stays behind"),
    ("merge_pair", lambda s, p: tuple(s), "Nothing is merged"),
    ("merge_pair", lambda s, p: "".join(_merge(s, p)), "one string"),
    ("bpe_encode", lambda w, m: _encode(w, m, ""), "end mark is missing"),
    ("bpe_encode", lambda w, m: _encode(END + w, m, ""), "in front"),
    ("bpe_encode", _greedy, "longest piece"),
    ("bpe_encode", lambda w, m: _encode(w, m[::-1]), "opposite order"),
    ("wordpiece_encode", lambda w, v: _wordpiece(w, v, mark=""), "##able"),
    ("wordpiece_encode", lambda w, v: _wordpiece(w, v, step=1), "shortest"),
    ("wordpiece_encode", lambda w, v: _wordpiece(w, v, whole=False), "whole word"),
    ("wordpiece_encode", lambda w, v: [p.removeprefix("##") for p in _wordpiece(w, v)], "returned without"),
    ("best_split", _longest_piece, "longest piece from the left"),
    ("best_split", lambda w, p: _split(w, p, math.exp), "logarithms add up"),
    ("best_split", lambda w, p: _split(w, p, lambda x: -1.0), "fewest pieces"),
    ("best_split", lambda w, p: list(w), "letters"),
    ("bits_per_byte", lambda loss, n, text: loss * n / math.log(2) / len(text), "characters"),
    ("bits_per_byte", lambda loss, n, text: loss * n / len(text.encode()), "nats"),
    ("bits_per_byte", lambda loss, n, text: loss / math.log(2), "bits per token"),
    ("bits_per_byte", lambda loss, n, text: loss / math.log(2) / len(text.encode()), "number of tokens"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=[name for name, _ in RIGHT])
def test_the_right_answer_passes(name: str, answer: Callable[..., Any]) -> None:
    verdict = getattr(check, name)(answer)
    assert verdict.passed, verdict.message


@pytest.mark.parametrize(("name", "answer", "says"), WRONG)
def test_a_wrong_answer_is_named(name: str, answer: Callable[..., Any], says: str) -> None:
    verdict = getattr(check, name)(answer)
    assert not verdict.passed
    assert says in verdict.message


def test_the_folded_answers_pass() -> None:
    """Every answer of the notebook, executed as it stands there."""
    notebook = read(next(path for path in lessons() if path.stem == "05_tokenization"))
    names = [name for name, _ in RIGHT]
    space: dict[str, Any] = {"Counter": Counter, "pairwise": pairwise, "math": math}
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and "<summary>Answer" in cell.source:
            exec(cell.source.split("```python\n")[1].split("```")[0], space)
    assert all(getattr(check, name)(space[name]).passed for name in names)


def test_merges_by_hand_are_the_librarys_ties_included() -> None:
    counts = {"bake·": 6, "baker·": 5, "bakes·": 3, "baking·": 8, "make·": 9, "maker·": 2, "waking·": 4, "taken·": 4}
    words: Any = {tuple(word): n for word, n in counts.items()}
    rank = {letter: i for i, letter in enumerate(sorted(set("".join(counts))))}
    merges, letters = [], len(rank)
    for _ in range(12):
        merges.append(_best(words, rank))
        rank.setdefault("".join(merges[-1]), len(rank))
        words = {_merge(symbols, merges[-1]): n for symbols, n in words.items()}
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    text = [" ".join(word for word, n in counts.items() for _ in range(n))]
    library.train_from_iterator(text, trainers.BpeTrainer(vocab_size=letters + 12, show_progress=False))
    assert [tuple(pair) for pair in json.loads(library.to_str())["model"]["merges"]] == merges
    assert library.encode("shaken·").tokens == [p for p in _encode("shaken", merges) if p != "h"]  # it drops the h


def test_bytes_need_no_unknown_token_whatever_the_number_of_merges() -> None:
    texts = ["The cat sat on the mat, and the other cat sat beside it."] * 4
    points = [chr(p) for p in range(0, 0x110000, 37) if not 0xD800 <= p < 0xE000]
    strings = ["".join(points[i : i + 50]) for i in range(0, len(points), 50)]
    for size in (258, 300):
        bpe = train_bpe(texts, size)
        assert bpe.vocab.unk is None
        assert all(bpe.decode(ids) == text for ids, text in zip(bpe.ids(strings), strings, strict=True))
    wordpiece = train_wordpiece(texts, 60)
    assert not any(wordpiece.decode(wordpiece.encode(text).ids) == text for text in strings)


def test_a_text_that_spells_a_special_token_is_taken_for_it() -> None:
    bpe = train_bpe(["a cat"], 258)
    assert bpe.encode("<|endoftext|>").ids == [1]
    assert (bpe.decode([1]), bpe.decode([1], special=True)) == ("", "<|endoftext|>")


def test_gpt2s_two_files_give_the_same_tokenizer(tmp_path: Path) -> None:
    """The hub's path of the lesson, on a local folder in the hub's layout."""
    bpe = train_bpe(["the cat sat on the mat"] * 3, 280)
    bpe.backend.model.save(str(tmp_path))
    again = Tokenizer.load(hub.pretrained(f"hub:{tmp_path}"))
    assert again.encode("the cat naps 🙂").ids == bpe.encode("the cat naps 🙂").ids


def test_another_text_comes_through_the_same_door(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("One line of text.\n\nAnother one, naïve 🙂.\n", encoding="utf-8")
    texts = data.corpus(str(tmp_path), n=1500)["text"]
    assert "🙂" in " ".join(texts)


def test_the_papers_figures_add_up() -> None:
    sizes = read_json(ROOT / "data" / "papers" / "05_tokenization.json")["bytes-bpe"]
    assert sizes["GPT-2"]["bytes"] + sizes["GPT-2"]["merges"] + 1 == sizes["GPT-2"]["vocabulary"]
    more = sizes["RoBERTa"]["vocabulary"] - sizes["BERT"]["vocabulary"]
    for size, width in sizes["width"].items():
        assert round(more * width / 1e6) == sizes["more parameters (M)"][size]
