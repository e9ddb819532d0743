"""Exported folders as a user of transformers opens them: the same text from `generate`, the same
names of classes.
"""

import pytest
import torch
import transformers

from course_lib import zoo
from course_lib.data.tokenizers import Tokenizer, add_sentinels, train_bpe, train_wordpiece
from course_lib.families import family, preset
from course_lib.families.bart import bart, bart_lm
from course_lib.families.bert import bert, moved_norms
from course_lib.families.gpt import gpt, gpt1, gpt2
from course_lib.families.t5 import t5, t5_lm, t5_size
from course_lib.generation import generate
from course_lib.model import heads
from course_lib.model.transformer import Transformer
from course_lib.objectives import losses
from tests.parity.public import randomise

TEXTS = [
    "the judge went home. anna saw the judge at the mill.",
    "the fathers of the judge came to the old mill.",
] * 9
SIZE = {"width": 32, "layers": 2, "heads": 4}
NEW = 24


def causal():
    tokenizer = train_bpe(TEXTS, 300)
    return (
        heads.LM(Transformer(gpt(tokenizer.vocab.size, length=64, **SIZE))),
        tokenizer,
        tokenizer.vocab.eos,
    )


def denoising():
    tokenizer = train_wordpiece(TEXTS, 120)
    return (
        bart_lm(bart(tokenizer.vocab.size, length=64, **SIZE), tokenizer.vocab.sep),
        tokenizer,
        tokenizer.vocab.sep,
    )


def span_corruption():
    tokenizer = add_sentinels(train_wordpiece(TEXTS, 120))
    return (
        t5_lm(t5(tokenizer.vocab.size, hidden=64, **SIZE), tokenizer.vocab.pad),
        tokenizer,
        tokenizer.vocab.sep,
    )


