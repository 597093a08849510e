# SPDX-License-Identifier: Apache-2.0
"""What a row has whose program gets its loss scale by NVIDIA's switch."""

from typing import Any

from strangers_table import LOSS

# Eight more good steps double a scale whose period is 2000.
NEARLY_FULL = {r"(^|/)good_steps(_\d+)?$": 1995}
# Of a program whose scale is left alone.
ON: dict[str, Any] = {
  "environment": {"TF_ENABLE_AUTO_MIXED_PRECISION": "1"},
  "migrate": ("--nvidia-switch",),
  "loss": LOSS,
}
SWITCH: dict[str, Any] = {
  **ON,
  "settings": NEARLY_FULL,
  "initial": 2.0**15,
}
REMARK = "`TF_ENABLE_AUTO_MIXED_PRECISION=1`"
# The `bypass` of a program that computes its gradients itself.
UNSCALED = (
  "warns rightly: it calls `tf.gradients`, so that its loss is not scaled"
)
