"""LoRA, adapters, BitFit: where they stand, what they train, what they cost, what they leave alone."""

from functools import partial

import pytest
import torch
from safetensors.torch import load_file

from course_lib import heads, losses, optim, peft
from course_lib.errors import CourseError
from course_lib.finetune import finetune
from course_lib.models.bart import bart, bart_lm
from course_lib.models.bert import bert, bert_base, bert_large
from course_lib.models.gpt import gpt
from course_lib.models.t5 import t5, t5_lm
from course_lib.peft.lora import LoRALinear
from course_lib.stack import Stack
from course_lib.tokenizers import train_wordpiece
from course_lib.train import train

METHODS = {
    "lora": partial(peft.lora, rank=2),
    "lora on every linear": partial(peft.lora, pattern="blocks.*.*.*", rank=3, alpha=7),
    "qlora": lambda model: peft.lora(peft.quantise(model), rank=2),
    "adapters": partial(peft.adapters, width=4),
    "pfeiffer": partial(peft.adapters, width=4, after=("ff",)),
    "prefix": partial(peft.prefix, length=3),
    "prefix with network": partial(peft.prefix, length=3, hidden=5),
    "prompt": partial(peft.prompt, length=3),
}
each_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def lm(seed=0, **more):
    torch.manual_seed(seed)
    values = {"width": 16, "layers": 2, "heads": 2, "length": 30, "dropout": 0.0} | more
    return shaken(heads.LM(Stack(gpt(40, **values))))


def shaken(model):
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return model.eval()


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
    new = {name: weight.clone() for name, weight in model.named_parameters() if weight.requires_grad}
    assert new
    frozen = {name: x.clone() for name, x in model.state_dict().items() if name not in new}
    steps = list(train(model, [{"ids": ids()}], losses.clm, optim.adamw(model, 0.05, weight_decay=0.1), steps=8))
    assert steps[-1].loss < steps[0].loss
    assert all(weight.grad is None for weight in base.values())
    after = model.state_dict()
    assert all(torch.equal(x.float(), after[name].float()) for name, x in frozen.items())
    assert all(not torch.equal(weight, after[name]) for name, weight in new.items())
    bare = {name.replace(".base.", "."): x for name, x in after.items()}
    kept = [name for name in before if name in bare]
    assert "stack.blocks.1.attn_norm.weight" in kept
    assert all(torch.equal(bare[name], before[name]) for name in kept)


@pytest.mark.parametrize("name", ["lora", "lora on every linear"])
def test_lora_starts_as_the_model_itself(name):
    model = lm()
    expected = model(ids())
    assert torch.equal(METHODS[name](model)(ids()), expected)
    assert not torch.allclose(fill(model)(ids()), expected, atol=1e-2)


@pytest.mark.parametrize("name", ["adapters", "pfeiffer"])
def test_adapters_start_near_the_identity(name):
    model = lm()
    expected = model(ids())
    difference = (METHODS[name](model)(ids()) - expected).abs().max()
    assert 0 < difference < 1e-2 * expected.abs().max()
    for weight_name, weight in model.named_parameters():
        if ".adapter." in weight_name:
            assert weight.abs().max() <= 2e-2
            weight.data.zero_()
    assert torch.equal(model(ids()), expected)


def test_an_update_is_the_papers_formula():
    torch.manual_seed(0)
    linear = torch.nn.Linear(6, 5)
    model = fill(peft.lora(torch.nn.Sequential(linear), "0", rank=2, alpha=3))
    a, b = model[0].lora.a, model[0].lora.b
    x = torch.randn(4, 6)
    expected = x @ linear.weight.T + linear.bias + 3 / 2 * x @ (b @ a).T
    torch.testing.assert_close(model(x), expected, atol=1e-6, rtol=1e-6)
    assert a.shape == (2, 6) and b.shape == (5, 2)


def test_a_starts_as_in_the_papers_code_and_b_at_zero():
    """Uniform within 1 / sqrt(inputs), as PyTorch begins a Linear."""
    torch.manual_seed(0)
    update = peft.lora(torch.nn.Sequential(torch.nn.Linear(400, 300)), "0", rank=64)[0].lora
    assert not update.b.any()
    assert 0.99 / 20 < update.a.abs().max() <= 1 / 20
    assert update.a.std().item() == pytest.approx(1 / 20 / 3**0.5, rel=0.02)


