"""Names of models and datasets on the Hugging Face hub, and how they are downloaded.

    hub:glue:sst2                  a dataset and one of its configurations
    hub:owner/name@5f1e0c9         a commit, branch or tag of it; without one the newest there is
    hub:path/to/folder             a folder laid out as on the hub
    bert-base-uncased@v1           for a model "hub:" may be left out

Downloads stay in the hub's cache and work without a network. Nothing from the hub is ever executed:
no scripts, no pickles.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib import public_models
from course_lib.errors import CourseError
from course_lib.files import expand_home

PREFIX = "hub:"
# All files that models and tokenizers are read from; no pickles.
MODEL_FILES = ("*.json", "*.safetensors", "vocab.txt", "merges.txt")
# Subfolders that no model is read from (onnx, openvino). Those of sentence-transformers begin with
# a digit, as 1_Pooling does.
NOT_MODULES = "[!0-9]*/*"
PATIENCE = 5.0  # seconds to wait for the hub's first answer
COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
ABSENT = (
    "cannot be had: the hub does not answer (or HF_HUB_OFFLINE is set), and the cache holds no"
    " copy."
)
# What an encrypted connection says where the clock is years behind or ahead
CLOCK_SIGNS = ("certificate is not yet valid", "certificate has expired")
WRONG_CLOCK = (
    "cannot be had: by this machine's clock the hub's certificate is not valid. Set the date and"
    " time right."
)
# The end of our message -> signs of this error: names of exception classes, or words of messages.
# Names, not classes, because the libraries use two versions of one HTTP client.
SIGNS = {
    "does not exist; look its revisions up on its page.": ["RevisionNotFoundError", "Revision '"],
    "is given only to those who asked its owners; ask on its page and log in.": [
        "GatedRepoError",
        "gated dataset",
    ],
    "is not on the hub, or is private; check the spelling.": [
        "RepositoryNotFoundError",
        "DatasetNotFoundError",
    ],
    ABSENT: [
        "ConnectionError",
        "TransportError",
        "TimeoutException",
        "LocalEntryNotFoundError",
        "find cache for",
    ],
    "is no Parquet file, or a placeholder of Git LFS; fetch the file itself by git lfs pull.": [
        "Parquet magic bytes not found",
    ],
    "has no rows in this split.": ["corresponds to no data"],
    "comes as a Python script, which is not executed; try its revision refs/convert/parquet.": [
        "no longer supported",
    ],
}


@dataclass(frozen=True)
class Name:
    """A name of the hub in its parts."""

    place: str  # "owner/name" on the hub, or the path of a folder
    config: str | None = None
    revision: str | None = None  # a commit, branch or tag

    @property
    def folder(self) -> Path | None:
        """The local folder of this path, or None if there is no such folder."""
        path = expand_home(self.place)
        # an empty path would be the current folder
        return path if self.place and path.is_dir() else None


def parse(source: str) -> Name:
    """Split "hub:PLACE:CONFIG@REVISION" into its parts. CONFIG and REVISION may be missing.

    >>> parse("hub:glue:sst2@main")
    Name(place='glue', config='sst2', revision='main')
    """
    rest = source.removeprefix(PREFIX)
    if Name(rest).folder is not None:  # a path may hold ":" and "@" itself
        return Name(rest)
    rest, _, revision = rest.partition("@")
    place = rest
    config = ""
    if ":" in rest:
        place, _, config = rest.rpartition(":")
    name = Name(place, config or None, revision or None)
    if name.folder is not None:
        if revision:
            raise CourseError(f"{source}: a folder has no revisions; leave out @{revision}.")
    elif not REPOSITORY.fullmatch(place):
        raise CourseError(
            f"{source} names neither a folder that exists nor a repository; write hub:NAME or"
            " hub:OWNER/NAME, then :CONFIG and @REVISION if wanted."
        )
    return name


def is_repository(source: str | Path) -> bool:
    """Whether this could be the name of a model on the hub, with or without "hub:".

    A `Path` never is.
    """
    name = source.partition("@")[0] if isinstance(source, str) else ""
    return name.startswith(PREFIX) or REPOSITORY.fullmatch(name) is not None


def pretrained(source: str | Path) -> Path:
    """The folder of a checkpoint. One on the hub is downloaded, unless it is in the cache.

    Args:
        source: a folder, the short name of a public model ("minilm"), or "OWNER/NAME@REVISION"
            with or without "hub:".

    Raises:
        CourseError: if it cannot be downloaded, or is no model.
    """
    from huggingface_hub import snapshot_download

    folder = expand_home(source)
    if str(source) and folder.is_dir():  # an empty path would be the current folder
        return folder
    if source in public_models.MODELS:
        return public_models.folder(str(source))
    if not is_repository(source):
        raise CourseError(
            f"There is no folder {str(source)!r}; give the path of a downloaded model (config.json"
            " + safetensors), or OWNER/NAME of the hub."
        )
    name = parse(str(source))
    if name.folder is not None:
        return name.folder
    if name.config:
        raise CourseError(f"{source}: a model has no configurations; leave out :{name.config}.")
    check_cache()
    with reached():
        try:
            folder = Path(
                snapshot_download(
                    name.place,
                    revision=name.revision,
                    allow_patterns=list(MODEL_FILES),
                    ignore_patterns=NOT_MODULES,
                )
            )
        except Exception as error:  # the library has a dozen kinds, and httpx's beside
            raise explain(error, name, "model") from error
    if not (folder / "config.json").is_file():
        raise CourseError(
            f"The model {name.place!r} has no config.json, so it is none that the course can read."
        )
    return folder


def check_cache() -> None:
    """Refuse to let the hub's libraries work for a user without a home folder.

    They would keep what they download or convert in a new folder "~" of the current one.
    """
    from huggingface_hub import constants

    if constants.HF_HOME.startswith("~"):
        raise CourseError(
            "This user has no home folder for the hub's cache; set HF_HOME to a folder that can be"
            " written."
        )


def commit(name: Name) -> str | None:
    """The commit of a dataset when it was last downloaded; None if it never was."""
    from huggingface_hub import constants

    revision = name.revision or "main"
    if COMMIT.fullmatch(revision):
        return revision
    # The cache keeps what a branch or tag stood for in a file of its name.
    repository = f"datasets--{name.place.replace('/', '--')}"
    file = Path(constants.HF_HUB_CACHE) / repository / "refs" / revision
    return file.read_text(encoding="utf-8").strip() if file.is_file() else None


def explain(error: BaseException, name: Name, kind: Literal["model", "dataset"]) -> CourseError:
    """A `CourseError` for an error of a library that reads the hub or a folder in its layout.

    Args:
        error: the exception that the library raised.
        name: the name of the model or dataset.
        kind: "model" or "dataset".

    Returns:
        The error to raise instead.
    """
    subject = _subject(name, kind)

    # The messages and class names of the error and of all its causes
    texts: set[str] = set()
    cause: BaseException | None = error
    while cause is not None and str(cause) not in texts:
        texts.add(str(cause))
        texts |= {parent.__name__ for parent in type(cause).__mro__}
        cause = cause.__cause__ or cause.__context__
    everything = "\n".join(texts)

    for meaning, signs in SIGNS.items():
        if meaning == ABSENT and name.folder:
            continue  # a folder needs no hub
        if any(sign in everything for sign in signs):
            return CourseError(f"{subject} {meaning}")
    reason = " ".join(str(error).split())[:400].rstrip(".")
    return CourseError(f"{subject} could not be loaded: {reason or type(error).__name__}.")


def absent(name: Name, kind: Literal["model", "dataset"]) -> CourseError:
    """The error to raise if the hub does not answer and the cache lacks this revision."""
    return CourseError(f"{_subject(name, kind)} {ABSENT}")


def _subject(name: Name, kind: str) -> str:
    """The beginning of a message: "The dataset 'glue' at revision 'main'"."""
    subject = f"The {kind} {name.place!r}"
    if name.revision:
        subject += f" at revision {name.revision!r}"
    return subject


@contextmanager
def reached() -> Iterator[None]:
    """A context in which the libraries read the hub, or only their caches if it does not answer.

    Without a network the libraries try every file for half a minute. So we ask the hub once first.
    """
    import datasets
    from huggingface_hub import constants, get_session

    refusal: Exception | None = None
    before = (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE)
    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception as error:  # noqa: BLE001  no network, a proxy, HF_HUB_OFFLINE
        refusal = error
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    except CourseError as error:
        if not any(sign in str(refusal) for sign in CLOCK_SIGNS):
            raise
        raise CourseError(str(error).replace(ABSENT, WRONG_CLOCK)) from refusal
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
