"""Build cyipopt with the IPOPT of the casadi wheel, in the environment of this interpreter.

cyipopt has no wheel, and its build uses pkg-config to find `ipopt`. This script writes a temporary ipopt.pc with
casadi's headers and library, uses pkgconf from PyPI as pkg-config, and sets the run path of the extension to casadi's
folder. It also adds types to two arrays of the source (UNTYPED): without types, cyipopt copies each entry of Jacobian
and Hessian as a Python object.

The script does nothing if cyipopt with IPOPT >= 3.14 is already installed.

Usage: python tools/install_cyipopt.py [--require]
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

REQUIREMENT = "cyipopt>=1.5"
IPOPT_MINIMUM = (3, 14)
LINES_SHOWN = 15  # lines of the output of a failed build
CONSTRAINTS = Path(__file__).resolve().parents[1] / "constraints.txt"
AGAIN = f"{shlex.quote(sys.executable)} {shlex.quote(sys.argv[0])}"

PROBE = """
import cyipopt
print(cyipopt.__version__, *cyipopt.IPOPT_VERSION)
"""

SOURCE = "cyipopt/cython/ipopt_wrapper.pyx"
UNTYPED = ("np_jac_g", "np_h")

IPOPT_PC = """\
Name: ipopt
Description: the IPOPT of the casadi wheel
Version: {version}
Cflags: -I{casadi}/include/coin-or
Libs: -L{casadi} -lipopt
"""


class InstallError(Exception):
    """The installation failed. Holds the reason, the remedy and the output to print."""

    def __init__(self, reason: str, remedy: str, output: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.output = output


def main() -> int:
    """Install cyipopt if it is missing; return the exit status."""
    parser = argparse.ArgumentParser(description="Build cyipopt against the IPOPT inside the casadi wheel.")
    parser.add_argument("--require", action="store_true", help="exit with status 1 if cyipopt cannot be installed")
    arguments = parser.parse_args()
    try:
        found, _ = probe()
        if found:
            print(f"{found}: already installed")
            return 0
        print(f"{install()}: installed")
        return 0
    except InstallError as error:
        for line in error.output.strip().splitlines()[-LINES_SHOWN:]:
            print(f"  | {line}", file=sys.stderr)
        kind = "error" if arguments.require else "warning"
        print(f"{kind}: cyipopt is not installed: {error}. {error.remedy}", file=sys.stderr)
        if not arguments.require:
            print("Solvers that call IPOPT through cyipopt are not available; all others are.", file=sys.stderr)
        return int(arguments.require)


def probe() -> tuple[str, str]:
    """Return (versions, "") if a new interpreter imports a recent cyipopt, else ("", the reason)."""
    result = run([sys.executable, "-c", PROBE])
    if result.returncode:
        return "", result.stdout
    version, *ipopt = result.stdout.splitlines()[-1].split()  # below any warning
    name = f"cyipopt {version} with IPOPT {'.'.join(ipopt)}"
    if tuple(map(int, ipopt[:2])) < IPOPT_MINIMUM:
        return "", f"{name} is too old"
    return name, ""


def install() -> str:
    """Build and install cyipopt, and return the versions it reports. Raises InstallError."""
    casadi = find_casadi()
    check_build_tools()
    pip("install", "pkgconf")
    with tempfile.TemporaryDirectory() as folder:
        environment = build_environment(Path(folder), casadi)
        source = typed_source(Path(folder), environment)
        # No cache: it may contain a wheel linked to another IPOPT. No dependencies: numpy is installed.
        pip("install", "--no-cache-dir", "--no-deps", "--force-reinstall", str(source), environment=environment)
    found, reason = probe()
    if not found:
        raise InstallError("it was built but does not import", "Please report the output above.", reason)
    return found


def find_casadi() -> Path:
    """Return the folder of the casadi package, which contains IPOPT. Raises InstallError."""
    spec = importlib.util.find_spec("casadi")
    if spec is None or spec.origin is None:
        raise InstallError("casadi, which provides IPOPT, is missing", "Run: pip install casadi")
    folder = Path(spec.origin).parent
    if not (folder / "include" / "coin-or" / "IpStdCInterface.h").exists():
        raise InstallError("this build of casadi has no IPOPT", "Install casadi's wheel: pip install casadi")
    return folder


def check_build_tools() -> None:
    """Raise InstallError if the C compiler or Python's headers are missing."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise InstallError(
            f"the C compiler {compiler!r} was not found",
            f"Install one (Debian, Ubuntu: apt install gcc libc6-dev) or name one in CC, then run: {AGAIN}",
        )
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise InstallError(
            "Python.h was not found",
            f"Install Python's headers (Debian, Ubuntu: apt install python3-dev), then run: {AGAIN}",
        )


def build_environment(folder: Path, casadi: Path) -> dict[str, str]:
    """Write ipopt.pc and a pkg-config into the folder; return the environment of a build that uses them."""
    # Links without spaces: cyipopt's setup.py splits the flags at spaces.
    (folder / "casadi").symlink_to(casadi)
    version = ".".join(map(str, IPOPT_MINIMUM))
    (folder / "ipopt.pc").write_text(IPOPT_PC.format(version=version, casadi=folder / "casadi"))
    # The executable itself: pkgconf's Python entry point does not find its package in pip's isolated build.
    code = "import pkgconf; print(pkgconf.get_executable())"
    executable = run([sys.executable, "-c", code]).stdout.strip().splitlines()[-1]
    (folder / "pkg-config").symlink_to(executable)
    origin = "@loader_path" if sys.platform == "darwin" else "$ORIGIN"
    environment = dict(os.environ)
    environment["PATH"] = os.pathsep.join([str(folder), environment.get("PATH", os.defpath)])
    environment["PKG_CONFIG_PATH"] = str(folder)
    environment["LDFLAGS"] = f"{environment.get('LDFLAGS', '')} -Wl,-rpath,{origin}/../casadi".strip()
    return environment


def typed_source(folder: Path, environment: dict[str, str]) -> Path:
    """Download and unpack the source of cyipopt, and declare the types of UNTYPED; return the unpacked folder."""
    options = ["--no-cache-dir", "--no-binary", "cyipopt", "--no-deps", "--dest", str(folder)]
    options += ["--constraint", str(CONSTRAINTS)] if CONSTRAINTS.exists() else []
    pip("download", *options, REQUIREMENT, environment=environment)
    shutil.unpack_archive(next(folder.glob("cyipopt-*.tar.gz")), folder)
    source = next(path for path in folder.glob("cyipopt-*") if path.is_dir())
    wrapper = source / SOURCE
    text = wrapper.read_text()
    for name in UNTYPED:
        text = text.replace(f"\n    {name} = np.array(", f"\n    cdef np.ndarray[DTYPEd_t, ndim=1] {name} = np.array(")
    wrapper.write_text(text)
    return source


def pip(*arguments: str, environment: dict[str, str] | None = None) -> None:
    """Run pip. Raises InstallError with its output."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments]
    result = run(command, environment)
    if result.returncode:
        remedy = f"Fix the errors in the output above, then run: {AGAIN}"
        raise InstallError(f"pip {' '.join(arguments)} failed", remedy, result.stdout)


def run(command: list[str], environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command without a terminal; its error output is merged into its standard output."""
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )


if __name__ == "__main__":
    sys.exit(main())
