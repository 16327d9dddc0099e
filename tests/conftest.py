"""Tests see no settings, files or traces of whoever runs them; only the cached model is shared."""

import os
from pathlib import Path

import pytest
from hypothesis import settings
from platformdirs import user_cache_path

_REPOSITORY = Path(__file__).parents[1]
_SHARED = _REPOSITORY.parent / "shared"
_CACHES = user_cache_path()
_OURS = [name for name in os.environ if name.upper().startswith("KP_")]
_PLACES = {"HOME": "", "XDG_CONFIG_HOME": ".config", "XDG_DATA_HOME": "d", "XDG_STATE_HOME": "s"}

settings.register_profile("unhurried", deadline=None)  # a busy machine is no failure
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path_factory):
    """A home of its own for each test, with nothing in it."""
    folder = tmp_path_factory.mktemp("home")
    [monkeypatch.delenv(name) for name in _OURS]
    monkeypatch.setenv("XDG_CACHE_HOME", str(_CACHES))
    [monkeypatch.setenv(name, str(folder / place)) for name, place in _PLACES.items()]
    return folder


@pytest.fixture(scope="session")
def repository():
    """The folder of the checkout."""
    return _REPOSITORY


@pytest.fixture(scope="session")
def shared():
    """The folder of shared material beside the checkout, which a clone need not have."""
    return _SHARED if _SHARED.exists() else pytest.skip("the shared material is not here")
