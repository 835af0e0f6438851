"""The equations of the paper as plain loops: slow, literal, sharing no line with the library.

Kernels are functions of two rows. Sums over pairs run in `WIDE` (80-bit where the platform has it), so that
1 - k is still known to seven digits when rows are 1e-6 apart; everything else is float64.
Sizes N_l are sums of sample weights: a row of weight w counts as w rows. Where a formula has no obvious
place for a weight (KDI), the row is repeated instead.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

WIDE = np.longdouble
PairKernel = Callable[[np.ndarray, np.ndarray], Any]  # a number in WIDE

# ---- Kernels of one pair of rows ------------------------------------------------------------


def gaussian(sigma: float) -> PairKernel:
    return lambda a, b: np.exp(-((a - b) @ (a - b)) / (2 * WIDE(sigma) ** 2))


def gaussian_mixture(sigmas=(1, 2, 4, 8, 16)) -> PairKernel:
    """Eq. gauss_mixture: 1/T sum_t exp(-|a - b|^2 / (2 sigma_t^2))."""
    two_sigma_squared = 2 * np.asarray(sigmas, WIDE) ** 2
    return lambda a, b: np.exp(-((a - b) @ (a - b)) / two_sigma_squared).sum() / len(sigmas)


def laplacian(sigma: float) -> PairKernel:
    return lambda a, b: np.exp(-np.sqrt((a - b) @ (a - b)) / WIDE(sigma))


def polynomial(order: int, gamma: float = 1.0) -> PairKernel:
    return lambda a, b: (1 + WIDE(gamma) * (a @ b)) ** order


def mixture(kernels: list[PairKernel], weights: list[float]) -> PairKernel:
    return lambda a, b: sum((WIDE(w) * k(a, b) for k, w in zip(kernels, weights, strict=True)), WIDE(0))


def median_distance(z, present=None, floor: float = 1e-6) -> float:
    """Median of |z_i - z_j| over pairs i < j of present rows, at least `floor`."""
    z = np.asarray(z, WIDE)
    rows = [i for i in range(len(z)) if present is None or present[i]]
    distances = [np.sqrt((z[i] - z[j]) @ (z[i] - z[j])) for i in rows for j in rows if i < j]
    return max(float(np.median(distances)), floor) if distances else floor


def gram(z, kernel: PairKernel) -> np.ndarray:
    """K_ij = k(z_i, z_j)."""
    z = np.asarray(z, WIDE)
    k = np.zeros((len(z), len(z)), WIDE)
    for i in range(len(z)):
        for j in range(i + 1):
            k[i, j] = k[j, i] = kernel(z[i], z[j])
    return k


# ---- Maximum mean discrepancy -----------------------------------------------------------------------


def mmd_terms(k: np.ndarray, labels, num_classes: int, weights=None) -> list[tuple[float, float]]:
    """For each class that can be compared with a rest: (N_l / N, the squared MMD of eq. MMD_obj)."""
    w = np.ones(len(k), WIDE) if weights is None else np.asarray(weights, WIDE)
    terms = []
    for label in range(num_classes):
        p = np.array([wi if s == label else 0 for wi, s in zip(w, labels, strict=True)], WIDE)
        q = w - p
        size, rest = p.sum(), q.sum()
        if size == 0 or rest == 0:
            continue
        square = (p @ k @ p) / size**2 + (q @ k @ q) / rest**2 - 2 * (p @ k @ q) / (size * rest)
        terms.append((float(size / w.sum()), float(square)))
    return terms


def mmd(k: np.ndarray, labels, num_classes: int, weights=None) -> float:
    """Eq. MMD_obj: sum_l N_l/N (squared MMD of class l against the rest)^(1/2)."""
    return sum(
        share * max(square, 0.0) ** 0.5 for share, square in mmd_terms(k, labels, num_classes, weights)
    )


def binary_mmd(k: np.ndarray, labels) -> float:
    """Eq. MMD_sq, by its three double sums."""
    zero = [i for i, s in enumerate(labels) if s == 0]
    one = [i for i, s in enumerate(labels) if s == 1]
    square = sum(k[i, j] for i in zero for j in zero) / len(zero) ** 2
    square += sum(k[i, j] for i in one for j in one) / len(one) ** 2
    square -= 2 * sum(k[i, j] for i in zero for j in one) / (len(zero) * len(one))
    return float(max(square, WIDE(0)) ** 0.5)


def fourier_features(z, frequencies, phases) -> np.ndarray:
    """phi(z_i) = sqrt(2/m) cos(W'z_i + b)."""
    z, frequencies = np.asarray(z, WIDE), np.asarray(frequencies, WIDE)
    return np.sqrt(WIDE(2) / len(phases)) * np.cos(z @ frequencies + np.asarray(phases, WIDE))


def rff_mmd(z, labels, num_classes: int, frequencies, phases, weights=None) -> float:
    """sum_l N_l/N | mean of phi over class l - mean of phi over the rest |."""
    phi = fourier_features(z, frequencies, phases)
    w = np.ones(len(phi), WIDE) if weights is None else np.asarray(weights, WIDE)
    total = WIDE(0)
    for label in range(num_classes):
        p = np.array([wi if s == label else 0 for wi, s in zip(w, labels, strict=True)], WIDE)
        q = w - p
        if p.sum() == 0 or q.sum() == 0:
            continue
        gap = p @ phi / p.sum() - q @ phi / q.sum()
        total += p.sum() / w.sum() * np.sqrt(gap @ gap)
    return float(total)


# ---- Least squares criteria -------------------------------------------------------------------------


def one_hot(labels, num_classes: int) -> np.ndarray:
    p = np.zeros((len(labels), num_classes))
    for i, s in enumerate(labels):
        p[i, s] = 1
    return p


def centred_gram(k: np.ndarray) -> np.ndarray:
    """C K C, C = I - 11'/N, in float64 after the subtraction."""
    k = np.asarray(k, WIDE)
    row = k.mean(1)
    return np.asarray(k - row[:, None] - row[None, :] + row.mean(), np.float64)


def kdi_literal(k: np.ndarray, p: np.ndarray, rho: float) -> float:
    """Eq. KDI_obj as printed: tr( (Kc^2 + rho Kc)^+ Kc P P' Kc )."""
    kc = centred_gram(k)
    inverse = np.linalg.pinv(kc @ kc + rho * kc, rcond=1e-14, hermitian=True)
    return float(np.trace(inverse @ kc @ p @ p.T @ kc))


def kdi(k: np.ndarray, p: np.ndarray, rho: float) -> float:
    """The same by the eigenvalues of Kc: sum_i lambda_i / (lambda_i + rho) |v_i'P|^2.

    The pseudo-inverse of Kc^2 squares the condition number, which loses digits even in float64.
    """
    kc = centred_gram(k)
    p = p - p.mean(0)
    values, vectors = np.linalg.eigh(kc)
    values = np.maximum(values, 0)
    return float((values / (values + rho) @ (vectors.T @ p) ** 2).sum())


def repeated(weights, unit: float = 0.25) -> np.ndarray:
    """Row numbers, each repeated weight / unit times."""
    return np.repeat(np.arange(len(weights)), np.rint(np.asarray(weights) / unit).astype(int))


def weighted_kdi(k: np.ndarray, p: np.ndarray, rho: float, weights, unit: float = 0.25) -> float:
    """KDI with row i counted weights_i times; a weight in units u is a ridge rho / u."""
    rows = repeated(weights, unit)
    if len(rows) == 0:
        return 0.0
    return unit * kdi(k[np.ix_(rows, rows)], p[rows], rho / unit)


def discriminant_information(x, y: np.ndarray, rho: float) -> float:
    """tr( (S + rho I)^-1 S_B ), S = Xc'Xc, S_B = Xc'Y Y'Xc."""
    x = np.asarray(x, np.float64)
    x = x - x.mean(0)
    scatter, between = x.T @ x, x.T @ y @ y.T @ x
    return float(np.trace(np.linalg.solve(scatter + rho * np.eye(x.shape[1]), between)))


def discriminant_information_by_svd(x, y: np.ndarray, rho: float) -> float:
    """The same as sum_i s_i^2 / (s_i^2 + rho) |u_i'Y|^2, Xc = U s V', also right for near singular S."""
    x = np.asarray(x, np.float64)
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    s = np.where(s > 1e-12 * s.max(initial=0), s, 0)
    return float((s**2 / (s**2 + rho) @ (u.T @ (y - y.mean(0))) ** 2).sum())


def orthonormality(w) -> float:
    """|W'W - I|_F^2, entry by entry."""
    w = np.asarray(w, np.float64)
    total = 0.0
    for a in range(w.shape[1]):
        for b in range(w.shape[1]):
            total += float(w[:, a] @ w[:, b] - (a == b)) ** 2
    return total


# ---- Critics ----------------------------------------------------------------------------------------


def critic_scores(z, params) -> np.ndarray:
    """scores_l(z) = sum_k B_kl tanh(z_k) + C_kl z_k + a_l."""
    z = np.asarray(z, np.float64)
    return np.tanh(z) @ params["tanh"] + z @ params["linear"] + params["bias"]


def critic_gradient(row, label: int, params) -> np.ndarray:
    """d scores_label / dz at one row, in closed form."""
    row = np.asarray(row, np.float64)
    return (1 - np.tanh(row) ** 2) * params["tanh"][:, label] + params["linear"][:, label]


def wdn_contrast(scores: np.ndarray, labels, weights=None) -> float:
    """L_D of eq. wdn_disc_obj: sum_l N_l/N ( mean of output l over class l - its mean over the rest )."""
    n, num_classes = scores.shape
    w = np.ones(n) if weights is None else np.asarray(weights, np.float64)
    total = 0.0
    for label in range(num_classes):
        own = [i for i in range(n) if labels[i] == label and w[i] > 0]
        rest = [i for i in range(n) if labels[i] != label and w[i] > 0]
        if not own or not rest:
            continue
        size, others = sum(w[i] for i in own), sum(w[i] for i in rest)
        gap = sum(w[i] * scores[i, label] for i in own) / size
        gap -= sum(w[i] * scores[i, label] for i in rest) / others
        total += size / w.sum() * gap
    return total


def lipschitz_penalty(z, labels, gradient_of, weights=None) -> float:
    """L_R: 1/N sum_i ( |grad of output s_i at z_i| - 1 )^2."""
    w = np.ones(len(z)) if weights is None else np.asarray(weights, np.float64)
    total = 0.0
    for i in range(len(z)):
        if w[i] > 0:
            slope = gradient_of(z[i], labels[i])
            total += w[i] * (np.sqrt(slope @ slope) - 1) ** 2
    return total / w.sum() if w.sum() else 0.0


def wdn_discriminator(z, labels, params, penalty: float = 10.0, weights=None) -> float:
    """Eq. wdn_disc_obj: L_D + lambda_R L_R."""
    slopes = lipschitz_penalty(z, labels, lambda row, s: critic_gradient(row, s, params), weights)
    return wdn_contrast(critic_scores(z, params), labels, weights) + penalty * slopes


def lsdn(scores: np.ndarray, p: np.ndarray, *, privacy: bool, weights=None, classes: bool = True) -> float:
    """Eq. LSDN_obj (privacy) or lsdn_disc_obj: 1/N sum_i |scores_i - target_i|^2.

    The target is the mean of p, or p itself. With `classes` a column without rows is left out.
    """
    w = np.ones(len(p)) if weights is None else np.asarray(weights, np.float64)
    rows = [i for i in range(len(p)) if w[i] > 0]
    if not rows:
        return 0.0
    size = sum(w[i] for i in rows)
    mean = w[rows] @ p[rows] / size
    total = 0.0
    for column in range(p.shape[1]):
        if classes and all(p[i, column] == 0 for i in rows):
            continue
        for i in rows:
            target = mean[column] if privacy else p[i, column]
            total += w[i] * (scores[i, column] - target) ** 2
    return total / size


# ---- Gradients --------------------------------------------------------------------------------------


def central_differences(function, x, step: float = 1e-5) -> np.ndarray:
    """d function / dx, one entry at a time."""
    x = np.array(x, np.float64)
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        here = x[index]
        x[index] = here + step
        above = function(x)
        x[index] = here - step
        below = function(x)
        x[index] = here
        gradient[index] = (above - below) / (2 * step)
    return gradient


# ---- Tolerances ---------------------------------------------------------------------


def mmd_tolerance(k: np.ndarray, labels, num_classes: int, weights, error: float) -> float:
    """Change of eq. MMD_obj when means of the kernel over rows change by at most `error`.

    The mean over the rest of a class of nearly all rows is a small difference of such means: a square changes
    by error (N / M_l)^2, with M_l the number of rows of the rest. The root turns an error e of a square m
    into e / (2 sqrt m), and into sqrt(e) for m = 0.
    """
    tolerance = 0.0
    for share, m in mmd_terms(k, labels, num_classes, weights):
        moved = error / (1 - share) ** 2
        tolerance += share * (max(m + moved, 0) ** 0.5 - max(m - moved, 0) ** 0.5)
    return tolerance
