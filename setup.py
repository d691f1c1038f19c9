"""Where the packages are; everything else is in setup.cfg.

src/ holds links with the installed names, so that an editable install is one folder on the path, where type checkers
find the packages. Archives and file systems without links get the same names without it.
"""

from pathlib import Path

from setuptools import setup

PRIVATE = {"_rlenv_benchmarks": "benchmarks", "_rlenv_labs": "labs", "_rlenv_scripts": "scripts"}

setup(package_dir={"": "src"} if Path(__file__).with_name("src").joinpath("rlenv").is_dir() else PRIVATE)
