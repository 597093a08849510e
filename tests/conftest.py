# SPDX-License-Identifier: Apache-2.0
"""Settings of each process that runs tests."""

import gc


def pytest_collection_finish() -> None:
  """Lets the garbage collector look only at what the tests make.

  TensorFlow's modules and the tests are a million objects that stay to the end.
  To look through them takes half a second, and each `gc.collect()` did.
  """
  gc.freeze()