def test_an_adapter_is_the_papers_figure():
    torch.manual_seed(0)
    block = lm().stack.blocks[0]
    x = torch.randn(2, 5, 16)
    plain = block.ff.down(x.repeat(1, 1, 4))
    holder = torch.nn.ModuleDict({"blocks": torch.nn.ModuleList([block])})
    fill(peft.adapters(holder, 3, activation="relu"))
    adapter = block.ff.down.adapter
    inner = torch.relu(plain @ adapter.down.weight.T + adapter.down.bias)
    expected = plain + inner @ adapter.up.weight.T + adapter.up.bias
    torch.testing.assert_close(block.ff.down(x.repeat(1, 1, 4)), expected, atol=1e-5, rtol=1e-5)
    assert isinstance(block.attn.out, type(block.ff.down)) and not isinstance(block.ff.up, type(block.ff.down))


def test_houlsbys_norms_are_trained_if_asked():
    model = peft.adapters(lm(), 4, norms=True)
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert "stack.blocks.0.attn_norm.weight" in trained and "stack.norm.bias" in trained
    assert not any(".base." in name or "tokens" in name for name in trained)


def test_dropout_acts_in_training_only_and_on_the_update_only():
    model = fill(peft.lora(lm(), rank=2, dropout=0.5))
    assert torch.equal(model(ids()), model(ids()))
    model.train()
    assert not torch.equal(model(ids()), model(ids()))
    for layer in model.modules():
        if isinstance(layer, LoRALinear):
            layer.lora.b.data.zero_()
    assert torch.equal(model(ids()), model(ids()))


def test_merged_equals_unmerged_under_the_bases_names():
    model = lm()
    names = list(model.state_dict())
    plain = model(ids())
    fill(peft.lora(model, "blocks.*.*.*", rank=3, alpha=5))
    unmerged = model(ids())
    updates = peft.merge(model)
    assert list(model.state_dict()) == names
    torch.testing.assert_close(model(ids()), unmerged, atol=1e-5, rtol=1e-5)
    peft.unmerge(model, updates)
    torch.testing.assert_close(model(ids()), unmerged, atol=1e-5, rtol=1e-5)
    peft.merge(model)
    for update in updates.values():
        update.b.data.mul_(-1)
        break
    assert not torch.allclose(plain, unmerged, atol=1e-2)


def test_unmerging_gives_the_base_back():
    model = lm()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    updates = peft.merge(fill(peft.lora(model, rank=2)))
    peft.unmerge(model, updates)
    for update in updates.values():
        update.b.data.zero_()
    peft.merge(model)
    for name, x in model.state_dict().items():
        torch.testing.assert_close(x, before[name], atol=1e-6, rtol=1e-6)


def test_patterns_speak_of_the_end_of_a_name():
    def found(model, pattern):
        return peft.inject(model, pattern, torch.nn.Sequential)

    both = bart_lm(bart(40, width=16, layers=1, heads=2, length=20))
    assert found(both, "blocks.*.attn.[qv]") == [
        f"stack.{s}coder.blocks.0.attn.{x}" for s in ("en", "de") for x in "qv"
    ]
    assert found(both, "decoder.blocks.*.cross.q") == ["stack.decoder.blocks.0.cross.q"]
    assert len(found(bart_lm(bart(40, width=16, layers=1, heads=2, length=20)), "blocks.*.*.*")) == 6 + 10
    assert found(lm(), "k") == ["stack.blocks.0.attn.k", "stack.blocks.1.attn.k"]
    assert len(found(lm(), "blocks.1.*.*")) == 6


