"""The operator's settings as a page, from the table that it reads its command line by."""

from fairway.controllers.operator import FILE, IMAGE, PREFIX, SETTINGS
from handbook.table import cell, table

_INTRO = f"""\
# Settings of the operator

Each setting has one name. A flag wins over its environment variable, that over the file, and that over the default; an
empty variable says nothing. The file is YAML with one setting a line: `{FILE}` if there is one, or what
`--config` or `{PREFIX}_CONFIG` names. [Run the operator](../how-to/operate.md#change-a-setting) shows how to change
one.

What is marked *at once* takes effect when the file changes; a change of anything else is logged as waiting for a
restart.
"""


def page() -> str:
    rows = []
    for one in SETTINGS:
        default = "the operator's own version" if one is IMAGE else f"`{one.default}`" if one.default else ""
        live = "at once" if one.live else ""
        rows.append((f"`--{one.name}`", f"`{one.variable(PREFIX)}`", default, cell(one.help), live))
    outro = "\n`--kubeconfig` and `--context` choose the cluster when the operator does not run in a pod.\n"
    return "\n".join([_INTRO, *table(("flag", "variable", "default", "what", ""), rows), outro])
