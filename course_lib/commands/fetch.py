"""The command `fetch`: download models and data sets, once."""

from typing import Annotated

import typer

from course_lib.errors import CourseError
from course_lib.files import DATA, read_json


def fetch(
    wanted: Annotated[
        str,
        typer.Argument(
            help="The model minilm, or a JSON file that lists models and data sets of the hub.",
            show_default="data/class.json",
        ),
    ] = str(DATA / "class.json"),
) -> None:
    """Download a public model, or a list of models and data sets, for use without a network."""
    # Importing torch takes seconds, so it is done here: `--help` does not need it.
    from course_lib import data, hub, public_models, zoo

    if wanted in public_models.MODELS:
        print(f"{public_models.MODELS[wanted].title}: {zoo.fetch(wanted)}")
        return

    readers = {"models": hub.pretrained, "tasks": data.task, "corpora": data.corpus}
    todo = []
    missing = []
    try:
        for group, entries in read_json(wanted).items():
            for entry in entries:
                name = entry["name"]
                todo.append((readers[group], name, entry.get("revision"), entry["megabytes"]))
    except (AttributeError, KeyError, TypeError):
        raise CourseError(
            f"{wanted} is not a list of what to fetch; data/class.json shows what one holds."
        ) from None
    for read, name, revision, megabytes in todo:
        print(f"{name} ({megabytes} MB) ...", flush=True)
        try:
            # Reading a model or data set puts it into the hub's cache; the result is not used.
            read(f"{hub.PREFIX}{name}" + (f"@{revision}" if revision else ""))
        except CourseError as error:
            missing.append(str(error))
    if missing:
        raise CourseError(" ".join(missing))
