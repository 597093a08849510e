# SPDX-License-Identifier: Apache-2.0
"""The rules of SARIF 2.1.0 that a log of `tf-lossscale scan` has to keep."""

from __future__ import annotations

from typing import Any
import urllib.parse

_LEVELS = {"none", "note", "warning", "error"}
# The properties that the schema allows, for the objects that we write. The
# schema forbids all others. Those with an asterisk are required.
_PROPERTIES = {
  "log": "$schema version* runs*",
  "run": "tool* results invocations columnKind",
  "tool": "driver*",
  "driver": "name* semanticVersion rules",
  "rule": "id* name shortDescription fullDescription help helpUri"
  " defaultConfiguration",
  "invocation": "executionSuccessful* toolExecutionNotifications",
  "notification": "message* level",
  "result": "message* ruleId ruleIndex level locations fixes properties",
  "location": "physicalLocation logicalLocations",
  "physical": "artifactLocation region",
  "artifact": "uri",
  "region": "startLine startColumn endLine endColumn",
  "fix": "description artifactChanges*",
  "change": "artifactLocation* replacements*",
  "replacement": "deletedRegion* insertedContent",
}


def check_log(log: dict[str, Any]) -> None:
  """Checks a log."""
  _check_properties(log, "log")
  assert log["version"] == "2.1.0"
  for run in log["runs"]:
    _check_properties(run, "run")
    assert run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    rules = _check_tool(run["tool"])
    for invocation in run["invocations"]:
      _check_properties(invocation, "invocation")
      assert isinstance(invocation["executionSuccessful"], bool)
      for notification in invocation["toolExecutionNotifications"]:
        _check_properties(notification, "notification")
        _check_message(notification["message"])
        assert notification["level"] in _LEVELS
    for result in run["results"]:
      _check_result(result, rules)


def _check_properties(value: Any, kind: str) -> None:
  assert isinstance(value, dict), (kind, value)
  words = _PROPERTIES[kind].split()
  assert value.keys() <= {word.rstrip("*") for word in words}, (kind, value)
  needed = {word[:-1] for word in words if word.endswith("*")}
  assert needed <= value.keys(), (kind, value)


def _check_tool(tool: Any) -> list[str]:
  """Checks the tool and returns the codes of its rules."""
  _check_properties(tool, "tool")
  driver = tool["driver"]
  _check_properties(driver, "driver")
  for rule in driver["rules"]:
    _check_properties(rule, "rule")
    for key in ("shortDescription", "fullDescription", "help"):
      _check_message(rule[key])
    if "helpUri" in rule:  # An absolute URI.
      assert urllib.parse.urlsplit(rule["helpUri"]).scheme
    assert rule["defaultConfiguration"]["level"] in _LEVELS
  codes = [rule["id"] for rule in driver["rules"]]
  assert len(codes) == len(set(codes))
  return codes


def _check_message(message: Any) -> None:
  assert message["text"] and message.keys() <= {"text", "markdown"}


def _check_result(result: Any, rules: list[str]) -> None:
  _check_properties(result, "result")
  _check_message(result["message"])
  assert result["level"] in _LEVELS
  if "ruleIndex" in result:
    assert rules[result["ruleIndex"]] == result["ruleId"]
  for location in result["locations"]:
    _check_properties(location, "location")
    _check_properties(location["physicalLocation"], "physical")
    _check_artifact(location["physicalLocation"]["artifactLocation"])
    if "region" in location["physicalLocation"]:
      _check_region(location["physicalLocation"]["region"])
  for fix in result.get("fixes", []):
    _check_properties(fix, "fix")
    assert fix["artifactChanges"]  # The schema wants at least one.
    for change in fix["artifactChanges"]:
      _check_properties(change, "change")
      _check_artifact(change["artifactLocation"])
      assert change["replacements"]
      for replacement in change["replacements"]:
        _check_properties(replacement, "replacement")
        _check_region(replacement["deletedRegion"])


def _check_artifact(artifact: Any) -> None:
  """Checks a URI: all but a few characters are percent-encoded."""
  _check_properties(artifact, "artifact")
  uri = artifact["uri"]
  assert uri.isascii() and not set(uri) & set(' "<>\\^`{|}#?'), uri
  if ":" in uri:
    assert uri.startswith("file:///"), uri


def _check_region(region: Any) -> None:
  """Checks the numbers, which count from 1, and that the end is no earlier."""
  _check_properties(region, "region")
  assert all(type(n) is int and n >= 1 for n in region.values()), region
  start = region["startLine"], region["startColumn"]
  assert start <= (region["endLine"], region["endColumn"]), region


def apply_fix(fix: Any, texts: dict[str, str]) -> dict[str, str]:
  """Returns the texts of files, by their URIs, after a fix."""
  texts = dict(texts)
  for change in fix["artifactChanges"]:
    uri = change["artifactLocation"]["uri"]
    for replacement in reversed(change["replacements"]):
      text, region = texts[uri], replacement["deletedRegion"]
      start = _find_offset(text, region["startLine"], region["startColumn"])
      end = _find_offset(text, region["endLine"], region["endColumn"])
      new = replacement["insertedContent"]["text"]
      texts[uri] = text[:start] + new + text[end:]
  return texts


def _find_offset(text: str, line: int, column: int) -> int:
  starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
  assert column == 1 or column - 1 <= len(text.split("\n")[line - 1])
  return starts[line - 1] + column - 1
