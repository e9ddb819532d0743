"""The picture of the bench shows what was measured, and nothing else."""

from lab.bench import summary


def record(name, **ratios):
    rows = [{"contender": each.replace("_", " "), "ratio": ratios[each]} for each in ratios]
    return {"name": name, "rows": rows}


RECORDS = [
    record("training GPT M", transformers_fp32=1.0, course_fp32=1.7, nanoGPT_fp32=1.5),
    record("generation, batch 1", transformers_fp32=1.0, transformers_static_fp32=0.9),
    record("import", torch=1.0),
]


def test_ratios_of_the_tasks_that_were_measured():
    found = list(summary.ratios(RECORDS).values())
    assert found == [
        {"course fp32": 1.7, "nanoGPT fp32": 1.5},
        {"transformers static fp32": 0.9},
    ]


def test_every_bar_has_its_figure_and_its_place_in_the_legend():
    axes = summary.draw(RECORDS).axes[0]
    texts = [text.get_text().strip() for text in axes.texts]
    assert texts[:3] == ["1.7", "1.5", "0.9"]
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == [
        "this library, float32",
        "a loop like nanoGPT's, float32",
        "transformers, static cache, float32",
    ]
