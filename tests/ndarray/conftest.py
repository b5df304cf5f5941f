"""gpushim.ndarray works without install(): these tests run with NumPy as it is. GPUSHIM_TEST_DEVICE chooses the device."""

import os

import pytest

DEVICE = os.environ["GPUSHIM_DEVICE"] = os.environ.get("GPUSHIM_TEST_DEVICE", "host")


@pytest.fixture(autouse=True)
def not_installed():
    """Other tests of the same process may have installed gpushim for a whole package."""
    import gpushim

    installed = gpushim.is_installed()
    if installed:
        gpushim.uninstall()
    yield
    if installed:
        gpushim.install(device=DEVICE, min_bytes=0)
