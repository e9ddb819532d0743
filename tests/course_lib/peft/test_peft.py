"""LoRA, adapters, BitFit: where they stand, what they train, what they cost, what they leave
alone.
"""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from course_lib import peft, zoo
from course_lib.data.tokenizers import train_wordpiece
from course_lib.errors import CourseError
from course_lib.families import preset
from course_lib.families.bart import bart, bart_lm
from course_lib.families.bert import bert
from course_lib.families.gpt import gpt
from course_lib.families.sentence import Sentence
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from course_lib.training import optim
from course_lib.training.finetune import FinetuneConfig, finetune
from course_lib.training.loop import TrainConfig, train
from tests.course_lib.model.test_stack import shaken

METHODS = {
    "lora": partial(peft.lora, rank=2),
    "lora on every linear": partial(peft.lora, pattern="blocks.*.*.*", rank=3, alpha=7),
    "dora": partial(peft.dora, rank=2),
    "dora on every linear": partial(peft.dora, pattern="blocks.*.*.*", rank=3, alpha=7),
    "qlora": lambda model: peft.lora(peft.quantise_model(model), rank=2),
    "qdora": lambda model: peft.dora(peft.quantise_model(model), rank=2),
    "adapters": partial(peft.adapters, width=4),
    "prefix": partial(peft.prefix, length=3),
    "prompt": partial(peft.prompt, length=3),
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def lm(seed=0, **more):
    torch.manual_seed(seed)
    values = {"width": 16, "layers": 2, "heads": 2, "length": 30, "dropout": 0.0} | more
    return shaken(heads.LM(Transformer(gpt(40, **values))))


def ids(rows=3, t=7):
    return torch.randint(40, (rows, t), generator=torch.Generator().manual_seed(1))


def fill(model):
    """What training would do to the new weights."""
    torch.manual_seed(5)
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data.normal_(std=0.3)
    return model


@each_method
def test_only_the_new_weights_are_trained_and_the_base_does_not_change(method):
    model = lm()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    model = method(model)
    base = {name: weight for name, weight in model.named_parameters() if not weight.requires_grad}
    new = {
        name: weight.clone() for name, weight in model.named_parameters() if weight.requires_grad
    }
    assert new
    frozen = {name: x.clone() for name, x in model.state_dict().items() if name not in new}
    steps = list(
        train(
            model,
            [{"ids": ids()}],
            losses.clm,
            TrainConfig(steps=8),
            optimizer=optim.adamw(model, 0.05, weight_decay=0.1),
        )
    )
    assert steps[-1].loss < steps[0].loss and all(weight.grad is None for weight in base.values())
    after = model.state_dict()
    assert all(torch.equal(x.float(), after[name].float()) for name, x in frozen.items())
    assert all(not torch.equal(weight, after[name]) for name, weight in new.items())
    bare = {name.replace(".base.", "."): x for name, x in after.items()}
    kept = [name for name in before if name in bare]
    assert "stack.blocks.1.attn_norm.weight" in kept and all(
        torch.equal(bare[name], before[name]) for name in kept
    )


@pytest.mark.parametrize("name", ["lora", "lora on every linear", "dora", "dora on every linear"])
def test_lora_starts_as_the_model_itself(name):
    model = lm()
    expected = model(ids())
    assert torch.equal(METHODS[name](model)(ids()), expected)
    assert not torch.allclose(fill(model)(ids()), expected, atol=1e-2)


def test_adapters_start_near_the_identity():
    model = lm()
    expected = model(ids())
    difference = (METHODS["adapters"](model)(ids()) - expected).abs().max()
    assert 0 < difference < 1e-2 * expected.abs().max()
    for name, weight in model.named_parameters():
        if ".adapter." in name:
            weight.data.zero_()
    assert torch.equal(model(ids()), expected)


def test_dropout_is_on_what_the_update_reads():
    linear = torch.nn.Linear(6, 5)
    model = fill(peft.lora(torch.nn.Sequential(linear), "0", rank=2, dropout=0.5)).train()
    x = torch.randn(4, 6)
    torch.manual_seed(0)
    found = model(x)
    torch.manual_seed(0)
    expected = linear(x) + torch.nn.functional.dropout(x, 0.5) @ model[0].lora.delta.T
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    assert not torch.allclose(found, model.eval()(x))


def test_an_adapter_is_the_papers_figure():
    block = lm().stack.blocks[0]
    x = torch.randn(2, 5, 64)
    plain = block.ff.down(x)
    fill(peft.adapters(torch.nn.ModuleDict({"blocks": torch.nn.ModuleList([block])}), 3))
    adapter = block.ff.down.adapter
    inner = torch.nn.functional.gelu(plain @ adapter.down.weight.T + adapter.down.bias)
    expected = plain + inner @ adapter.up.weight.T + adapter.up.bias
    torch.testing.assert_close(block.ff.down(x), expected, atol=1e-5, rtol=1e-5)
    assert isinstance(block.attn.out, type(block.ff.down)) and not isinstance(
        block.ff.up, type(block.ff.down)
    )


@pytest.mark.parametrize("bias", [True, False])
def test_dora_is_the_papers_equation(bias):
    linear = torch.nn.Linear(6, 5, bias=bias)
    model = fill(peft.dora(torch.nn.Sequential(linear), "0", rank=2, alpha=3))
    x = torch.randn(4, 6)
    layer = model[0]
    changed = linear.weight + 3 / 2 * layer.lora.up @ layer.lora.down
    rows = changed / changed.norm(dim=1, keepdim=True)
    expected = x @ (layer.magnitude.weight[:, None] * rows).T
    expected = expected + linear.bias if bias else expected
    torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", [peft.lora, peft.dora])
def test_merged_equals_unmerged_under_the_bases_names(method):
    model = lm()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    plain = model(ids())
    fill(method(model, "blocks.*.*.*", rank=3, alpha=5))
    unmerged = model(ids())
    assert not torch.allclose(plain, unmerged, atol=1e-2)
    layers = peft.merge(model)
    assert list(model.state_dict()) == list(before)
    torch.testing.assert_close(model(ids()), unmerged, atol=1e-5, rtol=1e-5)
    peft.unmerge(model, layers)
    torch.testing.assert_close(model(ids()), unmerged, atol=1e-5, rtol=1e-5)
    for name, x in model.state_dict().items():
        if ".lora." not in name and ".magnitude." not in name:
            torch.testing.assert_close(x, before[name.replace(".base.", ".")], atol=1e-6, rtol=1e-6)


def test_patterns_speak_of_the_end_of_a_name():
    def found(model, pattern):
        return peft.inject(model, pattern, torch.nn.Sequential)

    both = bart_lm(bart(40, width=16, layers=1, heads=2, length=20))
    assert found(both, "blocks.*.attn.[qv]") == [
        f"stack.{s}coder.blocks.0.attn.{x}" for s in ("en", "de") for x in "qv"
    ]
    assert found(both, "decoder.blocks.*.cross.q") == ["stack.decoder.blocks.0.cross.q"]
    assert (
        len(found(bart_lm(bart(40, width=16, layers=1, heads=2, length=20)), "blocks.*.*.*"))
        == 6 + 10
    )
    assert found(lm(), "k") == ["stack.blocks.0.attn.k", "stack.blocks.1.attn.k"]
    assert len(found(lm(), "blocks.1.*.*")) == 6


def on_meta(config):
    with torch.device("meta"):
        return Transformer(config)


def test_adapters_are_as_large_as_the_paper_says():
    """2 m D + D + m each. Table 1's 2.1% for width 64 is of the blocks of BERT-large; of all its
    weights it is 1.9%.
    """
    large = on_meta(preset("bert-large"))
    blocks = sum(weight.numel() for weight in large.blocks.parameters())
    found = peft.count(peft.adapters(large, 64))
    assert found.trainable == 24 * 2 * (2 * 64 * 1024 + 1024 + 64)
    assert found.trainable / blocks == pytest.approx(0.021, abs=5e-4)
    assert found.share == pytest.approx(0.0186, abs=5e-5)


def test_other_methods_counts():
    config = preset("bert-base")
    assert peft.count(peft.prefix(on_meta(config), 20)).trainable == 20 * 12 * 2 * 768
    assert peft.count(peft.prompt(on_meta(config), 100)).trainable == 100 * 768
    model = peft.bitfit(heads.Pooled(on_meta(config)))
    assert 0.0005 < peft.count(model).share < 0.0012  # the paper: 0.08%
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {name for name in model.state_dict() if name.endswith(".bias")}


def test_counted_bytes_are_those_of_the_file(tmp_path):
    model = peft.lora(lm(), rank=2)
    found = peft.count(model)
    peft.save(model, tmp_path / "new.safetensors")
    stored = sum(x.nbytes for x in load_file(tmp_path / "new.safetensors").values())
    assert found.weights == 4 * found.total == sum(x.nbytes for x in model.state_dict().values())
    assert found.bytes - found.weights == 12 * found.trainable == 3 * stored


@each_method
def test_new_weights_alone_are_saved_and_loaded(method, tmp_path):
    model = fill(method(lm()))
    peft.save(model, tmp_path / "new.safetensors")
    torch.manual_seed(9)
    other = method(lm())
    assert not torch.equal(other(ids()), model(ids()))
    peft.load(other, tmp_path / "new.safetensors")
    assert torch.equal(other(ids()), model(ids()))
    stored = load_file(tmp_path / "new.safetensors")
    assert sum(x.numel() for x in stored.values()) == peft.count(model).trainable


def test_foreign_files_are_refused_and_change_nothing(tmp_path):
    path = tmp_path / "new.safetensors"
    peft.save(fill(peft.lora(lm(), rank=2)), path)
    for other in (
        peft.lora(lm(), rank=3),
        peft.lora(lm(), "attn.q", rank=2),
        peft.adapters(lm(), 2),
    ):
        before = {name: x.clone() for name, x in other.state_dict().items()}
        with pytest.raises(CourseError, match="does not fit this model; prepare it by the method"):
            peft.load(other, path)
        assert all(torch.equal(x, before[name]) for name, x in other.state_dict().items())
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CourseError, match="damaged"):
        peft.load(peft.lora(lm(), rank=2), path)
    with pytest.raises(CourseError, match="cannot be read"):
        peft.load(peft.lora(lm(), rank=2), tmp_path / "none")


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (
            lambda: peft.lora(lm(), "attn.query"),
            "No Linear of the model is called 'attn.query'; it has attn.k, attn.out",
        ),
        (lambda: peft.lora(peft.lora(lm(), rank=2), rank=2), "No Linear of the model"),
        (lambda: peft.inject(torch.nn.Identity(), "q", torch.nn.Sequential), "none at all"),
        (lambda: peft.merge(lm()), "no LoRA updates"),
        (lambda: peft.merge(peft.lora(peft.quantise_model(lm()), rank=2)), "The 16 levels of NF4"),
    ],
)
def test_bad_input_is_one_sentence(act, words):
    with pytest.raises(CourseError, match=words):
        act()


