"""Name the README's picture by its address, because an index shows the README alone."""

from pathlib import Path

from setuptools import setup

_PICTURES = "https://github.com/mcjax/mcjax-launch/raw/main/docs/pictures/"
_README = Path(__file__).with_name("README.md").read_text(encoding="utf-8")

setup(
    long_description=_README.replace('src="docs/pictures/', f'src="{_PICTURES}'),
    long_description_content_type="text/markdown",
)
