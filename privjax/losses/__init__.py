"""Privacy objectives: pure functions of (z, p), small if z says nothing about p. One file per objective."""

from privjax.losses.critics import (
    Critic,
    lsdn_discriminator_loss,
    lsdn_privacy_loss,
    wdn_discriminator_loss,
    wdn_privacy_loss,
)
from privjax.losses.kdi import kdi_loss
from privjax.losses.linear import discriminant_information, orthonormality_penalty
from privjax.losses.mmd import mmd_loss
from privjax.losses.rff import FourierFeatures, random_fourier_features, rff_mmd_loss

__all__ = [
    "Critic",
    "FourierFeatures",
    "discriminant_information",
    "kdi_loss",
    "lsdn_discriminator_loss",
    "lsdn_privacy_loss",
    "mmd_loss",
    "orthonormality_penalty",
    "random_fourier_features",
    "rff_mmd_loss",
    "wdn_discriminator_loss",
    "wdn_privacy_loss",
]