@each_method
def test_finetune_trains_it_beside_a_head(method, tmp_path):
    rows = [
        {"text": f"{a} {b} {a}", "label": int(b == "mill")}
        for a in ("Ann", "Bob", "Eve")
        for b in ("mill", "dock")
    ]
    tokenizer = train_wordpiece([row["text"] for row in rows] * 4, 60)
    torch.manual_seed(0)
    body = shaken(
        Transformer(bert(tokenizer.vocab.size, width=16, layers=2, heads=2, length=30, dropout=0.0))
    )
    before = {name: x.clone() for name, x in body.state_dict().items()}
    task = {"train": rows * 2, "test": rows}
    result = finetune(
        body, task, tokenizer, FinetuneConfig(epochs=3, lr=2e-2, batch=6), peft=method
    )
    assert result.history[-1].loss < result.history[0].loss
    assert all(torch.equal(x, before[name]) for name, x in body.state_dict().items())
    trained = {name for name, weight in result.model.named_parameters() if weight.requires_grad}
    assert {"out.weight", "out.bias", "pooler.dense.weight", "pooler.dense.bias"} < trained
    inside = {name.replace(".base.", "."): x for name, x in result.model.stack.state_dict().items()}
    assert all(torch.equal(inside[name], x) for name, x in before.items() if name in inside)
    peft.save(result.model, tmp_path / "new.safetensors")
    assert load_file(tmp_path / "new.safetensors").keys() == trained


def test_the_shipped_sentence_adapter_fits_a_body_without_a_pooler():
    """Lesson 15 loads it onto a sentence encoder, which is saved as a public body."""
    base, _, _ = zoo.load("bert-english")
    encoder = Sentence(base.stack).eval()
    ids = torch.tensor([[[5, 20, 30, 6]]])  # one text of one part
    before = encoder(ids)
    folder = zoo.FOLDER.parent / "adapters" / "sbert-english"
    layout = {"model_type": "megatron-bert", "architecture": "MegatronBertModel"}
    peft.load_pretrained(encoder, folder, **layout)
    assert not torch.allclose(encoder(ids), before, atol=1e-2)
