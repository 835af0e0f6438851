"""Speed, memory and accuracy of the objectives, as ratios measured in one run.

    make bench            # or: python experiments/bench/objectives.py

The contenders are the formulas as the paper prints them ("literal") in JAX under jit, and the same in
PyTorch, eager and compiled. The roofline is three n x n products of width d and two passes of exp over n x n
entries, at the same sizes on the same machine. It needs a quiet machine.
"""

import os
import platform
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import torch  # pyright: ignore[reportMissingImports]  (in the bench extra only)
from timing import best_times, peak_megabytes

import privjax

BANDWIDTHS = (1.0, 2.0, 4.0, 8.0, 16.0)
RHO = 1e-4


def literal_mmd(lib, z, p):
    """Equation MMD_obj as printed; `lib` is jax.numpy or torch."""
    squares = (z * z).sum(1)
    d2 = squares[:, None] + squares[None, :] - 2 * z @ z.T
    k = sum(lib.exp(-d2 / (2 * b * b)) for b in BANDWIDTHS) / len(BANDWIDTHS)
    n, q = z.shape[0], 1 - p
    size, rest = p.sum(0), q.sum(0)
    form = lambda a, b: ((k @ b) * a).sum(0)  # noqa: E731
    squared = form(p, p) / size**2 + form(q, q) / rest**2 - 2 * form(p, q) / (size * rest)
    return (size / n * lib.sqrt(squared)).sum()


def literal_kdi(z, p):
    """Equation KDI_obj as printed."""
    n = z.shape[0]
    squares = (z * z).sum(1)
    d2 = squares[:, None] + squares[None, :] - 2 * z @ z.T
    k = sum(jnp.exp(-d2 / (2 * b * b)) for b in BANDWIDTHS) / len(BANDWIDTHS)
    centre = jnp.eye(n) - 1 / n
    k = centre @ k @ centre
    return jnp.trace(jnp.linalg.pinv(k @ k + RHO * k) @ k @ p @ p.T @ k)


def batch(n, d, num_classes, *, scale=1.0, shift=0.0, seed=0):
    """Rows of normal noise, and classes that have nothing to do with them."""
    rng = np.random.default_rng(seed)
    z = (rng.normal(size=(n, d)) * scale + shift).astype(np.float32)
    s = rng.permutation(np.arange(n) % num_classes)
    return jnp.asarray(z), jnp.asarray(s), np.eye(num_classes, dtype=np.float32)[s]


def ready(function, *args):
    """A call that waits for its result."""
    return lambda: jax.block_until_ready(function(*args))


def torch_step(function, z, p):
    """Value and gradient in PyTorch."""
    z, p = torch.tensor(np.asarray(z)), torch.tensor(p)

    def step():
        x = z.detach().requires_grad_(True)
        function(torch, x, p).backward()
        return x.grad

    return step


def roofline(z, n):
    """Three products and two passes of exp at this size, each timed alone."""
    k = jnp.asarray(np.random.default_rng(0).random((n, n), np.float32))
    times = best_times(
        {
            "gram": ready(jax.jit(lambda z: z @ z.T), z),
            "apply": ready(jax.jit(lambda k, z: k @ z), k, z),
            "exp": ready(jax.jit(lambda k: jnp.exp(-k)), k),
        }
    )
    return times["gram"] + 2 * times["apply"] + 2 * times["exp"]


def row(what, figures, target):
    """One line of the table."""
    print(f"| {what} | {figures} | {target} |", flush=True)


def mmd_speed():
    """Value and gradient against the literal formula, PyTorch and the roofline."""
    for n, num_classes, target in (
        (500, 30, "not slower than either"),
        (2000, 30, "4x literal, 2x compiled, 2x roofline"),
        (6000, 100, "3x compiled, 2x roofline"),
    ):
        z, s, p = batch(n, 50, num_classes)
        times = best_times(
            {
                "literal": ready(
                    jax.jit(jax.value_and_grad(lambda z, p: literal_mmd(jnp, z, p))), z, jnp.asarray(p)
                ),
                "eager": torch_step(literal_mmd, z, p),
                "compiled": torch_step(torch.compile(literal_mmd), z, p),
                "privjax": ready(
                    jax.jit(
                        jax.value_and_grad(lambda z, s, m=num_classes: privjax.mmd_loss(z, s, num_classes=m))
                    ),
                    z,
                    s,
                ),
            },
            repeats=7 if n > 2000 else 15,
        )
        ours = times["privjax"]
        ratios = ", ".join(f"{times[k] / ours:.1f}x {k}" for k in ("literal", "eager", "compiled"))
        bound = roofline(z, n)
        row(
            f"mmd value+grad, n={n}, d=50, l={num_classes}",
            f"{ratios}; {ours / bound:.2f} of the roofline's time ({ours:.1f} ms)",
            target,
        )


