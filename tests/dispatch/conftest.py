"""Everything forced to the device: the host device, or CUDA where GPUSHIM_TEST_DEVICE says so."""

import os

import gpushim
import pytest

DEVICE = os.environ.get("GPUSHIM_TEST_DEVICE", "host")


@pytest.fixture(scope="package", autouse=True)
def installed():
    gpushim.install(device=DEVICE, min_bytes=0)
    yield
    gpushim.uninstall()
