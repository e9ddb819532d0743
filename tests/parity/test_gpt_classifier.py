"""A public GPT-2 classifier reads texts as its tokenizer frames them; a fine-tuned one keeps its
marks and its padding.
"""

import pytest
import torch
import transformers

from course_lib import zoo
from course_lib.data.tokenizers import train_bpe
from course_lib.families.gpt import gpt
from course_lib.model.transformer import Transformer
from course_lib.training.finetune import FinetuneConfig, finetune, load, predict
from tests.parity.public import TRAINING, byte_level, close, randomise

TEXTS = ["The judge", "went home, and", "the quick brown fox", "lazy", "dogs jumped over"]
ROWS = [{"text": text, "label": number % 2} for number, text in enumerate(TEXTS)]


@pytest.mark.parametrize("spare", [0, 26])
@pytest.mark.parametrize("seed", [0, 1])
def test_predictions_are_those_of_transformers(spare, seed, tmp_path):
    """`spare`: rows of the table without a token, where marks of the course would fit."""
    tokenizer = byte_level("GPT2TokenizerFast", "<|endoftext|>")
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer) + spare,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=40,
        num_labels=3,
        pad_token_id=0,
    )
    theirs = randomise(transformers.GPT2ForSequenceClassification(config), seed, scale=0.4)
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = [
            int(theirs(**tokenizer(text, return_tensors="pt")).logits.argmax()) for text in TEXTS
        ]
    assert predict(tmp_path, [{"text": text} for text in TEXTS]) == expected


def test_the_tokenizer_of_a_fine_tuned_gpt_comes_back(tmp_path):
    tokenizer = train_bpe(TRAINING, 300)
    body = Transformer(gpt(tokenizer.vocab.size, width=16, layers=1, heads=2, length=40))
    config = FinetuneConfig(epochs=1, out=tmp_path)
    result = finetune(body, {"train": ROWS, "test": ROWS}, tokenizer, config)
    ours = result.frame.tokenizer
    for loaded in (load(tmp_path).frame.tokenizer, zoo.open_model(tmp_path).tokenizer):
        assert loaded.vocab == ours.vocab
        assert loaded.encode(TEXTS[0], TEXTS[1]).ids == ours.encode(TEXTS[0], TEXTS[1]).ids
    assert len(ours.encode(TEXTS[0])) > len(tokenizer.encode(TEXTS[0]))


@pytest.mark.parametrize("name", ["GPT2ForSequenceClassification", "BartForConditionalGeneration"])
def test_a_loaded_model_keeps_its_special_tokens(name, tmp_path):
    """Without a tokenizer beside it. transformers refuses batches where no token fills them."""
    tokens = {"pad_token_id": 7, "bos_token_id": 5, "eos_token_id": 6}
    if name.startswith("Bart"):
        tokens |= {"decoder_start_token_id": 4, "forced_eos_token_id": None}
        sides = ("encoder", "decoder")
        sizes = {f"{side}_layers": 1 for side in sides} | {f"{side}_ffn_dim": 8 for side in sides}
        sizes |= {f"{side}_attention_heads": 2 for side in sides}
        config = transformers.BartConfig(vocab_size=60, d_model=16, **sizes, **tokens)
    else:
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2}
        config = transformers.GPT2Config(vocab_size=60, **sizes, **tokens)
    theirs = randomise(getattr(transformers, name)(config))
    theirs.save_pretrained(tmp_path / "theirs")
    ours = zoo.load_pretrained(tmp_path / "theirs")
    zoo.save_pretrained(ours, tmp_path / "ours")
    again = getattr(transformers, name).from_pretrained(tmp_path / "ours").eval()
    assert {key: getattr(again.config, key) for key in tokens} == tokens
    ids = torch.tensor([[9, 8, 20, 7], [10, 11, 12, 13]])
    if name.startswith("GPT2"):
        assert close(again(ids).logits, theirs(ids).logits)
    else:
        options = {"max_new_tokens": 6, "do_sample": False}
        assert torch.equal(again.generate(ids, **options), theirs.generate(ids, **options))
