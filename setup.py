"""Puts data/ into the wheel, so that an installed course_lib finds its checkpoints and texts.

All else about the package stands in pyproject.toml."""

from pathlib import Path
from shutil import copytree

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithData(build_py):
    """Builds the packages, and copies data/ to where `course_lib.files.DATA` looks for it."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # a checkout has its data/ beside the packages
            copytree("data", Path(self.build_lib, "course_lib", "shipped"), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildWithData})
