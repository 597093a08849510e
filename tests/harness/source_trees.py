# SPDX-License-Identifier: Apache-2.0
"""Writes the files of small projects, which tests scan and run."""

from __future__ import annotations

from collections.abc import Mapping
import pathlib


def write_tree(folder: pathlib.Path, files: Mapping[str, str]) -> pathlib.Path:
  """Writes files by their names below a folder; returns the folder."""
  for name, text in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
  return folder
