"""A dask.array program on a local cluster whose workers run NumPy on gpushim: 64 MiB of data, 8 MiB of device memory each.

python examples/dask_blocks.py [device]
"""

import sys


def main(device: str = "auto") -> None:
    import dask.array as da
    import gpushim.dask
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        client.register_plugin(gpushim.dask.WorkerPlugin(device=device, min_bytes=1 << 16, device_limit=8 << 20))
        x = da.random.default_rng(0).random((4096, 2048), chunks=(512, 1024))
        result = ((da.sin(x) ** 2 + da.cos(x) ** 2).sum(axis=0) / x.shape[0]).compute()
        device_calls = client.run(lambda: sum(f["device_calls"] for f in gpushim._shim.stats()["functions"]))
        assert abs(result - 1).max() < 1e-12
        print(f"{x.nbytes >> 20} MiB, calls on the device: {sum(device_calls.values())}")
        assert sum(device_calls.values()) > 0


if __name__ == "__main__":
    main(*sys.argv[1:])
