from classroom import records


def test_ahead_is_a_difference_paired_by_seed():
    arm = {"seeds": [0.6, 0.62], "mean": 0.61, "interval": [0.48, 0.74]}
    arms = {"english": arm, "scratch": arm | {"seeds": [0.5, 0.521], "mean": 0.51}}
    assert records.compared({"stsb": {"arms": arms}}, "english", "scratch").endswith("ahead: STS-B")
