"""Synthetic motion windows, any number of them, whose best possible trade-off is known."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from privjax.datasets.dataset import Part
from privjax.datasets.published import PublishedSet, Rows
from privjax.datasets.splits import generator

CHANNELS = ("acc_x", "acc_y", "acc_z", "gyro_x", "gyro_y", "gyro_z")
BLOCK = 1 << 16  # rows drawn from one generator; row i is the same at every size


class Truth(NamedTuple):
    """Bounds that no method can beat, and the waveforms that explain them."""

    utility_ceiling: float  # best accuracy on y from x; the bound 1 when there are habits
    identity_ceiling: float  # best accuracy on s from x, when there are no habits
    chance: float  # accuracy on s of a guess
    leak: float  # best accuracy on s of an attacker who knows y
    habit_rate: float  # how often a user does the habitual activity
    activity_waves: np.ndarray  # orthonormal waveforms `[activities, window * 6]`
    user_waves: np.ndarray  # likewise `[users, window * 6]`, orthogonal to those of the activities

    def best_utility(self, attacker: float) -> float:
        """Return the best utility of a release on which every attacker has at most some accuracy.

        With A activities, U users and p the habit rate, the bound is
        `min(ceiling, 1 - p + (U / A) * attacker)`. Without habits a linear map reaches it at chance;
        with habits it is reached everywhere when the signal is far above the noise.
        """
        if attacker < self.chance - 1e-12:
            raise ValueError(f"attacker must be at least chance, {self.chance:g}, got {attacker}.")
        per_activity = len(self.user_waves) / len(self.activity_waves)
        return min(self.utility_ceiling, 1.0 - self.habit_rate + per_activity * attacker)

    def best_release(self, x: np.ndarray) -> np.ndarray:
        """Return the linear release that is optimal without habits: one number per activity.

        It keeps all information on y, and is independent of s.
        """
        return x @ self.activity_waves.T.astype(x.dtype)


def simulated_truth(
    *,
    seed: int = 0,
    users: int = 30,
    activities: int = 6,
    window: int = 32,
    activity_signal: float = 4.0,
    user_signal: float = 4.0,
    habit: float = 0.0,
) -> Truth:
    """Compute the best possible trade-off on `simulated_sensors` with the same arguments.

    A window is `x = a w_y + b v_s + noise` with orthonormal waveforms w and v and unit normal noise.
    The best guess of one of m equally likely orthonormal waveforms at amplitude a is right with
    probability `P(m, a) = E[Phi(t)^(m - 1)]`, t normal with mean a and standard deviation 1.

    Args:
      seed: Seed of the waveforms.
      users: Number of users; a multiple of `activities` when there are habits.
      activities: Number of activities.
      window: Frames per window, even.
      activity_signal: Amplitude a of the activity.
      user_signal: Amplitude b of the user.
      habit: Share of the time a user does only the habitual activity, `s mod activities`.

    Returns:
      The bounds and waveforms.

    Example:
      >>> truth = simulated_truth(users=12, activities=4, habit=0.6)
      >>> round(truth.leak, 3), round(truth.best_utility(truth.chance), 3)
      (0.233, 0.55)
    """
    if users < 2 or activities < 2:
        raise ValueError(f"users and activities must each be at least 2, got {users} and {activities}.")
    if not 0.0 <= habit <= 1.0:
        raise ValueError(f"habit must lie between 0 and 1, got {habit}.")
    if habit and users % activities:
        raise ValueError("users must be a multiple of activities when habit is not 0.")
    activity_waves, user_waves = _waves(seed, users, activities, window)
    rate = habit + (1.0 - habit) / activities
    return Truth(
        utility_ceiling=1.0 if habit else orthogonal_accuracy(activities, activity_signal),
        identity_ceiling=orthogonal_accuracy(users, user_signal),
        chance=1.0 / users,
        leak=activities * rate / users if habit else 1.0 / users,
        habit_rate=rate,
        activity_waves=activity_waves,
        user_waves=user_waves,
    )


def simulated_blocks(
    rows: int,
    *,
    seed: int = 0,
    activity_signal: float = 4.0,
    user_signal: float = 4.0,
    habit: float = 0.0,
    **options: Any,
) -> Iterator[Part]:
    """Yield the rows of `simulated_sensors` in blocks of 65536: any number of them in bounded memory.

    Args:
      rows: Number of rows.
      seed: Seed of waveforms, labels and noise.
      activity_signal: Amplitude of the activity.
      user_signal: Amplitude of the user.
      habit: Share of the time a user does only the habitual activity.
      **options: `users`, `activities` and `window` of `simulated_truth`.

    Example:
      >>> [part.x.shape for part in simulated_blocks(70_000, window=12)]
      [(65536, 72), (4464, 72)]
    """
    if rows < 1:
        raise ValueError(f"rows must be at least 1, got {rows}.")
    truth = simulated_truth(seed=seed, habit=habit, **options)
    activity = (activity_signal * truth.activity_waves).astype(np.float32)
    user = (user_signal * truth.user_waves).astype(np.float32)
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        rng = generator(seed, f"labels {start}")
        # Whole blocks are drawn and cut, so that a shorter set is the start of a longer one.
        s = rng.integers(len(user), size=BLOCK)[:count]
        free = rng.integers(len(activity), size=BLOCK)[:count]
        y = np.where(rng.random(BLOCK)[:count] < habit, s % len(activity), free)
        noise = generator(seed, f"noise {start}")
        x = noise.standard_normal((count, activity.shape[1]), dtype=np.float32)
        x += activity[y]
        x += user[s]
        yield Part(x, y.astype(np.int32), s.astype(np.int32))


def orthogonal_accuracy(count: int, amplitude: float) -> float:
    """Compute `P(m, a)`, the integral of `phi(t - a) Phi(t)^(m - 1)`, to about twelve digits."""
    # The trapezoid rule converges exponentially on a smooth function that vanishes at both ends.
    t = np.linspace(amplitude - 10.0, amplitude + 10.0, 4001)
    below = np.array([0.5 * math.erfc(-v / math.sqrt(2.0)) for v in t])
    density = np.exp(-0.5 * (t - amplitude) ** 2) / math.sqrt(2.0 * math.pi)
    return float(min(1.0, np.sum(density * below ** (count - 1)) * (t[1] - t[0])))


def _waves(seed: int, users: int, activities: int, window: int) -> tuple[np.ndarray, np.ndarray]:
    """Return slow waveforms for activities and fast ones for users, of different whole frequencies."""
    per_frequency = 2 * len(CHANNELS)
    slow, fast = -(-activities // per_frequency), -(-users // per_frequency)
    frequencies = window // 2 - 1
    if window % 2 or (frequencies - slow) * per_frequency < users:
        least = 2 * (slow + fast + 1)
        raise ValueError(f"window must be even and at least {least} for {users} users, got {window}.")
    angle = np.outer(np.arange(1, frequencies + 1), np.arange(window) * (2.0 * np.pi / window))
    waves = []
    for part, count, purpose in (
        (angle[:slow], activities, "activity waves"),
        (angle[slow:], users, "user waves"),
    ):
        atoms = np.concatenate([np.cos(part), np.sin(part)]) * math.sqrt(2.0 / window)
        # [atoms, window] x [channels, channels] -> orthonormal rows over (frame, channel).
        basis = np.kron(atoms, np.eye(len(CHANNELS)))
        mix = generator(seed, purpose).standard_normal((len(basis), count))
        waves.append(np.linalg.qr(mix)[0].T @ basis)
    return waves[0], waves[1]


def _read(
    *,
    seed: int,
    rows: int = 10_000,
    users: int = 30,
    activities: int = 6,
    window: int = 32,
    activity_signal: float = 4.0,
    user_signal: float = 4.0,
    habit: float = 0.0,
) -> Rows:
    """Simulate flat motion windows of users doing activities."""
    sizes = {"users": users, "activities": activities, "window": window, "habit": habit}
    signals = {"activity_signal": activity_signal, "user_signal": user_signal}
    parts = simulated_blocks(rows, seed=seed, **signals, **sizes)
    x, y, s = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    names = {
        "activity": [f"activity {i + 1}" for i in range(activities)],
        "user": [f"user {i + 1}" for i in range(users)],
        "features": [f"{c} {t}" for t in range(x.shape[1] // len(CHANNELS)) for c in CHANNELS],
    }
    return Rows({"x": x, "activity": y, "user": s}, names, source="simulation")


SET = PublishedSet(
    name="simulated_sensors",
    title="synthetic motion windows with a known best trade-off",
    size="any number of rows x 192, 6 activities (utility), 30 users (private)",
    terms="none",
    read=_read,
    utility="activity",
    private=("user",),
    protocols={"per_label": None},
)
