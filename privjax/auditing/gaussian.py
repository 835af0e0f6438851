"""Squared distances and Gaussian kernels of training rows, computed once for all folds and settings."""

import numpy as np


def squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a_i - b_j|^2 in float32; exactly zero on the diagonal when b is a."""
    a32, b32 = a.astype(np.float32), b.astype(np.float32)
    distances = a32 @ b32.T
    distances *= -2.0
    distances += (a32**2).sum(1)[:, None]
    distances += (b32**2).sum(1)
    np.maximum(distances, 0.0, out=distances)
    if a is b:
        np.fill_diagonal(distances, 0.0)
    return distances


def gaussian(distances: np.ndarray, gamma: float) -> np.ndarray:
    """exp(-gamma D), of the type of D."""
    kernel = distances * np.float32(-gamma)
    return np.exp(kernel, out=kernel)
