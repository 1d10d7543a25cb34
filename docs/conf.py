"""How Sphinx makes the site of the documentation: `make docs`.

Its sources are the Markdown pages as they stand in the repository, so every link means the same on
the site as it does there. Three things are made while it is built, and are kept nowhere:

- the navigation, from the lists in docs/index.md;
- the reference of the Python names, from their docstrings, where docs/python.md lists them;
- the reference of the program, from its own help texts, where docs/commands.md lists its verbs.

It does not check what a name or a text says; tests/python/test_site.py builds the site strictly.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "site"))

project = "Saturn"
html_show_copyright = False
html_show_sphinx = False

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "pages"]
root_doc = "docs/index"
include_patterns = ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "docs/**.md"]
# Sphinx need not look through builds and environments.
exclude_patterns = [path.name for path in ROOT.iterdir() if path.is_dir() and path != HERE]

# Anchors are those of GitHub, and a link to one that is not there is an error.
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]

# Docstrings are plain text with Google's sections; what stands in backticks is code.
default_role = "code"
toc_object_entries_show_parents = "hide"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
napoleon_use_ivar = True

# Nothing comes from elsewhere: furo brings its style and uses the reader's fonts.
html_theme = "furo"
html_title = "Saturn"
html_static_path = ["site/static"]
html_css_files = ["saturn.css"]
html_extra_path = ["site/root"]
html_copy_source = False
html_show_sourcelink = False
