"""Comparisons of records that several tests make."""

import jax


def close(a: dict, b: dict, *, bound: float) -> bool:
    """Whether two records agree, numbers to a relative bound."""
    left, right = (dict(record) for record in (a, b))
    a_numbers, b_numbers = jax.tree.leaves(left), jax.tree.leaves(right)
    assert jax.tree.structure(left) == jax.tree.structure(right)
    return all(
        abs(x - y) <= bound * max(1e-3, abs(x)) if isinstance(x, float) else x == y
        for x, y in zip(a_numbers, b_numbers, strict=True)
    )


def without_seconds(value):
    if isinstance(value, dict):
        return {key: without_seconds(entry) for key, entry in value.items() if key != "seconds"}
    if isinstance(value, list):
        return [without_seconds(entry) for entry in value]
    return value
