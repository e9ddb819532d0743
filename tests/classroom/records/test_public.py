import json

from classroom import records
from classroom.records import public, rules


def test_figures_on_real_text_are_judged_as_those_of_a_rule_are(tmp_path):
    arms = {"tuned": {"seeds": [0.5, 0.9], "mean": 0.7}, "counted": {"seeds": [0.2], "mean": 0.2}}
    (tmp_path / "real_x.json").write_text(
        json.dumps({"arms": arms, "one run": {"right": 0.4}, "made": "today"})
    )
    figures = public.figures(tmp_path)
    assert figures["x/arms/tuned"].seeds == [0.5, 0.9] and len(figures) == 3
    rule = {"statements": [{"says": "", "more": ["x/one run/right", "x/arms/counted"]}]}
    # one training decides nothing
    assert rules.judge(rule, figures).statements[0].outcome == "not shown"
    told = records.summary("dense-retrieval").splitlines()[-1]
    assert told.startswith("  real English, leaves open: ")
