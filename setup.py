"""Where the packages are; everything else is in setup.cfg.

src/rlenv and, in rlenv/, the names of the other folders are links, so that an editable install is one folder on the
path, where type checkers and editors find the packages. Archives and file systems without links get the same names
without it.
"""

from pathlib import Path

from setuptools import setup

FOLDERS = {"rlenv": "rlenv", "rlenv.agents": "agents", "rlenv.verifiers": "verifiers"}
FOLDERS |= {"rlenv._benchmarks": "benchmarks", "rlenv._labs": "labs", "rlenv._scripts": "scripts"}
LINKED = Path(__file__).with_name("src") / "rlenv" / "agents" / "__init__.py"

setup(package_dir={"": "src"} if LINKED.is_file() else FOLDERS)
