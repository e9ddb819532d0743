"""The fields of a config as options of a command."""

import subprocess
import sys
from dataclasses import dataclass, fields
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from course_lib.commands.options import options_of
from course_lib.training.settings import Precision, setting


@dataclass(frozen=True, kw_only=True)
class Recipe:
    flour: int = setting(500, "Grams.", at_least=1, at_most=900)
    oven_heat: float | None = setting(None, "Degrees.")
    rye: bool = setting(False, "Dark bread.")
    rest: bool = setting(True, "Wait an hour?", flag="--rest/--hurry")
    precision: Precision = setting("fp32", "Of the scales.")
    salt: int = setting(10, "Grams.", flag="--grains")
    name: str = "bread"


@pytest.fixture
def bake():
    """The exit code of a command, and what it was given."""
    given: dict[str, Any] = {}
    app = typer.Typer()

    @app.command()
    @options_of(Recipe)
    def command(flour: int = 7, **options: Any) -> None:
        given.update(options, flour=flour)

    def run(*words: str) -> tuple[int, dict[str, Any]]:
        given.clear()
        return CliRunner().invoke(app, words).exit_code, dict(given)

    return run


def test_each_setting_is_an_option_with_the_default_of_its_field(bake) -> None:
    code, given = bake()
    assert code == 0
    assert given.pop("flour") == 7, "what the command names itself stays its own"
    assert "name" not in given, "a field that is no setting is no option"
    assert given == {
        field.name: field.default for field in fields(Recipe) if field.name not in ("name", "flour")
    }


def test_options_are_called_as_their_fields_say(bake) -> None:
    words = ["--oven-heat", "220.5", "--rye", "--hurry", "--precision", "bf16", "--grains", "3"]
    code, given = bake(*words)
    assert code == 0
    assert given["oven_heat"] == 220.5 and given["salt"] == 3 and given["precision"] == "bf16"
    assert given["rye"] is True and given["rest"] is False


@pytest.mark.parametrize("words", [["--precision", "fp8"], ["--no-rye"], ["--name", "cake"]])
def test_other_values_and_names_are_refused(bake, words: list[str]) -> None:
    assert bake(*words)[0] == 2


def test_bounds_are_kept() -> None:
    app = typer.Typer()
    app.command()(options_of(Recipe)(lambda **options: None))
    codes = [CliRunner().invoke(app, ["--flour", grams]).exit_code for grams in ("0", "1", "901")]
    assert codes == [2, 0, 2]


@pytest.mark.parametrize("words", [["--help"], ["pretrain", "--help"], ["finetune", "--help"]])
def test_help_is_quick_because_it_needs_no_torch(words: list[str]) -> None:
    code = """
import sys
from course_lib.__main__ import main
try:
    main()
except SystemExit:
    pass
print({"torch", "numpy", "transformers"} & set(sys.modules), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 and "Usage" in done.stdout
    assert done.stderr.strip() == "set()"
