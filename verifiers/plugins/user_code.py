"""Verifiers in files and folders that are not installed: found by path, here and in worker processes.

A module of the user has a separate finder, which Python asks after all others. So a file next to the user's cannot
take the place of an installed package, and the module search path stays as it is.
"""

from __future__ import annotations

import importlib
import re
import sys
import zlib
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from rlenv._checks import did_you_mean

SUFFIX = ".py"


class UserCode:
    """The finder: modules made from files, and the folders in which they look for other modules.

    Attributes:
        files: path by module name.
        folders: of these files, and the current directory if a module was found there.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.folders: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return how a module is loaded; None for one that is not the user's. Python's import calls this."""
        if name in self.files:
            return spec_from_file_location(name, self.files[name])
        if path is not None or not self.folders:  # a part of a package
            return None
        spec = PathFinder.find_spec(name, self.folders)
        return None if spec is None or spec.origin is None else spec  # any folder would be a namespace package

    def add(self, files: Mapping[str, str], folders: Sequence[str]) -> None:
        """Know more files and folders."""
        if self not in sys.meta_path:
            sys.meta_path.append(self)
        self.files |= files
        self.folders += [folder for folder in folders if folder not in self.folders]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as a call that adds these files and folders where it is unpickled, before objects that need them."""
        return _known, (self.files, self.folders)


CODE = UserCode()


def _known(files: Mapping[str, str], folders: Sequence[str]) -> UserCode:
    CODE.add(files, folders)
    return CODE


def import_user_object(spec: str) -> Any:
    """Return an object of a module that is named by itself or by its file, "module:Name" or "file.py:Name".

    Raises:
        ImportError: if the module has no such name, with the closest one; importing it may raise anything else.
    """
    module, _, name = spec.rpartition(":")
    found = import_user_module(module)
    if not hasattr(found, name):
        close = did_you_mean(name, vars(found)).rstrip()
        raise ImportError(f"there is no {name!r} in {module!r}" + f"; {close}" * bool(close))
    return getattr(found, name)


def import_user_module(name: str) -> ModuleType:
    """Return a module of a name or a file, also one of the current directory; importing it may raise anything."""
    if name.endswith(SUFFIX):
        return _import_file(Path(name))
    if not _is_importable(name) and _is_importable_from(Path.cwd(), name):
        CODE.add({}, [str(Path.cwd())])
    return importlib.import_module(name)


def find_module_file(name: str) -> Path | None:
    """Return the file that `name` stands for, absolute; None for an installed module, or a package of this directory.

    Args:
        name: the path of a file, or the name of a module of the current directory.
    """
    if name.endswith(SUFFIX):
        return Path(name).absolute()
    file = Path(f"{name}{SUFFIX}").absolute()
    return file if name.isidentifier() and file.is_file() and not _is_importable(name) else None


def _import_file(file: Path) -> ModuleType:
    file = file.resolve()
    if not file.is_file():
        raise ImportError(f"the file {str(file)!r} does not exist")
    digest = f"{zlib.crc32(bytes(file)):08x}"  # hashlib would take a worker process as long to import as `re`
    name = f"{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}_{digest}"  # two files may have the same name
    CODE.add({name: str(file)}, [str(file.parent)])
    return importlib.import_module(name)


def _is_importable(name: str) -> bool:
    """Tell whether Python finds a module without this finder."""
    top = name.partition(".")[0]
    try:
        spec = find_spec(top)
    except ValueError:  # a module without a spec, such as __main__
        return True
    ours = CODE.find_spec(top)
    return spec is not None and (ours is None or ours.origin != spec.origin)


def _is_importable_from(folder: Path, name: str) -> bool:
    importlib.invalidate_caches()
    return PathFinder.find_spec(name.partition(".")[0], [str(folder)]) is not None
