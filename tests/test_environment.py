"""One list of what must be installed: pyproject.toml. The other files agree with it."""

import re
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from lessons import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def package_of(requirement: str) -> str:
    """ "numpy" of "NumPy>=2.0"."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    assert all(len(pair) == 2 for pair in pairs), "constraints.txt pins exact versions: name==1.2"
    return {package_of(name): version for name, version in pairs}


def test_conda_s_environment_is_that_of_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    *conda, by_pip = environment["dependencies"]
    assert conda == [f"python{PROJECT['requires-python']}", "pip"]
    assert set(by_pip) == {"pip"}
    constraints, course = by_pip["pip"]
    assert constraints == "-c constraints.txt"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (extras,) = re.findall(r"installed-all: EXTRAS := (\S+)", makefile)
    assert course == f"-e .[{extras}]"
    assert set(extras.split(",")) <= set(EXTRAS)


def test_make_install_sets_up_what_instructors_need_and_runs_no_test():
    dry = ["make", "--dry-run", "--always-make", "install"]
    said = subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (extras,) = re.findall(r"-e '\.\[(\S+)\]'", said)
    assert {*extras.split(",")} == {"lab", "grading", "authoring", "book"}
    assert "pytest" not in said


def test_every_package_that_pyproject_names_is_pinned():
    named = [*PROJECT["dependencies"], *(name for extra in EXTRAS.values() for name in extra)]
    assert {package_of(name) for name in named} - set(pins()) == set()


def test_nothing_slow_is_imported_with_every_notebook():
    assert "rfc3987-syntax" not in pins(), "see constraints.txt on jsonschema"


def test_a_pin_lies_in_the_range_of_pyproject():
    pinned = pins()
    named = [*PROJECT["dependencies"], *(name for extra in EXTRAS.values() for name in extra)]
    for requirement in map(Requirement, named):
        version = pinned[package_of(requirement.name)]
        assert requirement.specifier.contains(version), (requirement, version)


@pytest.mark.parametrize("package", pins())
def test_a_pinned_version_installs_on_the_oldest_python_that_is_promised(package):
    """soupsieve 4.1.1 asked for Python 3.11.5, and Debian 12 has 3.11.2: nothing was installed."""
    try:
        installed = distribution(package)
    except PackageNotFoundError:
        pytest.skip(f"{package} is not installed on this system")
    oldest = re.fullmatch(r">=([0-9.]+)", PROJECT["requires-python"])[1]
    # `get`: where Dask was imported, metadata are those of another package, which raises KeyError.
    assert SpecifierSet(installed.metadata.get("Requires-Python") or "").contains(oldest)


def test_torch_is_the_build_that_needs_no_gpu():
    assert pins()["torch"] == "2.13.0"
