"""How Sphinx writes the book; `autograder/authoring/book.py` lays out what it reads."""

project = "Second Token"
copyright = "the authors of Second Token; text and pictures CC BY 4.0, code MIT"
language = "en"

extensions = ["myst_nb"]
nb_execution_mode = "off"  # the notebooks come executed
nb_ipywidgets_js = {}  # no widgets, so nothing is fetched from elsewhere
nb_merge_streams = True
myst_heading_anchors = 4
myst_enable_extensions = []
exclude_patterns = ["docs/book/**"]
# Examples in the docs leave things out with an ellipsis, which is no Python.
suppress_warnings = ["misc.highlighting_failure", "myst.header"]

html_theme = "pydata_sphinx_theme"
html_title = "Second Token"
html_favicon = "static/icon.svg"
html_context = {"default_mode": "auto"}  # the reader's own choice of light or dark
html_static_path = ["static"]
html_css_files = ["book.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": "Second Token"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"index": []}
