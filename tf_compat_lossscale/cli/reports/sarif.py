# SPDX-License-Identifier: Apache-2.0
"""`--format=sarif`: SARIF 2.1.0, for code scanning services."""

from __future__ import annotations

import io
import json
import os
import tokenize
from typing import Any
import urllib.parse

from tf_compat_lossscale._version import __version__
from tf_compat_lossscale.cli import diffs
from tf_compat_lossscale.cli import terminal
from tf_compat_lossscale.cli.reports import rule_urls
from tf_compat_lossscale.cli.reports import text
from tf_compat_lossscale.migration import application
from tf_compat_lossscale.migration import document_base
from tf_compat_lossscale.migration import findings
from tf_compat_lossscale.migration import reading
from tf_compat_lossscale.migration import rules
from tf_compat_lossscale.programs import source_facts

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_TOOL = "tf-lossscale"


def write(report: findings.Report, printer: terminal.Printer) -> None:
  """Prints the report as a SARIF log with one run."""
  listed = rules.list_rules()
  order = {rule.code: index for index, rule in enumerate(listed)}
  site = rule_urls.find_site()
  reader = reading.Reader()
  run = {
    "tool": {
      "driver": {
        "name": _TOOL,
        "semanticVersion": __version__,
        "rules": [_make_rule(rule, site) for rule in listed],
      }
    },
    "columnKind": "unicodeCodePoints",
    "invocations": [
      {
        "executionSuccessful": not report.errors,
        "toolExecutionNotifications": [
          {"level": level, "message": {"text": words}}
          for level, lines in (
            ("error", report.errors),
            ("note", text.list_notices(report)),
          )
          for words in lines
        ],
      }
    ],
    "results": [
      _make_result(finding, order, reader) for finding in report.findings
    ],
  }
  log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
  printer.write(json.dumps(log, indent=2) + "\n")


def make_uri(path: str) -> str:
  """Returns a path as a URI, or as a relative reference if it is relative."""
  # As bytes, because a path may hold bytes that are no text.
  quoted = urllib.parse.quote(os.fsencode(path.replace(os.sep, "/")))
  return f"file://{quoted}" if os.path.isabs(path) else quoted


def _make_rule(rule: rules.Rule, site: str | None) -> dict[str, Any]:
  """Returns a rule as a SARIF reportingDescriptor."""
  explanation = rule.explanation or rule.summary
  value: dict[str, Any] = {
    "id": rule.code,
    "name": rule.name,
    "shortDescription": {"text": rule.summary},
    "fullDescription": {"text": explanation},
    "help": {"text": explanation, "markdown": explanation},
    "defaultConfiguration": {"level": "error"},
  }
  if site is not None:
    value["helpUri"] = rule_urls.make_url(site, rule.code)
  return value


def _make_result(
  finding: findings.Finding, order: dict[str, int], reader: reading.Reader
) -> dict[str, Any]:
  """Returns a finding as a SARIF result."""
  uri = make_uri(finding.path)
  note = f" ({finding.note})" if finding.note else ""
  message = text.describe_edit(finding) + note
  location: dict[str, Any] = {
    "physicalLocation": {"artifactLocation": {"uri": uri}}
  }
  if finding.cell is None:
    location["physicalLocation"]["region"] = {
      "startLine": finding.line,
      "startColumn": finding.column,
      "endLine": finding.end_line,
      "endColumn": finding.end_column,
    }
  else:  # The lines of a cell are not those of the file.
    place = f"cell {finding.cell}, line {finding.line}"
    location["logicalLocations"] = [{"fullyQualifiedName": place}]
    message = f"{place}: {message}"
  value: dict[str, Any] = {
    "ruleId": finding.code,
    "level": "error",
    "message": {"text": message},
    "locations": [location],
    "properties": {"state": finding.state},
  }
  if finding.code in order:
    value["ruleIndex"] = order[finding.code]
  replacements = _find_fix(finding, reader)
  if replacements:
    change = {
      "artifactLocation": {"uri": uri},
      "replacements": [_make_replacement(each) for each in replacements],
    }
    value["fixes"] = [
      {"description": {"text": finding.message}, "artifactChanges": [change]}
    ]
  return value


def _find_fix(
  finding: findings.Finding, reader: reading.Reader
) -> list[diffs.Replacement]:
  """Returns what `migrate` would replace for a finding alone; none by hand."""
  if not finding.edits and not finding.opening:
    return []
  try:
    read = reader.read(os.path.abspath(finding.path))
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


def _make_replacement(replacement: diffs.Replacement) -> dict[str, Any]:
  """Returns a replacement in SARIF's words."""
  line, column = replacement.start
  end_line, end_column = replacement.end
  return {
    "deletedRegion": {
      "startLine": line,
      "startColumn": column,
      "endLine": end_line,
      "endColumn": end_column,
    },
    "insertedContent": {"text": replacement.text},
  }
