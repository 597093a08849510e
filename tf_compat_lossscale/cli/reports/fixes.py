# SPDX-License-Identifier: Apache-2.0
"""What `migrate` would do about one finding alone, imports included."""

from __future__ import annotations

import io
import os
import tokenize

from tf_compat_lossscale.cli import diffs
from tf_compat_lossscale.migration import application
from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.programs import source_facts


class Fixer:
  """A reader of files that makes the edits of single findings."""

  def __init__(self) -> None:
    self._reader = reading.Reader()

  def find_fix(self, finding: findings.Finding) -> list[diffs.Replacement]:
    """Returns the replacements in the finding's file; none by hand."""
    if not finding.edits and not finding.opening:
      return []
    try:
      read = self._reader.read(os.path.abspath(finding.path))
      edited = application.edit(read, [finding])
      before, after = _decode(read.document.data), _decode(edited.document.data)
    except (source_facts.SourceError, document_base.DocumentError):
      return []  # The file has changed since.
    except (SyntaxError, UnicodeDecodeError):
      return []  # Without a text there are no lines to count.
    return list(diffs.find_replacements(before, after))


def _decode(data: bytes) -> str:
  """Returns the text of a file as Python reads it."""
  encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
  return data.decode(encoding)
