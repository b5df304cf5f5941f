"""Cleans a noisy photograph and reduces it to a few colours: non-local means, then k-means in colour space.

    python photo.py [picture] [--output FOLDER] [--colours N] [--search N]

Writes noisy.png, clean.png, quantised.png and results.npz. The picture defaults to a photograph that ships with
scikit-learn. Plain NumPy; Pillow reads and writes the files.
"""

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np
from PIL import Image


def sample_picture():
    """The path of scikit-learn's china.jpg, without importing scikit-learn."""
    package = importlib.util.find_spec("sklearn")
    if package is None:
        raise SystemExit("photo.py: give a picture, or install scikit-learn, which ships one")
    return Path(package.origin).parent / "datasets" / "images" / "china.jpg"


def add_noise(picture, sigma, seed):
    noise = np.random.default_rng(seed).standard_normal(picture.shape)
    return np.clip(picture + sigma * noise, 0, 255)


def non_local_means(noisy, sigma, search, patch=2):
    """Replaces each pixel by the mean of the pixels around it, weighted by how much their neighbourhoods look alike.

    noisy: float array (height, width, channels). sigma: standard deviation of its noise. search, patch: radii of the
    window searched and of the neighbourhoods compared. A. Buades, B. Coll, J.-M. Morel, CVPR 2005.
    """
    height, width, _ = noisy.shape
    reach = search + patch
    wide = np.pad(noisy, ((reach, reach), (reach, reach), (0, 0)), mode="reflect")
    rows, columns = height + 2 * patch, width + 2 * patch
    centre = wide[search : search + rows, search : search + columns]
    total = np.zeros_like(noisy)
    weights = np.zeros((height, width, 1))
    for dy in range(2 * search + 1):
        for dx in range(2 * search + 1):
            moved = wide[dy : dy + rows, dx : dx + columns]
            distance = ((moved - centre) ** 2).mean(axis=2)
            distance = sum(distance[i : i + height] for i in range(2 * patch + 1))
            distance = sum(distance[:, i : i + width] for i in range(2 * patch + 1)) / (2 * patch + 1) ** 2
            # The noise of two equal neighbourhoods is worth 2 sigma^2.
            weight = np.exp(-np.maximum(distance - 2 * sigma**2, 0) / (0.4 * sigma) ** 2)[:, :, None]
            total += weight * moved[patch:-patch, patch:-patch]
            weights += weight
    return total / weights


def nearest(pixels, centres):
    distance = (pixels**2).sum(axis=1)[:, None] - 2 * pixels @ centres.T + (centres**2).sum(axis=1)
    return distance.argmin(axis=1)


def kmeans(pixels, count, iterations):
    """Lloyd's algorithm from evenly spaced percentiles of brightness; pixels (n, channels) -> centres, labels."""
    order = np.argsort(pixels.sum(axis=1), kind="stable")
    centres = pixels[order[np.linspace(0, len(order) - 1, count).astype(int)]]
    for _ in range(iterations):
        labels = nearest(pixels, centres)
        sizes = np.bincount(labels, minlength=count)
        sums = np.stack(
            [np.bincount(labels, weights=pixels[:, c], minlength=count) for c in range(pixels.shape[1])], axis=1
        )
        moved = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
        shift = np.abs(moved - centres).max()
        centres = moved
        if shift < 0.01:
            break
    return centres, nearest(pixels, centres)


def save(path, picture):
    Image.fromarray(np.round(picture).astype(np.uint8)).save(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", nargs="?", type=Path)
    parser.add_argument("--output", type=Path, default=Path("demo-output"))
    parser.add_argument("--colours", type=int, default=24)
    parser.add_argument("--search", type=int, default=5, help="radius of the search window")
    parser.add_argument("--sigma", type=float, default=18.0, help="the noise that is added")
    arguments = parser.parse_args()

    with Image.open(arguments.picture or sample_picture()) as file:
        original = np.asarray(file.convert("RGB")).astype(np.float64)
    noisy = add_noise(original, arguments.sigma, seed=0)
    start = time.perf_counter()
    clean = non_local_means(noisy, arguments.sigma, arguments.search)
    error_before = np.sqrt(((noisy - original) ** 2).mean())
    error_after = np.sqrt(((clean - original) ** 2).mean())
    denoised = time.perf_counter()
    centres, labels = kmeans(clean.reshape(-1, 3), arguments.colours, iterations=30)
    quantised = centres[labels].reshape(clean.shape)
    done = time.perf_counter()

    arguments.output.mkdir(parents=True, exist_ok=True)
    save(arguments.output / "noisy.png", noisy)
    save(arguments.output / "clean.png", clean)
    save(arguments.output / "quantised.png", quantised)
    np.savez(arguments.output / "results.npz", clean=clean, centres=centres, labels=labels)
    print(f"denoise  {denoised - start:7.3f} s   error {error_before:.2f} -> {error_after:.2f} levels")
    print(f"quantise {done - denoised:7.3f} s   {len(centres)} colours")


if __name__ == "__main__":
    main()
