"""Names of the Hugging Face hub: "hub:NAME", with a configuration and a revision if wanted, and what lies in the cache.

    hub:glue:sst2                  a dataset and one of its configurations
    hub:owner/name@5f1e0c9         a commit, branch or tag of it; without one the newest that can be had
    hub:path/to/folder             a folder laid out as on the hub
    bert-base-uncased@v1           where a model is asked for, also without "hub:", unless there is such a folder

What was fetched once is used again without a network (`HF_HUB_OFFLINE=1` says not even to ask). Nothing that comes from
a hub is ever executed: no loading scripts, no model code, no pickles.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.errors import CourseError

PREFIX = "hub:"
MODEL_FILES = ("*.json", "*.safetensors", "vocab.txt", "merges.txt")  # all that `hf` and `Tokenizer` read; no pickles
# What the libraries raise where there is no network; by name, for they use two versions of the same HTTP client.
UNREACHED = {"ConnectionError", "TransportError", "TimeoutException", "LocalEntryNotFoundError"}
PATIENCE = 5.0  # seconds to wait for the hub's first answer
COMMIT = re.compile(r"[0-9a-f]{40}")
REPOSITORY = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")

Kind = Literal["model", "dataset"]


@dataclass(frozen=True)
class Name:
    """A name taken apart. place: "owner/name" on the hub, or the path of a folder."""

    place: str
    config: str | None = None
    revision: str | None = None

    @property
    def folder(self) -> Path | None:
        """The folder that is meant, if the place is one."""
        path = Path(self.place).expanduser()
        return path if self.place and path.is_dir() else None  # an empty path would be the current folder


def is_name(source: str | Path) -> bool:
    """Whether a source is a name of the hub."""
    return str(source).startswith(PREFIX)


def parse(source: str) -> Name:
    """Take "hub:PLACE:CONFIG@REVISION" apart; the last two may be missing.

    Raises:
        CourseError: the name of neither a folder nor a repository, or a folder with a revision.
    """
    rest = source.removeprefix(PREFIX)
    if Name(rest).folder is not None:  # a path may hold ":" and "@" itself
        return Name(rest)
    rest, _, revision = rest.partition("@")
    place, _, config = rest.rpartition(":") if ":" in rest else (rest, "", "")
    name = Name(place, config or None, revision or None)
    if name.folder is not None:
        if revision:
            raise CourseError(f"{source}: a folder has no revisions; leave out @{revision}.")
    elif not REPOSITORY.fullmatch(place):
        raise CourseError(
            f"{source} names neither a folder that exists nor a repository; "
            "write hub:NAME or hub:OWNER/NAME, then :CONFIG and @REVISION if wanted."
        )
    return name


def is_repository(source: str | Path) -> bool:
    """Whether a text could be the name of a model on the hub, with or without "hub:". A `Path` never is."""
    return isinstance(source, str) and (is_name(source) or bool(REPOSITORY.fullmatch(source.partition("@")[0])))


def pretrained(source: str | Path) -> Path:
    """The folder of a checkpoint: the folder itself, or of a model of the hub, fetched or taken from the cache.

    Args:
        source: the path of a folder, or "OWNER/NAME@REVISION", with "hub:" in front or not; owner and revision may be
            missing.

    Raises:
        CourseError: neither such a folder nor such a model; no network and no copy in the cache.
    """
    if is_name(source):
        return model_folder(str(source))
    folder = Path(source).expanduser()
    if str(source) and folder.is_dir():  # an empty path would be the current folder
        return folder
    if not is_repository(source):
        raise CourseError(
            f"There is no folder {str(source)!r}; give the path of a downloaded model (config.json + safetensors), or "
            "OWNER/NAME for one of the Hugging Face hub."
        )
    try:
        return model_folder(str(source))
    except CourseError as error:
        raise CourseError(f"There is no folder {source}. {error}") from error


def model_folder(source: str) -> Path:
    """The folder with a checkpoint's files: the newest, or those of its revision; from the cache without a network.

    Only JSON, text and safetensors are fetched.

    Raises:
        CourseError: no such model or revision; no network and no copy in the cache.
    """
    from huggingface_hub import snapshot_download

    name = parse(source)
    if name.config:
        raise CourseError(f"{source}: a model has no configurations; leave out :{name.config}.")
    if name.folder is not None:
        return name.folder
    try:
        with reached():
            path = snapshot_download(
                name.place, revision=name.revision, allow_patterns=list(MODEL_FILES), ignore_patterns=["*/*"]
            )
    except Exception as error:  # the library has a dozen kinds, and httpx's beside
        raise explain(error, name, "model") from error
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise CourseError(f"The model {name.place!r} has no config.json, so it is none that the course can read.")
    return folder


def commit(name: Name, kind: Kind) -> str | None:
    """The commit that a revision ("main" if there is none) stood for when it was last fetched; None: never fetched."""
    revision = name.revision or "main"
    if COMMIT.fullmatch(revision):
        return revision
    ref = _repository(name, kind) / "refs" / revision
    return ref.read_text(encoding="utf-8").strip() if ref.is_file() else None


def snapshot(name: Name, kind: Kind) -> Path | None:
    """The files of a repository at its revision that lie in the cache, if any."""
    known = commit(name, kind)
    folder = _repository(name, kind) / "snapshots" / (known or "none")
    return folder if folder.is_dir() else None


def explain(error: BaseException, name: Name, kind: Kind) -> CourseError:
    """One sentence for what went wrong on the way to the hub, or with a folder in its layout."""
    what = f"The {kind} {name.place!r}" + (f" at revision {name.revision!r}" if name.revision else "")
    causes = _causes(error)
    kinds = {parent.__name__ for cause in causes for parent in type(cause).__mro__}
    said = " ".join(str(cause) for cause in causes)
    if "RevisionNotFoundError" in kinds or "Revision '" in said:
        return CourseError(f"{what} does not exist; look its revisions up on its page, or leave the revision out.")
    if "GatedRepoError" in kinds or "is a gated dataset" in said:
        return CourseError(f"{what} is given only to those who asked its owners; ask on its page and log in.")
    if kinds & {"RepositoryNotFoundError", "DatasetNotFoundError"}:
        return CourseError(f"{what} is not on the hub, or is private; check the spelling of its name.")
    if name.folder is None and kinds & UNREACHED:
        return CourseError(
            f"{what} cannot be had: the hub does not answer (or HF_HUB_OFFLINE is set), and the cache holds no whole "
            "copy; fetch it once where there is a network, or give the path of a folder instead."
        )
    if "no longer supported" in said:
        return CourseError(
            f"{what} comes as a Python script, and the course executes no code of others; many such datasets have "
            "their tables under the revision refs/convert/parquet."
        )
    if kinds & {"SplitsVerificationError", "ChecksumVerificationError"}:
        return CourseError(f"{what} does not hold what its description says; some file of it is missing or damaged.")
    reason = next((line.strip() for line in str(error).split("\n") if line.strip()), type(error).__name__)
    return CourseError(f"{what} could not be loaded: {reason.rstrip('.')}.")


@contextmanager
def reached() -> Iterator[None]:
    """Ask the hub first whether it answers; if not, the libraries work from their caches inside of this context.

    Left alone, they would try again for half a minute, file by file.
    """
    import datasets
    from huggingface_hub import constants, get_session

    answers, before = False, (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE)
    with suppress(Exception):  # whatever stands between: no network, a proxy, HF_HUB_OFFLINE
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
        answers = True
    try:
        if not answers:
            constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
        yield
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before


def _repository(name: Name, kind: Kind) -> Path:
    """Where the library keeps what it fetched of a repository."""
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE) / f"{kind}s--{name.place.replace('/', '--')}"


def _causes(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain
