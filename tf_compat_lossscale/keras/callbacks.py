# SPDX-License-Identifier: Apache-2.0
"""Names the base class of Keras 2's callbacks, for callbacks of other wings."""

from typing import TypeAlias

from tf_compat_lossscale.keras import _keras2

Callback: TypeAlias = _keras2.keras.callbacks.Callback
