"""Build of the C library and of traces with the package, and names in a wheel; everything else is in pyproject.toml."""

import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

sys.path.insert(0, str(Path(__file__).parent / "tools"))

import build_traces
from build_kernels import best_sets, build, files
from wheel_names import NAMES, wheel_name

PACKAGE = "dynamics_backends.machine"


class BuildKernels(build_ext):
    """Builds the libraries: of this machine's instruction set beside the sources for editable installs, else all, with traces."""

    def run(self):
        beside_sources = self.inplace or self.editable_mode
        build(Path(self._folder()), best_sets() if beside_sources else None)
        if not beside_sources:
            print(build_traces.build(Path(self.build_lib).resolve()))

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
    """Wheel for all versions of Python, since the library is loaded, not imported; its packages have the names of `wheel_names`."""

    def run(self):
        project = self.distribution
        project.package_dir = {name: folder for folder, name in NAMES.items()}
        project.packages = [wheel_name(package) for package in project.packages]
        project.package_data = {wheel_name(package): data for package, data in project.package_data.items()}
        for group, points in project.entry_points.items():
            pairs = [point.replace(" ", "").split("=") for point in points]
            project.entry_points[group] = [f"{name} = {wheel_name(value)}" for name, value in pairs]
        self.dist_info_dir = None  # written before the command was known, with the names of an editable install
        build = self.get_finalized_command("build")
        self.reinitialize_command(
            "egg_info"
        ).egg_base = build.build_base  # entry points beside the sources would be used there
        shutil.rmtree(build.build_lib, ignore_errors=True)  # it may hold packages of an earlier build
        super().run()

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(
    ext_modules=[Extension(f"{PACKAGE}.kernels", sources=[])],
    cmdclass={"build_ext": BuildKernels, "bdist_wheel": PlatformWheel},
)
