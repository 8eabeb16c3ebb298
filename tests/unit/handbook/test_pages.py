"""The pages that are made from the code, and the links between all of them."""

import re
from pathlib import Path

import pytest

from fairway.api.conditions import Reason
from fairway.cli.verbs import VERBS
from handbook import conditions, generate, metrics, verbs
from handbook.metrics import families
from handbook.recording import Scene, Screen, drawn
from handbook.table import cell

ROOT = Path(__file__).parents[3]
OUTSIDE = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md")]


def test_what_is_committed_is_what_the_code_says():
    for name, content in generate.generated(ROOT).items():
        assert (ROOT / name).read_text() == content, f"{name}: run `make generate`"


def test_every_reason_has_a_line_and_every_verb_a_section():
    page = conditions.page()
    assert [reason for reason in Reason if f"`{reason}`" not in page] == []
    sections = re.findall(r"^## (\S+)$", verbs.page(), re.MULTILINE)
    assert sections == list(VERBS)


def test_a_verb_is_shown_with_its_options_and_their_defaults():
    page = verbs.page()
    assert "| `--port-base` N | `7001` | Servers listen from this port on. |" in page
    assert "`--output`, `-o` table\\|wide\\|json\\|yaml\\|name | `table` |" in page
    assert "`fairway call SERVER [TOOL] [KEY=VALUE]... [OPTIONS]`" in page
    assert "fairway proxy (--config FILE_OR_DIR | --upstream URL" in page


def test_metrics_are_found_where_they_are_exposed(tmp_path: Path):
    (tmp_path / "a.py").write_text(
        'Counter("a", "About a", ["x"], registry=r)\n'
        'GaugeMetricFamily(f"{self._prefix}_b", "About b")\n'
        'text.family("c_total", "counter", "About c", [])\n'
        'text.histogram("d", "About d", [])\n'
    )
    assert [(f.name, f.kind, f.about) for f in families(tmp_path)] == [
        ("a_total", "counter", "About a"),
        ("fairway_b", "gauge", "About b"),
        ("c_total", "counter", "About c"),
        ("d", "histogram", "About d"),
    ]


def test_queries_on_the_page_about_monitoring_name_metrics_that_exist():
    known = set(re.findall(r"^\| `(\S+)` \|", metrics.page(), re.MULTILINE))
    queries = re.findall(r"```promql\n(.*?)```", (ROOT / "docs/how-to/monitor.md").read_text(), re.DOTALL)
    used = {name for query in queries for name in re.findall(r"\b[a-z]+_[a-z_]+(?=[{\[)]|\b ==)", query)}
    assert len(used) > 5
    assert {name.removesuffix("_bucket") for name in used} - known - {"histogram_quantile"} == set()


@pytest.mark.parametrize("page", OUTSIDE, ids=lambda page: page.name)
def test_links_of_pages_outside_the_site_lead_somewhere(page: Path):
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text())
    assert [t for t in targets if "://" not in t and not (page.parent / t).exists()] == []


def test_a_cell_of_a_table_stays_in_its_cell_and_is_no_markup():
    assert cell("a | `b|c` <d> *e*\n[f]") == "a \\| `b\\|c` \\<d> \\*e\\* \\[f]"


def test_a_terminal_that_redraws_shows_its_last_state():
    screen = Screen()
    screen.feed("one\ntwo\n")
    screen.feed("\x1b[1A\x1b[2K\r\x1b[1A\x1b[2K\r\x1b[32mONE\x1b[0m\n")
    assert screen.picture() == ("\x1b[32mONE\x1b[0m",)


def test_a_recording_refers_to_nothing_outside_and_ends_with_its_last_scene():
    svg = drawn([Scene(("$ a",), 1.0), Scene(("$ a", "b & c"), 2.0)])
    assert "font-face" not in svg
    assert "url(h" not in svg
    assert "b&#160;&amp;&#160;c" in svg
    assert ".s1 { opacity: 1;" in svg
