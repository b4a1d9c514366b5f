"""A hook of MkDocs: pages that are not in docs/ are part of the site, and links work as they do in the repository."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection

_ROOT: Final = Path(__file__).parents[1]
_DOCS: Final = "docs/"  # what is below this folder of the repository is at the root of the site
_FOLDERS: Final = ("bench/results", "tests/evidence")  # at the same place in both
_PAGES: Final = ("bench/README.md", "tests/README.md")
_LINK: Final = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Any, *, config: Any) -> None:
    """Add the pages and pictures of the other folders."""
    from mkdocs.structure.files import File

    for folder in _FOLDERS:
        for path in sorted((_ROOT / folder).iterdir()):
            if path.suffix in {".md", ".png"}:
                files.append(File.generated(config, f"{folder}/{path.name}", abs_src_path=str(path)))
    for name in _PAGES:
        files.append(File.generated(config, name, abs_src_path=str(_ROOT / name)))


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Make the links of a page those of the site."""
    return with_links_of_site(markdown, page.file.src_uri, files.src_uris)


def with_links_of_site(markdown: str, page: str, pages: Collection[str]) -> str:
    """Return the text with links that lead to the place of each page in the site.

    Args:
        markdown: A page with links as they are in the repository.
        page: Its place in the site.
        pages: Those of all pages and pictures. Other links stay.
    """
    here = posixpath.dirname(page if page.startswith(_FOLDERS + _PAGES) else _DOCS + page)

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, found[1])).removeprefix(_DOCS)
        if target not in pages:
            return found[0]
        return f"]({posixpath.relpath(target, posixpath.dirname(page) or '.')}{found[2] or ''})"

    return _LINK.sub(link, markdown)
