"""TensorFlow's warnings of deprecated names."""

from __future__ import annotations

import contextlib

from tensorflow.python.util import deprecation as _deprecation


def quiet_deprecations() -> contextlib.AbstractContextManager[None]:
  """Silences TensorFlow's deprecation warnings while it is entered.

  `tf.get_logger().setLevel` would silence all others too.
  """
  return _deprecation.silence()
