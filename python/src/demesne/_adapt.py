"""What the adapters share."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

CLOSED = "none.invalid"  # a rule for a name that does not exist: set_network may open the sandbox's network later


def check_file(info: Mapping[str, Any] | None, path: str, reads: bool) -> int:
    """Raises the error of a path that is not a file, and returns the size of the file. info is the path's Sandbox.stat."""
    if info is None:
        if reads:
            raise FileNotFoundError(f"{path}: no such file")
        return 0
    if info["is_dir"]:
        raise IsADirectoryError(f"{path} is a directory")
    if ("r" if reads else "w") not in info["mode"][1:4]:  # root may do it all the same, which no agent should see
        raise PermissionError(f"{path}: permission denied")
    return int(info["size"])
