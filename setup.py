"""The description for a package index, where a path within the clone leads nowhere: links to files become text, and
what has only links is left out. And the compiled kernel, without which the package works, too, only slower."""

import re
from pathlib import Path

from setuptools import Extension, setup

README = Path(__file__).with_name("README.md").read_text("utf-8")
WITHOUT_PICTURES = re.sub(
    r"!\[[^\]]*\]\((?!https?:)[^)]*\)\n*|## Where to go on\n.*?(?=\n## |\Z)", "", README, flags=re.DOTALL
)
TEXT = re.sub(r"\[([^\]]*)\]\((?!https?:)[^)]*\)", r"\1", WITHOUT_PICTURES)

# No -ffast-math, and no contraction: the bits are to be the same on every CPU (uio_pipes/dsp/_kernel.c).
KERNEL = Extension(
    "uio_pipes.dsp._kernel",
    ["uio_pipes/dsp/_kernel.c"],
    extra_compile_args=["-O3", "-ffp-contract=off", "-Wno-psabi"],
    define_macros=[("Py_LIMITED_API", "0x030A0000")],
    py_limited_api=True,
    optional=True,
)
setup(
    long_description=TEXT,
    long_description_content_type="text/markdown",
    ext_modules=[KERNEL],
    options={"bdist_wheel": {"py_limited_api": "cp310"}},
)