def test_methods_add_to_each_other():
    model = peft.lora(lm(), rank=2)
    peft.adapters(model, 4)
    trained = {name.split(".")[-2] for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {"lora", "down", "up"}


def test_bitfit_trains_biases_alone():
    model = peft.bitfit(lm())
    trained = {name for name, weight in model.named_parameters() if weight.requires_grad}
    assert trained == {name for name in model.state_dict() if name.endswith(".bias")}
    assert 0.0005 < peft.count(peft.bitfit(heads.Pooled(on_meta(bert_base())))).share < 0.0012  # the paper: 0.08%


def on_meta(config):
    with torch.device("meta"):
        return Stack(config)


def gpt3(layers=96):
    """The 175B of the paper: 96 layers of 12,288."""
    return on_meta(gpt(50257, width=12288, layers=layers, heads=96, length=2048))


@pytest.mark.parametrize(("rank", "pattern", "millions"), [
    (1, "attn.[qv]", 4.7), (8, "attn.[qv]", 37.7), (4, "attn.[qv]", 18.9), (8, "attn.v", 18.9), (2, "attn.[qkv]", 14.2),
])  # fmt: skip
def test_gpt3s_updates_are_as_large_as_the_paper_says(rank, pattern, millions):
    """Hu et al. 2021, tables 4 and 5 (which cuts 18.9M to 18M)."""
    found = peft.count(peft.lora(gpt3(layers=1), pattern, rank=rank))
    assert 96 * found.trainable / 1e6 == pytest.approx(millions, abs=0.05)


def test_gpt3s_memory():
    """Full fine-tuning takes four times the weights; LoRA little more than these; QLoRA an eighth."""
    model = gpt3()
    full, low = peft.count(model), peft.count(peft.lora(model, rank=4))
    assert full.total / 1e9 == pytest.approx(174.6, abs=0.05)
    assert full.bytes == 4 * full.weights == 16 * full.total
    assert low.trainable < full.total / 9000
    assert 1 < low.bytes / full.weights < 1.001
    layer, four = peft.count(gpt3(layers=1)), peft.count(peft.quantise(gpt3(layers=1)))
    assert four.total == layer.total
    saved = 32 - 8 * (layer.weights - four.weights) / (12 * 12288**2)
    assert saved == pytest.approx(4.127, abs=5e-4)


def test_adapters_are_as_large_as_the_paper_says():
    """2 m D + D + m each. Table 1's 2.1% for width 64 is of the blocks of BERT-large; of all its weights it is 1.9%."""
    large = on_meta(bert_large())
    blocks = sum(weight.numel() for weight in large.blocks.parameters())
    found = peft.count(peft.adapters(large, 64))
    assert found.trainable == 24 * 2 * (2 * 64 * 1024 + 1024 + 64)
    assert found.trainable / blocks == pytest.approx(0.021, abs=5e-4)
    assert found.share == pytest.approx(0.0186, abs=5e-5)
    base, one = (
        peft.count(peft.adapters(on_meta(bert_base()), 128)),
        peft.adapters(on_meta(bert_base()), 128, after=("ff",)),
    )
    assert base.trainable == 2 * peft.count(one).trainable


def test_other_methods_counts():
    config = bert_base()
    assert peft.count(peft.prefix(on_meta(config), 20)).trainable == 20 * 12 * 2 * 768
    assert peft.count(peft.prefix(on_meta(config), 20, hidden=512)).trainable == (
        20 * 768 + 768 * 512 + 512 + 512 * 12 * 2 * 768 + 12 * 2 * 768
    )
    assert peft.count(peft.prompt(on_meta(config), 100)).trainable == 100 * 768


def test_counted_bytes_are_those_of_the_file(tmp_path):
    model = peft.lora(lm(), rank=2)
    found = peft.count(model)
    peft.save(model, tmp_path / "new.safetensors")
    assert (
        found.gradients
        == 4 * found.trainable
        == sum(x.nbytes for x in load_file(tmp_path / "new.safetensors").values())
    )
    assert found.adam == 2 * found.gradients
    assert found.weights == 4 * found.total == sum(x.nbytes for x in model.state_dict().values())


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
    for other, words in (
        (peft.lora(lm(), rank=3), "another rank, width or length"),
        (peft.lora(lm(width=8), rank=2), "another rank, width or length"),
        (peft.lora(lm(), "attn.q", rank=2), "only the file has .*attn.v.lora.a"),
        (peft.adapters(lm(), 2), "does not fit this model"),
        (lm().requires_grad_(False), "no trainable weight"),
    ):
        before = {name: x.clone() for name, x in other.state_dict().items()}
        with pytest.raises(CourseError, match=words):
            peft.load(other, path)
        assert all(torch.equal(x, before[name]) for name, x in other.state_dict().items())
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CourseError, match="damaged"):
        peft.load(peft.lora(lm(), rank=2), path)
    with pytest.raises(CourseError, match="cannot be read"):
        peft.load(peft.lora(lm(), rank=2), tmp_path / "none")