def mmd_classes():
    """Many classes against two."""
    calls = {}
    for num_classes in (2, 1000):
        z, s, _ = batch(4000, 50, num_classes)
        step = jax.jit(jax.value_and_grad(lambda z, s, m=num_classes: privjax.mmd_loss(z, s, num_classes=m)))
        calls[num_classes] = ready(step, z, s)
    times = best_times({str(k): v for k, v in calls.items()})
    row("mmd, n=4000: l=1000 against l=2", f"{times['1000'] / times['2']:.2f}x the time", "at most 1.2x")


def vmap_cost(name, loss, members=16):
    """A vmapped call of 16 members against a loop over them."""
    z, s, _ = batch(500, 50, 30)
    zs = jnp.stack([z * (1 + i / members) for i in range(members)])
    step = jax.value_and_grad(lambda z, s: loss(z, s, num_classes=30))
    one, many = jax.jit(step), jax.jit(jax.vmap(step, in_axes=(0, None)))
    times = best_times(
        {
            "loop": lambda: jax.block_until_ready([one(z, s) for z in zs]),
            "vmap": ready(many, zs, s),
        }
    )
    row(
        f"{name}, vmap over {members}, n=500",
        f"{times['vmap'] / times['loop']:.2f} of the loop's time",
        "at most 1",
    )


def kdi_speed():
    """Value and gradient against the literal pseudo-inverse."""
    z, _, p = batch(500, 50, 30)
    p = jnp.asarray(p)
    times = best_times(
        {
            "literal": ready(jax.jit(jax.value_and_grad(literal_kdi)), z, p),
            "privjax": ready(jax.jit(jax.value_and_grad(privjax.kdi_loss)), z, p),
        }
    )
    row(
        "kdi value+grad, n=500, d=50, l=30",
        f"{times['literal'] / times['privjax']:.0f}x literal ({times['privjax']:.1f} ms)",
        "15x",
    )


def kdi_accuracy():
    """Float32 against the same quantity in float64."""
    print("\n| kdi in float32 | value, relative error | gradient, L2 | literal's value |\n|---|---|---|---|")
    for n, d, scale, shift in (
        (500, 10, 0.3, 0),
        (500, 3, 0.1, 0),
        (1500, 5, 1.0, 0),
        (2000, 3, 0.1, 0),
        (2000, 10, 1.0, 100),
        (2000, 50, 1.0, 0),
        (2000, 2, 5.0, 0),
        (1000, 1, 1.0, 0),
        (2000, 1, 1.0, 0),
    ):
        z, _, p = batch(n, d, 30, scale=scale, shift=shift)
        value, gradient = jax.value_and_grad(privjax.kdi_loss)(z, jnp.asarray(p))
        printed = float(literal_kdi(z, jnp.asarray(p))) if n <= 500 else float("nan")
        z, p = np.asarray(z, np.float64), p.astype(np.float64)
        d2 = sum((c[:, None] - c[None, :]) ** 2 for c in z.T)
        k = np.mean([np.expm1(-d2 / (2 * b * b)) for b in BANDWIDTHS], 0)
        k = k - k.mean(0) - k.mean(1)[:, None] + k.mean()
        p = p - p.mean(0)
        a = np.linalg.solve(k + RHO * np.eye(n), p)
        exact = (p * (k @ a)).sum()
        slope = np.mean([-np.exp(-d2 / (2 * b * b)) / (2 * b * b) for b in BANDWIDTHS], 0)
        g = RHO * (a @ a.T) * slope
        true = 4 * (z * g.sum(1)[:, None] - g @ z)
        error = np.linalg.norm(np.asarray(gradient) - true) / np.linalg.norm(true)
        literal = "not run" if np.isnan(printed) else f"{abs(printed / exact - 1):.0e}"
        print(
            f"| n={n}, d={d}, scale {scale}, shift {shift} | {abs(float(value) / exact - 1):.0e} "
            f"| {error:.0e} | {literal} |",
            flush=True,
        )


def memory(n=50_000):
    """Peak memory of one large call above what was there before it; Linux, in a process of its own."""
    z, s, _ = batch(n, 50, 30)
    step = jax.jit(jax.value_and_grad(lambda z, s: privjax.mmd_loss(z, s, num_classes=30)))
    compiled = step.lower(z, s).compile()
    jax.block_until_ready(step(z[:2000], s[:2000]))  # thread pools and such are not the call's
    print(peak_megabytes(ready(compiled, z, s)))


def main():
    """Print the tables."""
    print(
        f"jax {jax.__version__}, torch {torch.__version__}, {os.cpu_count()} cores, "
        f"{platform.machine()}, float32, best of several interleaved repeats\n"
    )
    print("| what | measured | to reach |\n|---|---|---|")
    mmd_speed()
    mmd_classes()
    peak = subprocess.run(
        [sys.executable, __file__, "memory"], capture_output=True, text=True, check=True
    ).stdout
    row("mmd value+grad, n=50,000, d=50, one call", f"{int(peak)} MB above the inputs", "under 500 MB")
    vmap_cost("mmd value+grad", privjax.mmd_loss)
    vmap_cost("kdi value+grad", privjax.kdi_loss)
    kdi_speed()
    kdi_accuracy()


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        memory()
    else:
        main()
