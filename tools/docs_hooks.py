# SPDX-License-Identifier: Apache-2.0
"""Puts help and sources into the documentation, for `make docs`."""

import os
import re
import subprocess
import sys
from typing import Any

from mkdocs import utils


def on_page_context(context: Any, page: Any, config: Any, **_: Any) -> None:
  """Links each page, except of the reference, to its Markdown in the site."""
  source = f"sources/{page.file.src_uri}.txt"
  if not page.file.src_uri.startswith("api/"):
    page.edit_url = utils.get_relative_url(source, page.url)
    utils.copy_file(page.file.abs_src_path, f"{config.site_dir}/{source}")


def on_page_content(html: str, **_: Any) -> str:
  """Marks words of code that have signs in them, which site.css keeps whole."""
  code = re.compile("(?<=<code>).*?(?=</code>)", re.DOTALL)
  word = r"[^\s<>]*[-./=(:]\w[^\s<>]*(?=[^<>]*(?:<|$))"  # In no tag.
  return code.sub(lambda match: re.sub(word, _mark_word, match[0]), html)


def _mark_word(match: re.Match[str]) -> str:
  """Returns a marked word; one that may be longer than a line can break."""
  is_long = len(match[0]) >= 40
  signs = r"(?<=\w)[./(=:]+(?=\w)" if is_long else r"(?<=\w)[./(:]+(?=[^\W\d])"
  word = re.sub(signs, r"\g<0><wbr>", match[0])
  kind = "option" if word[0] == "-" else "word"
  return word if is_long else f'<span class="{kind}">{word}</span>'


def on_page_markdown(markdown: str, **_: object) -> str:
  """Replaces each line `{help COMMAND}` by what `COMMAND --help` prints."""
  return re.sub(r"^\{help(.*)\}$", _read_help, markdown, flags=re.MULTILINE)


def _read_help(match: re.Match[str]) -> str:
  command = [sys.executable, "-m", "tf_compat_lossscale", *match[1].split()]
  printed = subprocess.run(
    [*command, "--help"],
    capture_output=True,
    check=True,
    env={**os.environ, "COLUMNS": "80"},
    text=True,
  )
  return f"```text\n{printed.stdout}```"