@pytest.mark.parametrize(("act", "words"), [
    (lambda: peft.lora(lm(), "blocks.*.attn.query"), r"called 'blocks.\*.attn.query'; near it are blocks.\*.attn.q"),
    (lambda: peft.lora(lm(), "blocks.*.attn_norm"), "No Linear"),
    (lambda: peft.inject(torch.nn.Identity(), "q", torch.nn.Sequential), "none at all"),
    (lambda: peft.lora(lm(), rank=0), "rank is 0; beside a matrix of rank 16"),
    (lambda: peft.lora(lm(), rank=17), "between 1 and 16"),
    (lambda: peft.lora(peft.lora(lm(), rank=2), rank=2), "No Linear of the model"),
    (lambda: peft.adapters(lm(), 0), "at least 1"),
    (lambda: peft.adapters(lm(), 4, after=("head",)), "after 'head'; there are attn, cross, ff"),
    (lambda: peft.adapters(lm(), 4, after=("cross",)), "No Linear"),
    (lambda: peft.merge(lm()), "no LoRA updates"),
    (lambda: peft.merge(peft.lora(peft.quantise(lm()), rank=2)), "a base in NF4, whose 16 levels"),
    (lambda: peft.unmerge(lm(width=8), peft.merge(peft.lora(lm(), rank=2))), "is it another model's"),
    (lambda: peft.quantise(peft.quantise(lm())), "in NF4 already"),
    (lambda: peft.bitfit(t5_lm(t5(40, width=16, layers=1, heads=2, hidden=16))), "has no biases"),
])  # fmt: skip
def test_bad_input_is_one_sentence(act, words):
    with pytest.raises(CourseError, match=words):
        act()


def test_a_refused_merge_changes_nothing():
    """Of two bases the first could be merged; neither is."""
    model = lm()
    peft.quantise(model, "blocks.1.attn.q")
    names = list(peft.lora(model, "attn.q", rank=2).state_dict())
    with pytest.raises(CourseError, match=r"blocks.1.attn.q has a base in NF4"):
        peft.merge(model)
    assert list(model.state_dict()) == names


def test_finetune_is_asked_for_one_thing():
    rows = [{"text": "Ann Bob", "label": 0}, {"text": "Bob Ann", "label": 1}]
    tokenizer = train_wordpiece(["Ann Bob"] * 4, 60)
    body = Stack(bert(tokenizer.vocab.size, width=16, layers=1, heads=2, length=30))
    with pytest.raises(CourseError, match="choose one of them"):
        finetune(body, {"train": rows, "test": rows}, tokenizer, peft=peft.lora, frozen=True)


@each_method
def test_finetune_trains_it_beside_a_head(method, tmp_path):
    rows = [
        {"text": f"{a} {b} {a}", "label": int(b == "mill")} for a in ("Ann", "Bob", "Eve") for b in ("mill", "dock")
    ]
    tokenizer = train_wordpiece([row["text"] for row in rows] * 4, 60)
    torch.manual_seed(0)
    body = shaken(Stack(bert(tokenizer.vocab.size, width=16, layers=2, heads=2, length=30, dropout=0.0)))
    before = {name: x.clone() for name, x in body.state_dict().items()}
    task = {"train": rows * 2, "test": rows}
    result = finetune(body, task, tokenizer, peft=method, epochs=3, lr=2e-2, batch=6)
    assert result.history[-1].loss < result.history[0].loss
    assert all(torch.equal(x, before[name]) for name, x in body.state_dict().items())
    trained = {name for name, weight in result.model.named_parameters() if weight.requires_grad}
    assert {"out.weight", "out.bias", "pooler.dense.weight", "pooler.dense.bias"} < trained
    inside = {name.replace(".base.", "."): x for name, x in result.model.stack.state_dict().items()}
    assert all(torch.equal(inside[name], x) for name, x in before.items() if name in inside)
    peft.save(result.model, tmp_path / "new.safetensors")
    assert load_file(tmp_path / "new.safetensors").keys() == trained
