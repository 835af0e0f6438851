"""The scikit-learn front: an estimator over `privjax.fit`, in NumPy once it is fitted."""

from privjax.estimator.transformer import PrivacyTransformer

__all__ = ["PrivacyTransformer"]
