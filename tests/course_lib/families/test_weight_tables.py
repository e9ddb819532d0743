"""Tables of weights: what their signs mean, and that nothing is forgotten."""

import pytest
import torch

from course_lib.errors import CourseError
from course_lib.families.bert import bert
from course_lib.families.weight_tables import Converted, Table, convert, convert_back, written_out
from course_lib.model.seq2seq import Hidden
from course_lib.model.transformer import Transformer

TWO_LAYERS = Hidden(Transformer(bert(10, width=4, layers=2, heads=2, length=3)))
TABLE: Table = {
    "layer.{layer}.dense.*": "blocks.{layer}.out.*",
    "qkv": Converted(("q", "k", "v"), to_ours=torch.neg, to_public=torch.neg),
    "old.name": "word",
    "new.name": "word",
    "ids": None,
}


def weights() -> dict[str, torch.Tensor]:
    """Under public names, all different."""
    names = [f"layer.{i}.dense.{end}" for i in (0, 1) for end in ("weight", "bias")]
    file = {name: torch.full((2,), float(i)) for i, name in enumerate(names)}
    return file | {"qkv": torch.arange(1.0, 7.0), "old.name": torch.ones(1), "ids": torch.zeros(1)}


def test_layers_and_endings_are_written_out() -> None:
    rows = written_out(TABLE, TWO_LAYERS)
    assert rows["layer.1.dense.bias"].ours == ("blocks.1.out.bias",)
    assert sum(public.startswith("layer.") for public in rows) == 4
    assert rows["ids"].ours == ()


def test_there_and_back() -> None:
    ours = convert(weights(), TABLE, TWO_LAYERS)
    assert ours["k"].tolist() == [-3.0, -4.0] and "ids" not in ours
    public = convert_back(ours, TABLE, TWO_LAYERS)
    expected = weights()
    del expected["ids"]
    assert public.keys() == expected.keys(), "of two public names the first is written"
    assert all(torch.equal(public[name], tensor) for name, tensor in expected.items())


def test_nothing_is_forgotten_on_either_side() -> None:
    more = weights() | {"layer.2.dense.weight": torch.zeros(2)}
    with pytest.raises(CourseError, match=r"holds layer\.2\.dense\.weight"):
        convert(more, TABLE, TWO_LAYERS)
    fewer = weights()
    del fewer["old.name"]
    with pytest.raises(CourseError, match=r"lacks 1 weights .* old\.name"):
        convert(fewer, TABLE, TWO_LAYERS)
    ours = convert(weights(), TABLE, TWO_LAYERS)
    with pytest.raises(CourseError, match="where extra goes"):
        convert_back(ours | {"extra": torch.zeros(1)}, TABLE, TWO_LAYERS)
    del ours["q"]
    with pytest.raises(CourseError, match="no weight q"):
        convert_back(ours, TABLE, TWO_LAYERS)
