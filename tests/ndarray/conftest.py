"""gpushim.ndarray works without install(): these tests never call it. GPUSHIM_TEST_DEVICE chooses the device."""

import os

os.environ["GPUSHIM_DEVICE"] = os.environ.get("GPUSHIM_TEST_DEVICE", "host")
