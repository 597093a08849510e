# SPDX-License-Identifier: Apache-2.0
"""A progress bar that shows nothing, and ends a loop that never ends."""

import signal

_SECONDS = 30


def tqdm(iterable):
  """Returns the iterable; half a minute later the program gets Ctrl-C."""
  signal.signal(signal.SIGALRM, signal.default_int_handler)
  signal.alarm(_SECONDS)
  return iterable
