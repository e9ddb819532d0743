"""Text in, text out, as transformers' generate and tokenizers give it: BART, T5 and GPT-2."""

import pytest
import torch
import transformers
from tokenizers.processors import TemplateProcessing

from course_lib import zoo
from course_lib.errors import CourseError
from course_lib.generation import prompting, stream_text
from tests.parity.public import randomise, wordpiece
from tests.parity.small_models import small

PROMPTS = [
    "the judge went home",
    "lazy dogs",
    "and the quick brown fox jumped",
    "",
    "home",
    "the the dogs",
    "quick quick",
]
NEW = 12


# With these some of the texts end, and the first one does not.
SEEDS = {"gpt2": 8, "bart": 1, "t5": 2}
LARGER = ("shared.weight", "EncDecAttention.o.weight", "encoder_attn.out_proj.weight")
FRAMES = {"gpt2": "$A", "bart": "[CLS] $A [SEP]", "t5": "$A [SEP]"}


def public(kind, folder):
    """A tiny model and its tokenizer."""
    tokenizer = wordpiece("BertTokenizerFast")
    tokenizer.bos_token, tokenizer.eos_token = "[CLS]", "[SEP]"
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=FRAMES[kind], special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    config = small(kind)
    config.vocab_size = len(tokenizer)
    setattr(config, "max_position_embeddings" if kind == "bart" else "n_positions", 60)
    config.eos_token_id = tokenizer.eos_token_id
    config.decoder_start_token_id = config.pad_token_id = tokenizer.pad_token_id
    config.forced_eos_token_id = None
    name = {"gpt2": "GPT2LMHeadModel"}.get(kind, f"{kind.title()}ForConditionalGeneration")
    model = randomise(getattr(transformers, name)(config), SEEDS[kind], scale=0.3)
    with torch.no_grad():  # larger scores, so that not every text says the same
        for name, weight in model.named_parameters():
            if name.endswith(LARGER):
                weight.mul_(4)
    # The end is as likely as what the model writes third, and has the lower number.
    ids = tokenizer(PROMPTS[0], return_tensors="pt")["input_ids"]
    third = model.generate(ids, max_new_tokens=3, do_sample=False)[0, -1]
    vectors = model.get_input_embeddings().weight.data
    vectors[tokenizer.eos_token_id] = vectors[third]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


@pytest.mark.parametrize("kind", ["gpt2", "bart", "t5"])
def test_texts_are_those_of_transformers(kind, tmp_path):
    model, tokenizer = public(kind, tmp_path)
    loaded = zoo.open_model(tmp_path)
    ended = 0
    for prompt in PROMPTS:
        start = tokenizer.bos_token if kind == "gpt2" else ""
        inputs = tokenizer(start + prompt, return_tensors="pt")
        written = model.generate(**inputs, max_new_tokens=NEW, do_sample=False, num_beams=1)[0]
        expected = tokenizer.decode(written, skip_special_tokens=True)
        ended += written[-1] == tokenizer.eos_token_id

        pieces = stream_text(loaded.model, loaded.tokenizer, prompt, max_new_tokens=NEW)
        assert "".join(pieces) == expected
        (answer,) = prompting.complete(loaded.model, loaded.tokenizer, [prompt], max_new_tokens=NEW)
        begin = len(prompt) if kind == "gpt2" else 0
        assert answer.removeprefix("##") == expected[begin:].strip().removeprefix("##")
    assert ended > 0


@pytest.mark.parametrize("kind", ["gpt2", "bart"])
def test_a_mark_ends_the_text_and_is_not_written(kind, tmp_path):
    public(kind, tmp_path)
    model, tokenizer, _ = zoo.open_model(tmp_path)

    def written(prompt, *stop):
        return "".join(stream_text(model, tokenizer, prompt, stop=stop, max_new_tokens=NEW))

    prompt = max(PROMPTS, key=lambda prompt: len(written(prompt)) - len(prompt))
    whole = written(prompt)
    begin = len(prompt) if kind == "gpt2" else 0
    mark = whole[begin + 4 : begin + 7]  # it may be several tokens, or a part of one
    assert len(mark) == 3
    assert written(prompt, mark) == whole[: whole.index(mark, begin)]
    # What stands in the prompt ends nothing.
    assert written("the judge went home", "judge") == written("the judge went home")
    with pytest.raises(CourseError, match="at least one character"):
        written(prompt, "")
