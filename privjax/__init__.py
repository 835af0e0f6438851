"""Release z instead of x: keep the utility that a service needs, remove the private variable."""

from typing import TYPE_CHECKING, Any

from privjax import baselines, datasets
from privjax.auditing import AuditReport, audit, audit_sweep, load_reports
from privjax.curves import Curve, CurvePoint, pareto
from privjax.datasets import Dataset
from privjax.encoder import Encoder
from privjax.exporting import export, release_file
from privjax.independence import Confidence, privacy_confidence
from privjax.kernels import (
    gaussian,
    gaussian_mixture,
    laplacian,
    median_bandwidth,
    median_gaussian,
    mixture,
    polynomial,
)
from privjax.losses import (
    FourierFeatures,
    discriminant_information,
    kdi_loss,
    lsdn_discriminator_loss,
    lsdn_privacy_loss,
    mmd_loss,
    orthonormality_penalty,
    random_fourier_features,
    rff_mmd_loss,
    wdn_discriminator_loss,
    wdn_privacy_loss,
)
from privjax.networks import Networks, cnn_networks, nn_networks, scnn_networks
from privjax.objectives import OBJECTIVES, Objective, Schedule, make_objective
from privjax.release import ReleaseMechanism, exact
from privjax.reporting import report
from privjax.sweeping import SweepResult, SweepRun, load_encoder, load_history, load_results, sweep
from privjax.training import FitResult, fit

if TYPE_CHECKING:
    from privjax.estimator import PrivacyTransformer

__all__ = [
    "AuditReport",
    "Confidence",
    "Curve",
    "CurvePoint",
    "Dataset",
    "Encoder",
    "FitResult",
    "FourierFeatures",
    "Networks",
    "OBJECTIVES",
    "Objective",
    "PrivacyTransformer",
    "ReleaseMechanism",
    "Schedule",
    "SweepResult",
    "SweepRun",
    "audit",
    "audit_sweep",
    "baselines",
    "cnn_networks",
    "datasets",
    "discriminant_information",
    "exact",
    "export",
    "fit",
    "gaussian",
    "gaussian_mixture",
    "kdi_loss",
    "laplacian",
    "load_encoder",
    "load_history",
    "load_reports",
    "load_results",
    "lsdn_discriminator_loss",
    "lsdn_privacy_loss",
    "make_objective",
    "median_bandwidth",
    "median_gaussian",
    "mixture",
    "mmd_loss",
    "nn_networks",
    "orthonormality_penalty",
    "pareto",
    "polynomial",
    "privacy_confidence",
    "random_fourier_features",
    "release_file",
    "report",
    "rff_mmd_loss",
    "scnn_networks",
    "sweep",
    "wdn_discriminator_loss",
    "wdn_privacy_loss",
]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Imports the scikit-learn front when it is asked for: scikit-learn takes a second, and pandas along."""
    if name == "PrivacyTransformer":
        from privjax.estimator import PrivacyTransformer

        return PrivacyTransformer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