def taught(model, loss, batch):
    """A model that has learned one short text by heart, its end too."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        loss(model, batch).backward()
        optimizer.step()
    return model.eval()


@pytest.mark.parametrize("made", [causal, denoising, span_corruption])
@pytest.mark.parametrize("named", [True, False], ids=["by name", "found"])
def test_the_same_text_and_the_same_end(made, named, tmp_path):
    torch.manual_seed(0)
    model, tokenizer, end = made()
    ids = torch.tensor(tokenizer.ids(["the judge went"], special=made is not causal))
    target = torch.tensor([[*tokenizer.ids([" home. anna"], special=False)[0], end]])
    if made is causal:
        taught(model, losses.clm, {"ids": torch.cat([ids, target], 1)})
    else:
        taught(model, losses.seq2seq, {"ids": ids, "labels": target})
    start = ids.shape[1] if made is causal else 1
    ours = generate(model, ids, max_new_tokens=NEW, eos=end)[0, start:].tolist()
    assert ours == target[0].tolist()

    architecture = {"causal": "GPT2LMHeadModel", "denoising": "BartForConditionalGeneration"}.get(
        made.__name__, "T5ForConditionalGeneration"
    )
    zoo.save_pretrained(
        model, tmp_path, tokenizer=tokenizer, architecture=architecture if named else None
    )
    theirs = getattr(transformers, architecture).from_pretrained(tmp_path).eval()
    theirs_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    made_of = theirs.generate(ids, max_new_tokens=NEW, do_sample=False)[0, start:].tolist()
    assert (
        theirs_tokenizer.decode(made_of) == tokenizer.decode(ours, special=True)
        and len(made_of) < NEW
    )


def test_ids_come_from_the_tokenizer(tmp_path):
    model, tokenizer, _ = denoising()
    zoo.save_pretrained(model, tmp_path, tokenizer=tokenizer)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    vocab = tokenizer.vocab
    found = (
        config.bos_token_id,
        config.eos_token_id,
        config.pad_token_id,
        config.decoder_start_token_id,
    )
    assert (
        found == (vocab.cls, vocab.sep, vocab.pad, vocab.sep)
        and Tokenizer.load(tmp_path).vocab == vocab
    )


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            lambda: heads.Pretraining(Transformer(moved_norms(preset("bert-mini")))),
            ("megatron-bert", "MegatronBertForPreTraining"),
        ),
        (lambda: heads.MLM(Transformer(preset("bert-mini"))), ("bert", "BertForMaskedLM")),
        (
            lambda: heads.TokenClassifier(Transformer(family("roberta").config(40, **SIZE)), 2),
            ("roberta", "RobertaForTokenClassification"),
        ),
        (
            lambda: heads.MLM(Transformer(family("modernbert").config(40, **SIZE))),
            ("modernbert", "ModernBertForMaskedLM"),
        ),
        (
            lambda: heads.RTD(Transformer(preset("electra-mini"))),
            ("electra", "ElectraForPreTraining"),
        ),
        (
            lambda: heads.Classifier(
                Transformer(gpt(40, length=9, norm="post", **SIZE)), 2, "last", bias=False
            ),
            ("openai-gpt", "OpenAIGPTForSequenceClassification"),
        ),
    ],
)
def test_the_family_is_found_from_the_model(model, expected, tmp_path):
    zoo.save_pretrained(model(), tmp_path)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    assert (config.model_type, config.architectures[0]) == expected
    with torch.no_grad():
        assert type(zoo.load_pretrained(tmp_path)) is type(model())


@pytest.mark.parametrize("head", [heads.Classifier, heads.TokenClassifier])
def test_names_of_classes_go_there_and_back(head, tmp_path):
    model = head(Transformer(bert(40, length=9, **SIZE)), 3)
    zoo.save_pretrained(model, tmp_path / "unnamed")
    assert zoo.load_pretrained(tmp_path / "unnamed").class_names is None
    model.class_names = ("no", "yes", "maybe")
    zoo.save_pretrained(model, tmp_path / "named")
    config = transformers.AutoConfig.from_pretrained(tmp_path / "named")
    assert config.id2label == {0: "no", 1: "yes", 2: "maybe"} and config.label2id == {
        "no": 0,
        "yes": 1,
        "maybe": 2,
    }
    assert zoo.load_pretrained(tmp_path / "named").class_names == model.class_names


def test_a_published_bert_keeps_its_trained_pooler(tmp_path):
    """Its config.json names the masked LM, and its file holds what the next-sentence task has
    trained.
    """
    tokenizer = train_wordpiece(TEXTS, 120)
    config = transformers.BertConfig(
        vocab_size=tokenizer.vocab.size,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=9,
    )
    theirs = randomise(transformers.BertForPreTraining(config))
    theirs.save_pretrained(tmp_path)
    tokenizer.save(tmp_path)
    written = (
        (tmp_path / "config.json").read_text().replace("BertForPreTraining", "BertForMaskedLM")
    )
    (tmp_path / "config.json").write_text(written)
    loaded = zoo.open_model(tmp_path)
    assert torch.equal(loaded.model.pooler.dense.weight, theirs.bert.pooler.dense.weight)
    assert isinstance(zoo.load_pretrained(tmp_path), heads.MLM)


def decoder(config):
    return heads.LM(Transformer(config))


@pytest.mark.parametrize(
    # as counted by transformers, but for first rows of positions that nobody reads
    ("make", "published"),
    [
        (lambda: heads.Pretraining(Transformer(preset("bert-base"))), 110_106_428),
        (lambda: heads.Pretraining(Transformer(preset("bert-large"))), 336_226_108),
        (lambda: heads.MLM(Transformer(preset("roberta-base"))), 124_697_433 - 2 * 768),
        (lambda: heads.Pooled(Transformer(preset("albert-base"))), 11_683_584),
        (lambda: heads.Pooled(Transformer(preset("albert-large"))), 17_683_968),
        (lambda: heads.Pooled(Transformer(preset("albert-xlarge"))), 58_724_864),
        (lambda: heads.Pooled(Transformer(preset("albert-xxlarge"))), 222_595_584),
        (lambda: Transformer(preset("distilbert-base")), 66_362_880),
        (lambda: heads.RTD(Transformer(preset("electra-small"))), 13_549_057),
        (lambda: heads.RTD(Transformer(preset("electra-base"))), 109_483_009),
        (lambda: Transformer(preset("deberta-base")), 138_601_728),
        (lambda: heads.MLM(Transformer(preset("modernbert-base"))), 149_655_232),
        (lambda: heads.MLM(Transformer(preset("modernbert-large"))), 395_881_664),
        (lambda: bart_lm(preset("bart-base")), 139_420_416 - 2 * 2 * 768),
        (lambda: bart_lm(preset("bart-large")), 406_291_456 - 2 * 2 * 1024),
        (lambda: decoder(gpt1()), 116_534_784),
        (lambda: decoder(gpt2("124M")), 124_439_808),
        (lambda: decoder(gpt2("355M")), 354_823_168),
        (lambda: decoder(gpt2("774M")), 774_030_080),
        (lambda: decoder(gpt2("1558M")), 1_557_611_200),
        (lambda: t5_lm(t5_size("small")), 60_506_624),
        (lambda: t5_lm(t5_size("base")), 222_903_552),
        (lambda: t5_lm(t5_size("large")), 737_668_096),
    ],
)
def test_parameter_counts_equal_the_public_ones(make, published):
    with torch.device("meta"):
        assert sum(weight.numel() for weight in make().parameters()) == published
