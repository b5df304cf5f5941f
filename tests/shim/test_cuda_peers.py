"""Other CUDA libraries read arrays that the device owns: the fault then comes from inside the driver."""

import importlib.util

import pytest
from device_arrays import run_script

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("library, expression", [
    ("torch", "torch.from_numpy(y).cuda().cpu().numpy()"),
    ("cupy", "cupy.asnumpy(cupy.asarray(y))"),
])  # fmt: skip
@pytest.mark.parametrize("size", [1000, 1 << 20, 24 << 20])
def test_upload_of_a_device_owned_array(library, expression, size):
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"no {library}")
    done = run_script(
        f"""
        # install by hand
        import gpushim
        assert gpushim.install(device="cuda", min_bytes=0)
        import numpy as np, {library}
        for _ in range(3):
            y = np.arange({size}, dtype=np.float64) * 2
            assert gpushim.location(y) in ("device", "pending")
            back = {expression}
            assert (back == np.arange({size}) * 2.0).all()
        """,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
