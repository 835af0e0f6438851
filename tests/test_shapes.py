"""Annotations of array shapes are checked while tests run: wrong ones are caught, errors pass through."""

import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import shapes
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Integer

import privjax


@shapes.checked
def column_sums(
    x: Float[ArrayLike, "n d"], weights: Float[ArrayLike, " n"] | None = None
) -> Float[Array, " d"]:
    x = jnp.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"x must be a matrix [n, d], got shape {x.shape}.")
    return x.sum(0) if weights is None else jnp.asarray(weights) @ x


@shapes.checked
def wrong_result(x: Float[Array, "n d"]) -> Float[Array, " n"]:
    return x.sum(0)


def test_correct_calls_pass_under_transformations():
    x = jnp.ones((3, 2))
    np.testing.assert_array_equal(column_sums(x), [3, 3])
    np.testing.assert_array_equal(column_sums(np.ones((3, 2)), pd.Series([1.0, 0, 0])), [1, 1])
    np.testing.assert_array_equal(jax.vmap(jax.jit(column_sums))(x[None]), [[3, 3]])
    assert jax.grad(lambda x: column_sums(x).sum())(x).shape == (3, 2)


def test_wrong_annotations_are_caught():
    with pytest.raises(shapes.WrongAnnotation, match="wrong_result: return is annotated"):
        wrong_result(jnp.ones((3, 2)))
    wrong_result(jnp.ones((2, 2)))  # the sizes agree by chance
    with pytest.raises(shapes.WrongAnnotation, match="x is annotated .* got .* int32"):
        column_sums(jnp.ones((3, 2), int))

    @shapes.checked
    def first(z: Float[Array, "n d"], labels: Integer[Array, " n"]) -> Float[Array, " d"]:
        return z[labels[0]]

    first(jnp.ones((3, 2)), jnp.zeros(3, int))
    with pytest.raises(shapes.WrongAnnotation, match="labels is annotated"):
        first(jnp.ones((3, 2)), jnp.zeros(4, int))


def test_errors_of_the_function_itself_come_first():
    with pytest.raises(ValueError, match="x must be a matrix"):
        column_sums(jnp.ones(3))


def test_modules_are_checked_from_their_import_on(tmp_path, monkeypatch):
    source = """
    from jax import Array
    from jaxtyping import Float

    def total(x: Float[Array, " n"]) -> Float[Array, ""]:
        return 2 * x

    class Table:
        def row(self, x: "Float[Array, 'n d']", to: "Later | None" = None) -> Float[Array, " d"]:
            return x

    def plain(x):
        return x
    """
    (tmp_path / "annotated.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", sys.meta_path.copy())
    shapes.install("annotated")
    import annotated  # pyright: ignore[reportMissingImports]

    with pytest.raises(shapes.WrongAnnotation, match="annotated.total: return"):
        annotated.total(jnp.ones(3))
    with pytest.raises(shapes.WrongAnnotation, match="annotated.Table.row: return"):
        annotated.Table().row(jnp.ones((3, 2)))
    assert not hasattr(annotated.plain, "__wrapped__")


def test_the_package_is_checked():
    assert hasattr(privjax.mmd_loss, "__wrapped__")
