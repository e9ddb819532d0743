"""Settings of generation in a public folder: ours follows them, or one warning names them."""

import json
import warnings

import pytest
import torch
import transformers
from transformers import GenerationConfig

from course_lib import zoo
from course_lib.errors import CourseError, CourseWarning
from course_lib.generation import generate
from course_lib.zoo.generation_config import KNOWN
from tests.parity.public import randomise
from tests.parity.small_models import small

IDS = torch.tensor([[5, 9, 30, 7, 8]])
NEW = 6
# What published folders say (BART base and large, T5, GPT-2, BlenderBot).
WARNED = {
    "no_repeat_ngram_size": 3,
    "repetition_penalty": 1.2,
    "num_beams": 4,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "encoder_no_repeat_ngram_size": 3,
    "suppress_tokens": [7, 8],
    "bad_words_ids": [[7, 8]],
    "min_length": 12,
    "eos_token_id": [2, 3],
    "decoder_start_token_id": 9,
    "a_field_of_next_year": 1,
}
HARMLESS = {
    "do_sample": True,
    "temperature": 0.7,
    "top_k": 50,
    "top_p": 0.9,
    "max_length": 142,
    "early_stopping": True,
    "length_penalty": 2.0,
    "repetition_penalty": 1.0,
    "num_beams": 1,
    "no_repeat_ngram_size": None,
    "bad_words_ids": [],
    "eos_token_id": [2],
    "pad_token_id": 2,
    "transformers_version": "4.40.0",
}
CLASSES = {"gpt2": "GPT2LMHeadModel", "bart": "BartForConditionalGeneration"}


@pytest.fixture(scope="module", params=CLASSES)
def folder(request, tmp_path_factory):
    """A random public model. Its files ask for nothing of generate."""
    config = small(request.param)
    model = randomise(getattr(transformers, CLASSES[request.param])(config))
    path = tmp_path_factory.mktemp(request.param)
    model.save_pretrained(path)
    settle(path, generation={}, forced_eos_token_id=None)
    return path


def settle(folder, generation=None, **fields):
    """Write generation_config.json, or leave it out; and fields of config.json."""
    path = folder / "generation_config.json"
    path.unlink(missing_ok=True)
    if generation is not None:
        path.write_text(json.dumps(generation))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | fields))


def warned(folder, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        zoo.load_pretrained(folder, **options)
    return [str(warning.message) for warning in caught if warning.category is CourseWarning]


@pytest.mark.parametrize("name", WARNED)
def test_a_setting_that_ours_lacks_is_named(name, folder):
    settle(folder, {name: WARNED[name]})
    if name == "decoder_start_token_id" and folder.name.startswith("gpt2"):
        assert warned(folder) == []  # a causal model's text begins with the prompt
        return
    (sentence,) = warned(folder)
    assert f"{folder}/generation_config.json has settings" in sentence
    assert f" {name} {WARNED[name]!r} (" in sentence


def test_one_warning_names_all_of_them(folder):
    settings = {"no_repeat_ngram_size": 3, "num_beams": 4}
    settle(folder, HARMLESS | settings)
    (sentence,) = warned(folder)
    for name in settings:
        assert f" {name} " in sentence
    for name in HARMLESS.keys() - settings.keys():
        assert f" {name} " not in sentence


@pytest.mark.parametrize("name", HARMLESS)
def test_a_setting_that_an_option_decides_is_not_named(name, folder):
    settle(folder, {name: HARMLESS[name]})
    assert warned(folder) == []


def test_config_json_counts_only_without_the_other_file(folder):
    """As in transformers: bart-base has these settings in config.json."""
    settle(folder, None, no_repeat_ngram_size=3, max_length=20)
    (sentence,) = warned(folder)
    assert f"{folder}/config.json has settings" in sentence
    assert "no_repeat_ngram_size 3" in sentence
    assert "max_length" not in sentence
    settle(folder, {})
    assert warned(folder) == []
    settle(folder, {}, no_repeat_ngram_size=None)


def test_a_class_that_writes_no_text_says_nothing(folder):
    settle(folder, {"no_repeat_ngram_size": 3})
    config = json.loads((folder / "config.json").read_text())
    other = {"gpt2": "GPT2ForTokenClassification", "bart": "BartModel"}[config["model_type"]]
    assert not any("generate" in sentence for sentence in warned(folder, architecture=other))


def test_without_a_warning_the_texts_are_those_of_transformers(folder):
    # transformers refuses an empty list of bad words.
    settings = {name: value for name, value in HARMLESS.items() if name != "bad_words_ids"}
    config = json.loads((folder / "config.json").read_text())
    start = {"decoder_start_token_id": config.get("decoder_start_token_id")}
    settle(folder, settings | start | {"eos_token_id": 2, "do_sample": False})
    assert warned(folder) == []
    theirs = getattr(transformers, CLASSES[config["model_type"]]).from_pretrained(folder).eval()
    expected = theirs.generate(IDS, max_new_tokens=NEW)
    written = generate(zoo.load_pretrained(folder), IDS, max_new_tokens=NEW, eos=2)
    assert torch.equal(written, expected)


def test_a_broken_file_is_refused(folder):
    settle(folder, [])
    with pytest.raises(CourseError, match="holds no fields"):
        zoo.load_pretrained(folder)
    settle(folder, {})


def test_every_setting_of_transformers_is_in_a_table():
    known = {*KNOWN.harmless("any"), *KNOWN.table("any", "only"), *KNOWN.table("any", "differs")}
    assert set(GenerationConfig().to_dict()) <= known
    assert KNOWN.table("any", "only").keys() <= KNOWN.table("any", "differs").keys()
    assert not KNOWN.harmless("any").keys() & KNOWN.table("any", "differs").keys()
