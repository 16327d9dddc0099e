"""The source distribution, the wheel made from it, and Pythons with them."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="hatchling is not installed here")


def run(python, *arguments, **options):
    """Run Python and return its output; fail with its errors."""
    ran = subprocess.run(
        [python, *arguments], capture_output=True, text=True, check=False, **options
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="session")
def sdist(tmp_path_factory, repository):
    """The source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=repository)
    return next(folder.iterdir())


@pytest.fixture(scope="session")
def wheel(tmp_path_factory, sdist):
    """The wheel, built from the source distribution and nothing else."""
    folder = tmp_path_factory.mktemp("wheel")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    source = folder / sdist.name.removesuffix(".tar.gz")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def alone(request):
    """The Python of an environment without extras."""
    return installed(request, "WHEEL_ALONE")


@pytest.fixture(scope="session")
def with_extras(request):
    """The Python of an environment with all extras but `names`."""
    return installed(request, "WHEEL_EXTRAS")


def installed(request, environment):
    """The Python of an environment that `.ci/wheel` has made, with the wheel in it."""
    folder = os.environ.get(environment) or pytest.skip("`make test-wheel` runs this")
    python = Path(folder, "bin", "python")
    install = ("-m", "pip", "install", "-qq", "--no-deps", "--no-index", "--force-reinstall")
    run(python, *install, request.getfixturevalue("wheel"))
    return python
