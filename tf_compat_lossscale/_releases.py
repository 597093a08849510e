# SPDX-License-Identifier: Apache-2.0
"""Which TensorFlow releases are supported, and which of them has what.

The package, the tools and the tests take the numbers from here. README, docs
and pyproject.toml repeat some: `tools/release_texts.py` writes them there.
"""

from __future__ import annotations

# What the project is tested on, the oldest first.
TESTED = ("2.12.1", "2.15.1", "2.18.1", "2.21.0")
OLDEST = (2, 12)
NEWEST = (2, 21)
WITH_KERAS_3 = (2, 16)
WITHOUT_ESTIMATOR = (2, 16)
# The first TensorFlow -> the newest Python 3.x that has wheels from there on.
PYTHONS = {(2, 12): 11, (2, 16): 12, (2, 20): 13}
OLDEST_PYTHON = 10


def show(release: tuple[int, ...]) -> str:
  """Returns a release as a text, such as "2.16"."""
  return ".".join(map(str, release))


def find_newest_python(release: tuple[int, ...]) -> int:
  """Returns the newest Python 3.x that a TensorFlow has wheels for."""
  return [new for first, new in PYTHONS.items() if first <= release][-1]


if __name__ == "__main__":  # For tools/releases.sh.
  import sys

  for _release in sys.argv[1:]:
    print(find_newest_python(tuple(map(int, _release.split(".")[:2]))))
  if not sys.argv[1:]:
    print(*TESTED)
