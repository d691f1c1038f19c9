"""Folders that are written whole or not at all, by one process at a time."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from weakref import WeakSet

from rlenv._json import read_table

try:
    import fcntl
except ImportError:  # Windows: without locks
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"


class BusyError(ValueError):
    """Another process holds a lock."""


class Lock:
    """Keeps other processes out until it is closed or this process ends, however it ends.

    On a file system without locks, nobody is kept out.

    Args:
        file: exists while the lock is held; one that a killed process left behind does not matter.
        busy: the message if another process holds the lock.

    Raises:
        BusyError: if another process holds it, or has just released it.
    """

    def __init__(self, file: Path, busy: str) -> None:
        self.file = file
        self._descriptor: int | None = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        taken = _flock(self._descriptor)
        if not taken or not self._is_current():  # its last owner removed this file after it was opened
            self._drop()
            raise BusyError(busy)
        _locks.add(self)

    def close(self) -> None:
        """Release the lock; a process forked since it was taken does not have it."""
        if fcntl is not None and self._is_current():  # Windows removes no open files
            self.file.unlink()
        self._drop()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _drop(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _is_current(self) -> bool:
        held = self._descriptor is not None and self.file.exists()
        return held and os.path.samestat(os.fstat(self._descriptor), self.file.stat())  # type: ignore[arg-type]


def _flock(descriptor: int) -> bool:
    """Return whether a file is this process's now, without waiting; True where nothing can be locked."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # no locks on this file system
        return True
    return True


def is_locked(file: Path) -> bool:
    """Tell whether a process holds the lock of a file; False where that cannot be seen, as without the file."""
    if not file.is_file():
        return False
    with file.open() as stream:
        return not _flock(stream.fileno())


_locks: WeakSet[Lock] = WeakSet()


def _drop_locks() -> None:
    for lock in _locks:
        lock._drop()


if hasattr(os, "register_at_fork"):  # else a child that outlives this process would hold its locks
    os.register_at_fork(after_in_child=_drop_locks)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Give an error of a write, such as a full disk, the name of its file or folder."""
    try:
        yield
    except Exception as error:  # libraries in Rust have their own
        from_system = getattr(error, "errno", 0) is not None  # an OSError of words alone would lose them
        if from_system and getattr(error, "filename", None) is None:
            error.filename = str(path)  # type: ignore[attr-defined]
        raise


@contextmanager
def new_folder(path: Path, previous: Path | None = None) -> Iterator[Path]:
    """Yield an empty folder beside the one that it replaces, and put it in its place once all of it is on the disk.

    Whenever this process is killed, and however often: `whole_folder` finds one whole folder. After an error within the
    context, the old one is.

    Args:
        path: the folder.
        previous: where the folder that is replaced is moved, in the same parent; None: it is deleted.

    Raises:
        BusyError: if another process is writing the same folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = path.with_name(f".{path.name}-new"), _old(path)
    busy = f"another process is writing {str(path)!r} at this moment; choose another folder for one of the two"
    with Lock(path.with_name(f".{path.name}-lock"), busy), writing(path):
        shutil.rmtree(fresh, ignore_errors=True)
        try:
            fresh.mkdir()
            yield fresh
            share(fresh, "**/*.safetensors")
            _sync_tree(fresh)
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)  # not before: it may be all there is
                path.replace(old)
            fresh.replace(path)
            if previous is not None and old.exists():
                shutil.rmtree(previous, ignore_errors=True)
                old.replace(previous)
        except BaseException:
            if old.exists() and not path.exists():
                old.replace(path)
            raise
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        sync(path.parent)
        shutil.rmtree(old, ignore_errors=True)


def whole_folder(path: Path) -> Path:
    """Return where a folder written by `new_folder` is: beside its place after a kill between two renames."""
    return next(iter(versions(path)), path)


def versions(path: Path) -> list[Path]:
    """Return the folders that a kill within `new_folder` may leave, the newest first: each is whole."""
    return [folder for folder in (path, _old(path)) if folder.exists()]


def seal(folder: Path) -> None:
    """Write the SHA-256 of every file in a folder into its manifest.json."""
    files = {name: digest_of(folder / name) for name in _files(folder)}
    (folder / MANIFEST).write_text(json.dumps({"sha256": files}, indent=2) + "\n", encoding="utf-8")


def check_seal(folder: Path) -> None:
    """Check that every file of a sealed folder is unchanged.

    Raises:
        ValueError: naming the first file that is missing, cannot be read or differs.
    """
    sealed = read_table(folder / MANIFEST).get("sha256")
    if not isinstance(sealed, dict):
        raise ValueError(f"{str(folder)!r} is damaged: its {MANIFEST} names no files")
    for path in folder.rglob("*"):
        if not (path.is_file() or path.is_dir()):
            raise ValueError(f"{str(folder)!r} is damaged: {path.relative_to(folder)} is neither a file nor a folder")
    present = _files(folder)
    for name, digest in sealed.items():
        if name not in present:
            raise ValueError(f"{str(folder)!r} is damaged: {name} is missing")
        try:
            found = digest_of(folder / name)
        except OSError as error:
            raise ValueError(f"{str(folder)!r} is damaged: {name} cannot be read: {error.strerror}") from error
        if found != digest:
            raise ValueError(f"{str(folder)!r} is damaged: {name} is not what was written (its SHA-256 differs)")


def _files(folder: Path) -> list[str]:
    found = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return sorted(name for name in found if name != MANIFEST)


def digest_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def share(folder: Path, pattern: str) -> None:
    """Give files the permissions that the umask leaves to new ones; safetensors writes for their owner alone.

    Args:
        folder: made under the same umask.
        pattern: of the files in it.
    """
    for file in folder.glob(pattern):
        file.chmod(folder.stat().st_mode & 0o666)


def _old(path: Path) -> Path:
    return path.parent / f".{path.name}-old"  # "." has no name that with_name takes


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        sync(path)
    sync(folder)


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, written to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
