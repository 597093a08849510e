# SPDX-License-Identifier: Apache-2.0
"""Switches of TensorFlow for tests and for programs on any release.

Unlike `helpers`, this module runs on Python 3.7 and TensorFlow 1.15, and needs
no pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

import tensorflow as tf

tf1 = tf.compat.v1


@contextlib.contextmanager
def control_flow(v2: bool) -> Iterator[None]:
  """Switches to v2 or v1 control flow, and back at the end."""
  switches = (tf1.disable_control_flow_v2, tf1.enable_control_flow_v2)
  was = tf1.control_flow_v2_enabled()
  switches[v2]()
  try:
    yield
  finally:
    switches[was]()
