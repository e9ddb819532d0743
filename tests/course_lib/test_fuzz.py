"""Files and command lines that nobody thought of: each is read, or one sentence says what is wrong
with it.
"""

import json

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from course_lib import data
from course_lib.data import folders
from course_lib.errors import CourseError

pytestmark = pytest.mark.slow

words = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    ["", "nan", "\x00", "1e999"]
)
leaves = st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | words
fields = st.sampled_from(
    ["text", "label", "sentence", "context", "qas", "answers", "data", "paragraphs", "tokens"]
)
anything = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(fields | words, inner)
)
signs = st.sampled_from(
    [
        "\t",
        ",",
        '"',
        "\n",
        "\r",
        "\n\n",
        "# ",
        "-DOCSTART-",
        "1\ta\t_",
        "B-x",
        "@highlight",
        "\ufeff",
    ]
)
tables = st.lists(signs | words | st.sampled_from(["text", "label", "1"]), max_size=40).map("".join)
records = st.lists(anything, max_size=4).map(lambda rows: "\n".join(map(json.dumps, rows)))
content = st.binary(max_size=200) | (tables | records | anything.map(json.dumps)).map(str.encode)
endings = st.sampled_from([*folders.ENDING, ".en", ".gz", ".txt.xz", ".json.bz2", "", ".zip"])
stems = st.sampled_from(["train", "test", "dev", "a b", "readme", "train.de", "0001"])
files = st.dictionaries(st.tuples(stems, endings).map("".join), content, min_size=1, max_size=3)

numbers = st.sampled_from(
    ["0", "1", "2", "-1", "nan", "inf", "1e400", "9" * 30, "", "x", "0x1", "\N{SUPERSCRIPT TWO}"]
)
options = st.sampled_from(
    [
        "vocab",
        "documents",
        "layers",
        "width",
        "heads",
        "length",
        "lr",
        "seed",
        "tokens",
        "warmup",
        "mask-rate",
        "n",
    ]
    + [
        "dropout",
        "init-std",
        "epochs",
        "batch",
        "device",
        "metric",
        "pool",
        "columns",
        "test",
        "precision",
        "threads",
    ]
    + [
        "model",
        "new",
        "top-k",
        "top-p",
        "temperature",
        "pair",
        "beta2",
        "short",
        "validation",
        "schedule",
        "optimizer",
    ]
)
names = (
    st.sampled_from(["gpt", "bert", "t5", "electra-base", "tiny", "hub:a/b@c", "../x", "world"])
    | words
)
flags = st.lists(st.tuples(options.map("--{}".format), numbers | words | names), max_size=3).map(
    lambda x: sum(x, ())
)


@pytest.fixture
def written(tmp_path_factory):
    """Files by name -> the folder that they are in, a new one each time."""

    def write(found):
        folder = tmp_path_factory.mktemp("door")
        for name, raw in found.items():
            (folder / name).write_bytes(raw)
        return folder

    return write


# same modules, same draws
STEADY = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@settings(max_examples=300, **STEADY)
@given(files, st.booleans())
# a column without a name
@example({"train.json": b'{"label": null, "tokens": null, "": null}'}, False)
# a column named by a line break
@example({"train.json": b'{"\\n": null}'}, False)
# no sentence at all
@example({"train.txt": b"-DOCSTART-"}, False)
def test_whatever_a_file_holds(written, found, whole):
    folder = written(found)
    source = str(folder if whole else folder / min(found))
    for door in (data.corpus, data.task):
        try:
            assert len(door(source)) > 0
        except CourseError as error:
            said = str(error)
        else:
            said = "read whole"
        assert len(said) > 9 and "\n" not in said, said


COMMANDS = {
    "tokenize": "--data FILE --out made --vocab 300",
    "pretrain": "NAME --data FILE --out made --steps 1 --layers 1 --width 8 --heads 1",
    "finetune": "NAME --task FILE --test train",
    "predict": "NAME FILE",
    "generate": "NAME FILE --new 3",
    "info": "NAME",
    "fetch": "FILE",
}


@settings(max_examples=100, **STEADY)  # a command line takes about a second
@given(st.sampled_from(list(COMMANDS.items())), files, flags, names)
def test_whatever_is_typed(written, call, monkeypatch, command, found, flags, name):
    monkeypatch.chdir(written(found))
    typed = [{"FILE": min(found), "NAME": name}.get(word, word) for word in command[1].split()]
    code, _, err = call(command[0], *typed, *flags)
    assert code in (0, 1, 2) and "Traceback" not in err
    assert code != 1 or (
        err.splitlines()[-1].startswith("error: ") and err.count("error: ") == 1
    ), err
