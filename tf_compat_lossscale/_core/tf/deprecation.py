# SPDX-License-Identifier: Apache-2.0
"""TensorFlow's warnings of deprecated names."""

from __future__ import annotations

import contextlib

from tensorflow.python.util import deprecation


def silence_deprecations() -> contextlib.AbstractContextManager[None]:
  """Returns a context in which TensorFlow warns of no deprecated name.

  The package uses deprecated names on purpose. The public
  `tf.get_logger().setLevel` would silence all other warnings, too, so no
  public name replaces `deprecation.silence`. In a release without the private
  module, this module cannot be imported.
  """
  return deprecation.silence()
