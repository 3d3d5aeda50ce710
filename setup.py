"""Build of the C library with the package; everything else is in pyproject.toml."""

import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent / "tools"))

from build_kernels import build, files

PACKAGE = "dynamics_backends.machine"


class BuildKernels(build_ext):
    """Builds the libraries of all instruction sets: beside the sources for editable installs, else into the wheel."""

    def run(self):
        build(Path(self._folder()))

    def _folder(self) -> str:
        inside = PACKAGE.replace(".", "/")
        return inside if self.inplace or self.editable_mode else f"{self.build_lib}/{inside}"

    def get_outputs(self):
        return [f"{self._folder()}/{name}" for name in files()]

    def get_output_mapping(self):
        return {}

    def get_source_files(self):
        return []


class PlatformWheel(bdist_wheel):
    """One wheel serves all versions of Python: the library is loaded, not imported."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension(f"{PACKAGE}.kernels", sources=[])],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
)
