"""The blocked convolution against that of XLA and against loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privjax.numerics.convolution import convolve_and_pool, convolve_and_pool_combined


def _loops(x, kernel):
    n, h, w, _ = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    y = np.zeros((n, h, w, kernel.shape[-1]))
    for i in range(h):
        for j in range(w):
            y[:, i, j] = np.tensordot(padded[:, i : i + 3, j : j + 3], kernel, 3)
    return np.stack(
        [
            [y[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max((1, 2)) for j in range(w // 2)]
            for i in range(h // 2)
        ]
    ).transpose(2, 0, 1, 3)


@pytest.mark.parametrize("implementation", ["native", "blocked"])
@pytest.mark.parametrize("shape", [(3, 6, 6, 2), (2, 5, 7, 1)])
def test_equals_the_definition(implementation, shape):
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=shape), rng.normal(size=(3, 3, shape[-1], 4))
    got = convolve_and_pool(
        jnp.asarray(x, jnp.float32), jnp.asarray(kernel, jnp.float32), implementation=implementation
    )
    np.testing.assert_allclose(got, _loops(x, kernel), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 37, 100])
def test_both_implementations_have_the_same_gradients(n):
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.normal(size=(n, 16, 15, 8)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(3, 3, 8, 16)), jnp.float32)
    g = jnp.asarray(rng.normal(size=(n, 8, 7, 16)), jnp.float32)

    def gradients(implementation):
        def loss(x, kernel):
            return jnp.vdot(convolve_and_pool(x, kernel, implementation=implementation), g)

        return jax.jit(jax.grad(loss, (0, 1)))(x, kernel)

    for native, blocked in zip(gradients("native"), gradients("blocked"), strict=True):
        # Sums of n * 56 products of size 1 in another order.
        np.testing.assert_allclose(native, blocked, rtol=1e-4, atol=3e-3)


@pytest.mark.parametrize("implementation", ["native", "blocked"])
@pytest.mark.parametrize("sides", [(8, 8), (7, 5)])
def test_combined_images_equal_explicit_images(implementation, sides):
    rng = np.random.default_rng(3)
    z, basis = rng.normal(size=(300, 4)), rng.normal(size=(4, *sides, 3))
    kernel = rng.normal(size=(3, 3, 3, 16))
    images = np.tensordot(z, basis, 1)
    arrays = [jnp.asarray(a, jnp.float32) for a in (z, basis, kernel)]
    got = convolve_and_pool_combined(*arrays, implementation=implementation)
    np.testing.assert_allclose(got, _loops(images, kernel), rtol=1e-4, atol=1e-4)
    g = jnp.asarray(rng.normal(size=got.shape), jnp.float32)

    def gradients(pooled):
        return jax.jit(jax.grad(lambda *a: jnp.vdot(pooled(*a), g), (0, 1, 2)))(*arrays)

    def explicit(z, basis, kernel):
        return convolve_and_pool(jnp.tensordot(z, basis, 1), kernel, implementation="native")

    ours = gradients(lambda *a: convolve_and_pool_combined(*a, implementation=implementation))
    for mine, plain in zip(ours, gradients(explicit), strict=True):
        assert np.linalg.norm(mine - plain) < 1e-4 * np.linalg.norm(plain)


def test_the_first_of_equal_pixels_gets_the_gradient():
    x = jnp.ones((2, 8, 8, 3))  # inner patches are equal, so every inner square is a tie
    kernel = jnp.asarray(np.ones((3, 3, 3, 2)) * [1.0, -1.0], jnp.float32)

    def gradient(implementation):
        return jax.grad(lambda x: convolve_and_pool(x, kernel, implementation=implementation).sum())(x)

    np.testing.assert_array_equal(gradient("native"), gradient("blocked"))


@pytest.mark.slow
def test_vmap_equals_a_loop():
    rng = np.random.default_rng(2)
    x = jnp.asarray(rng.normal(size=(5, 8, 8, 1)), jnp.float32)
    kernels = jnp.asarray(rng.normal(size=(3, 3, 3, 1, 4)), jnp.float32)

    def gradient(kernel):
        return jax.grad(lambda k: (convolve_and_pool(x, k, implementation="blocked") ** 2).sum())(kernel)

    np.testing.assert_allclose(
        jax.vmap(gradient)(kernels), jnp.stack([gradient(k) for k in kernels]), rtol=1e-4, atol=1e-3
    )


def test_unknown_implementation_is_refused():
    with pytest.raises(ValueError, match="implementation must be"):
        convolve_and_pool(jnp.ones((1, 4, 4, 1)), jnp.ones((3, 3, 1, 1)), implementation="fft")


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.uint8])
def test_images_of_other_types_have_gradients(dtype):
    x = jnp.asarray(np.random.default_rng(0).integers(0, 8, (3, 8, 8, 1)), dtype)
    kernel = jnp.ones((3, 3, 1, 2))
    gradient = jax.grad(lambda k: convolve_and_pool(x, k, implementation="blocked").sum())(kernel)
    plain = jax.grad(lambda k: convolve_and_pool(x.astype(jnp.float32), k, implementation="blocked").sum())
    np.testing.assert_array_equal(gradient, plain(kernel))
