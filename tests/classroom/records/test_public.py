from classroom import records


def test_ahead_is_a_difference_paired_by_seed_and_the_table_keeps_an_interval_in_one_piece():
    arm = {"seeds": [0.6, 0.62], "mean": 0.61, "interval": [0.48, 0.74]}
    arms = {"english": arm, "scratch": arm | {"seeds": [0.5, 0.521], "mean": 0.51}}
    assert records.compared({"stsb": {"arms": arms}}, "english", "scratch").endswith("ahead: STS-B")
    assert "61.0 [48.0,\N{NO-BREAK SPACE}74.0]" in repr(records.public_table({"stsb": {"arms": arms}}))
