"""The description for a package index, where a path within the clone leads nowhere: links to files become text."""

import re
from pathlib import Path

from setuptools import setup

README = Path(__file__).with_name("README.md").read_text("utf-8")
WITHOUT_PICTURES = re.sub(r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*", "", README)
TEXT = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", WITHOUT_PICTURES)

setup(long_description=TEXT, long_description_content_type="text/markdown")
