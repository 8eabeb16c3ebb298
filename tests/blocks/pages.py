"""Which pages there are, and how many of their blocks are run."""

from collections import Counter

from rig.state import REPOSITORY
from tests.blocks.fence import Page, read

ELSEWHERE = {REPOSITORY / "docs/reference/examples.md": "test_examples.py runs the very files"}


def pages() -> list[Page]:
    """Those with blocks, in order of name."""
    outside = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    inside = sorted({*(REPOSITORY / "docs").rglob("*.md")} - ELSEWHERE.keys())
    return [page for page in (read(path, root=REPOSITORY) for path in (*outside, *inside)) if page.blocks]


def summary() -> list[str]:
    """How many blocks are run, and why the others are not."""
    blocks = [block for page in pages() for block in page.blocks]
    why = Counter(block.left_out for block in blocks if block.left_out)
    left_out = why.total()
    reasons = [f"  {count:>3}  {reason}" for reason, count in why.most_common()]
    return [f"code blocks of the documentation: {len(blocks) - left_out} run, {left_out} left out", *reasons]
