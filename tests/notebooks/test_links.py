"""Every link, anchor, file, command and library name that a reader meets is right; each kind of slip is seen."""

import shutil

import pytest

from tools import links
from tools.notebooks import ROOT, lessons


@pytest.mark.parametrize("document", links.documents(), ids=lambda document: document.path.stem)
def test_document(document):
    assert links.problems(document) == []


def test_all_that_is_read_is_checked():
    paths = {document.path for document in links.documents()}
    assert {*lessons(), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"} <= paths


GOOD = """# A page

<a id="here"></a>

## Two words

[lesson](../notebooks/09_bert.ipynb), [a claim](../notebooks/09_bert.ipynb#bert-ablation), [above](#here),
[heading](#two-words), [a place](https://example.org/nowhere), <a href="world.md">world</a>, `[no](link.md)`

`course_lib.attention.Attention`, `course_lib.view.live(...)`, `data.task(source)`, `train.tsv`,
`course_lib/stack.py`, `data/papers/*.json`, `make lab`, `python -m course_lib claims run gelu`

```python
from course_lib.stack import Stack
```

## Claim `gelu`
"""
SLIPS = [
    ("../notebooks/09_bert.ipynb)", "../notebooks/09_bart.ipynb)", "09_bart.ipynb leads nowhere"),
    ("#bert-ablation", "#bert-ablatoin", "no anchor of 09_bert.ipynb"),
    ("(#here)", "(#there)", "#there leads to no anchor"),
    ("(#two-words)", "(#three-words)", "#three-words leads to no anchor"),
    ('href="world.md"', 'href="word.md"', "word.md leads nowhere"),
    ("attention.Attention", "attention.Atention", "no course_lib.attention.Atention"),
    ("view.live", "view.life", "no course_lib.view.life"),
    ("data.task(", "data.tusk(", "no data.tusk"),
    ("course_lib/stack.py", "course_lib/stacks.py", "no file course_lib/stacks.py"),
    ("data/papers/*.json", "data/paper/*.json", "no file data/paper/*.json"),
    ("make lab", "make labs", "make labs is no command"),
    ("-m course_lib claims", "-m course_libs claims", "there is no module course_libs"),
    ("run gelu", "run gellu", "no claim gellu"),
    ("import Stack", "import Stacks", "no course_lib.stack.Stacks to import"),
    ("Claim `gelu`", "Claim `relu`", "no claim relu"),
    ('<a id="here"></a>', '<a id="here"></a><a id="here"></a>', "here stands 2 times"),
]


@pytest.fixture
def page():
    """A page beside the docs, removed afterwards."""
    path = ROOT / "docs" / ".test_links.md"
    yield path
    path.unlink(missing_ok=True)


def test_a_good_page_passes(page):
    page.write_text(GOOD, "utf-8")
    assert links.problems(links.open_document(page)) == []


@pytest.mark.parametrize(("old", "new", "message"), SLIPS)
def test_each_slip_is_seen(page, old, new, message):
    assert GOOD.count(old) == 1
    page.write_text(GOOD.replace(old, new), "utf-8")
    links.anchors.cache_clear()  # the page was another one before
    assert any(message in line for line in links.problems(links.open_document(page)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(10_bert_finetuning.ipynb)", "(10_bert.ipynb)", "10_bert.ipynb leads nowhere"),
        ("../docs/glossary.md", "../docs/glosary.md", "glosary.md leads nowhere"),
        ("`corrupt.mask_tokens`", "`corrupt.mask_token`", "no corrupt.mask_token"),
        ("`losses.mlm`", "`losses.mlms`", "no losses.mlms"),
        ("Tokenizer.load(folder)", "Tokenizer.lode(folder)", "no Tokenizer.lode"),
    ],
)
def test_a_broken_lesson_is_seen(tmp_path, old, new, message):
    """A copy of a lesson in a copy of its surroundings, with one letter changed."""
    for folder in ("notebooks", "docs"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    path = tmp_path / "notebooks" / "09_bert.ipynb"
    assert links.problems(links.open_document(path)) == []
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")
    assert any(message in line for line in links.problems(links.open_document(path)))


def test_links_in_outputs_are_checked():
    document = links.open_document(lessons()[0])
    assert "01_self_attention.ipynb" in document.shown
    broken = links.Document(document.path, document.text, document.shown.replace("01_self", "01_other"))
    assert any("01_other_attention.ipynb leads nowhere" in line for line in links.problems(broken))
