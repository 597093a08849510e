# SPDX-License-Identifier: Apache-2.0
"""Makes a page of a monitored run, which loads nothing from the network."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import html
import itertools

from tf_compat_lossscale.cli import charts
from tf_compat_lossscale.cli import views
from tf_compat_lossscale.cli.views import View
from tf_compat_lossscale.monitoring import verdicts

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; color: #111827; margin: 2rem auto;
  max-width: 62rem; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; overflow-wrap: anywhere; }}
svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; margin: 1rem 0; width: 100%; }}
th, td {{ padding: 0.25rem 0.6rem; text-align: right;
  border-bottom: 1px solid #e5e7eb; }}
th:first-child, td:first-child {{ text-align: left; overflow-wrap: anywhere; }}
.sick {{ color: #c8322b; font-weight: 600; }}
</style>
</head>
<body>
<h1>{title}</h1>
{text}
{picture}
{table}
</body>
</html>
"""


def make_page(found: Sequence[View], picture: str) -> str:
  """Returns a page that holds all it needs, of a run or of several.

  Args:
    found: The steps to show, of each run.
    picture: Their picture, an SVG.
  """
  if len(found) == 1:
    title = _escape(views.make_title(found[0].log))
    text, table = _describe(found[0])
  else:
    title, text, table = f"{len(found)} runs", "", _compare(found)
  return _PAGE.format(
    title=title,
    text=text,
    picture=picture[picture.index("<svg") :],
    table=table,
  )


def _describe(view: View) -> tuple[str, str]:
  """Returns what is above the picture of a run, and its table."""
  lines = [_judge(view, "p"), f"<p>{_summarize(view)}</p>"]
  stuck = views.list_stuck(view.log)
  lines += [f'<p class="sick">{_escape(line)}</p>' for line in stuck]
  table = _make_table(view) if view.culprits else ""
  return "\n".join(filter(None, lines)), table


def _compare(found: Sequence[View]) -> str:
  """Returns the table of several runs."""
  rows = [
    (
      name,
      _escape(views.make_title(view.log)),
      _summarize(view),
      _judge(view, "span"),
    )
    for name, view in zip(charts.NAMES, found)
  ]
  return _write_table(("", "run", "numbers", "verdict"), rows)


def _summarize(view: View) -> str:
  """Returns the numbers of a run."""
  return "<br>\n".join(map(_escape, views.summarize(view)))


def _judge(view: View, tag: str) -> str:
  """Returns the verdict on a run, if all of its steps are shown."""
  if not view.is_whole:
    return ""
  verdict = verdicts.judge(view.log)
  kind = "well" if verdict.is_healthy else "sick"
  return f'<{tag} class="{kind}">{_escape(verdict.sentence)}</{tag}>'


def _make_table(view: View) -> str:
  """Returns the gradients at fault as a table."""
  header = (
    *("gradient at fault", "steps", "share of skipped steps"),
    *("first", "last", "inf", "NaN", "elements"),
  )
  rows = [
    (
      _escape(c.name),
      *(str(len(c.steps)), f"{len(c.steps) / len(view.lost):.1%}"),
      *map(str, (c.steps[0], c.steps[-1], c.inf, c.nan, c.size)),
    )
    for c in view.culprits
  ]
  return _write_table(header, rows)


def _write_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """Returns cells, which are HTML, as a table."""
  head = "".join(f"<th>{cell}</th>" for cell in header)
  body = itertools.chain.from_iterable(
    ["<tr>", *(f"<td>{cell}</td>" for cell in row), "</tr>\n"] for row in rows
  )
  return f"<table>\n<tr>{head}</tr>\n{''.join(body)}</table>"


def _escape(text: str) -> str:
  """Returns a text as HTML."""
  return html.escape(views.clean(text))
