"""The published files have all that the program reads, and nothing that only we need."""

import tarfile
import zipfile
from email.parser import Parser
from pathlib import PurePosixPath

PACKAGES = {
    "kp_middleware": "kp_middleware",
    "kp_langchain": "adapters/kp_langchain",
    "kp_openai_agents": "adapters/kp_openai_agents",
    "kp_otel": "adapters/kp_otel",
}


NO_CODE = (
    *("kp_*/py.typed", "kp_middleware/database/*.sql", "templates/*.css"),
    *("templates/frame.html", "*.dist-info/licenses/LICENSE"),
)


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(wheel, repository):
    ours = {
        f"{package}/{file.relative_to(repository / folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for file in (repository / folder).rglob("*.*")
        if file.suffix != ".pyc"
    }
    with zipfile.ZipFile(wheel) as archive:
        packed = [PurePosixPath(name) for name in archive.namelist()]

    assert {str(file) for file in packed if ".dist-info" not in file.parts[0]} == ours
    assert [one for one in NO_CODE if not any(file.match(one) for file in packed)] == []


def test_the_source_distribution_has_the_tests_and_the_licence(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"LICENSE", "CHANGELOG.md", "Makefile", "tests/conftest.py"} <= names
    assert not any(name.startswith((".venv", "build/", "dist/")) for name in names)


def test_it_says_what_it_is(wheel, repository):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())

    assert (metadata["Name"], metadata["Version"]) == ("kp-middleware", "0.1.0")
    assert (metadata["License-Expression"], metadata["License-File"]) == ("Apache-2.0", "LICENSE")
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (repository / "README.md").read_text("utf-8").strip()
