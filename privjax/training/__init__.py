"""Training of the three networks (Algorithm 1): one gradient, one scan, a member as arrays."""

from privjax.training.data import Hyperparameters as Hyperparameters
from privjax.training.data import Rates as Rates
from privjax.training.data import TrainConfig as TrainConfig
from privjax.training.data import TrainData as TrainData
from privjax.training.data import check_positive_integer as check_positive_integer
from privjax.training.data import check_rates as check_rates
from privjax.training.data import hyperparameters as hyperparameters
from privjax.training.fitting import FitResult as FitResult
from privjax.training.fitting import fit as fit
from privjax.training.fitting import one_blas_thread as one_blas_thread
from privjax.training.fitting import prepare as prepare
from privjax.training.loop import FINISHED as FINISHED
from privjax.training.loop import RUNNING as RUNNING
from privjax.training.loop import STATUS_NAMES as STATUS_NAMES
from privjax.training.loop import History as History
from privjax.training.loop import TrainState as TrainState
from privjax.training.loop import init_state as init_state
from privjax.training.loop import no_history as no_history
from privjax.training.loop import train_epochs as train_epochs
from privjax.training.loss import Losses as Losses
from privjax.training.loss import total_loss as total_loss
from privjax.training.monitor import Measures as Measures
from privjax.training.monitor import measure as measure
from privjax.training.monitor import utility_score as utility_score
