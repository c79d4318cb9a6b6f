"""Builds the native libraries with the package; everything else is in pyproject.toml."""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithNative(build_py):
    """Compile libvgpu.so and the emulated machine into pumice/_native before the package's files are collected."""

    def run(self):
        subprocess.run(["make", "-C", str(Path(__file__).parent / "native"), "install"], check=True)
        super().run()


setup(cmdclass={"build_py": BuildWithNative})
