import gc

import gpushim
import pytest


@pytest.fixture(scope="module")
def installed():
    """Everything goes through blocks on the host device."""
    gpushim.install(device="host", min_bytes=0)
    yield
    gpushim.uninstall()


@pytest.fixture
def no_leaks(installed):
    """The test gives back every block it took."""
    gc.collect()
    before = gpushim.memory_info()["live_blocks"]
    yield
    gc.collect()
    assert gpushim.memory_info()["live_blocks"] <= before
