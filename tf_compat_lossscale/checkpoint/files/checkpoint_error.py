# SPDX-License-Identifier: Apache-2.0
"""The error of checkpoints; it moves to `reading`."""

from tf_compat_lossscale.checkpoint.reading import (
  CheckpointError as CheckpointError,
)
from tf_compat_lossscale.checkpoint.reading import escape as escape
