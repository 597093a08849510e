# SPDX-License-Identifier: Apache-2.0
"""Switches of TensorFlow's that tests and programs of any release share.

As `helpers`, but for Python 3.7 and TensorFlow 1.15, too, and without pytest.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib

import tensorflow as tf

tf1 = tf.compat.v1


@contextlib.contextmanager
def control_flow(v2: bool) -> Iterator[None]:
  """Builds conds and loops as TensorFlow 2 does, or as TensorFlow 1 did."""
  switches = (tf1.disable_control_flow_v2, tf1.enable_control_flow_v2)
  was = tf1.control_flow_v2_enabled()
  switches[v2]()
  try:
    yield
  finally:
    switches[was]()
