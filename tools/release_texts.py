# SPDX-License-Identifier: Apache-2.0
"""Writes the supported releases into texts that cannot import `_releases`.

python tools/release_texts.py
"""

from __future__ import annotations

import pathlib
import re
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

from tf_compat_lossscale import _releases  # noqa: E402


def list_texts() -> dict[pathlib.Path, str]:
  """Returns file -> what its text must be."""
  oldest, newest = map(_releases.show, (_releases.OLDEST, _releases.NEWEST))
  *others, last = _releases.TESTED
  tested = f"{', '.join(others)} and {last}"
  python = max(_releases.PYTHONS.values())
  pythons = f"3.{_releases.OLDEST_PYTHON} to 3.{python}"
  keras = (
    r"tf_keras==2\.\d+\.\*'` for TensorFlow 2\.\d+",
    f"tf_keras=={newest}.*'` for TensorFlow {newest}",
  )
  # File -> what is there, and what must be.
  rules = {
    "README.md": [
      (r"2\.\d+ to 2\.\d+(?=,| \|)", f"{oldest} to {newest}"),
      (r"(?<=\| )2[\d., and]+(?=, by `make matrix`)", tested),
      (r"(?<=make test {13}# The quick tests, on )[\d.]+(?=:)", last),
      (
        r"(?<=\| Python \| )3[\d. to]+\d",
        pythons,
      ),
    ],
    "CONTRIBUTING.md": [
      (
        r"(?<=need Python )3[\d. to]+\d",
        pythons,
      )
    ],
    "docs/keras.md": [keras],
    "tf_compat_lossscale/migration/rewrites/absent_names.py": [keras],
    "pyproject.toml": [
      (r"(?<=tensorflow>=)[\d.]+", oldest),
      (r"(?<=python_version < '3\.)\d+", str(python + 1)),
    ],
  }
  texts = {}
  for name, pairs in rules.items():
    text = (_ROOT / name).read_text("utf-8")
    for pattern, new in pairs:
      text, count = re.subn(pattern, new, text)
      assert count, f"{name} has nothing like {pattern}"
    texts[_ROOT / name] = text
  return texts


if __name__ == "__main__":
  for path, text in list_texts().items():
    path.write_text(text, "utf-8")
