"""A sandbox for LangChain's Deep Agents: create_deep_agent(model=…, backend=DemesneSandbox(Sandbox("python"))).

pip install demesne[langchain] installs what it needs. The image needs sh and python3.
"""

from __future__ import annotations

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileOperationError, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from ._adapt import check_file
from ._errors import DemesneError
from ._sandbox import Sandbox

WORDS: dict[type, FileOperationError] = {
    FileNotFoundError: "file_not_found", IsADirectoryError: "is_directory", PermissionError: "permission_denied",
}


class DemesneSandbox(BaseSandbox):
    """Runs an agent's commands and files in a sandbox, which its caller made and ends.

    A command without a timeout may take timeout seconds. Of its output the first max_output bytes are kept.
    """

    def __init__(self, sandbox: Sandbox, *, timeout: float = 1800, max_output: int = 1 << 20) -> None:
        self.sandbox, self._timeout, self._max_output = sandbox, timeout, max_output

    @property
    def id(self) -> str:
        return self.sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        """Runs a command. Raises SandboxLost if the sandbox or the server ended: the command then has no exit code."""
        limit = self._timeout if timeout is None else timeout
        if limit < 0:
            raise ValueError(f"timeout must not be negative, got {limit}")
        done = self.sandbox.run(command, timeout=limit or None, max_output=self._max_output)
        output = "\n".join(part for part in (done.stdout, done.stderr) if part)
        if done.reason == "timed-out":
            output += f"\nCommand timed out after {limit} seconds"
        elif done.reason not in ("exited", "signaled"):
            output += f"\nCommand ended: {done.reason} {done.detail}".rstrip()
        return ExecuteResponse(output=output, exit_code=done.exit_code, truncated=done.truncated)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._transfer(path, data)[1]) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        answers = ((path, *self._transfer(path)) for path in paths)
        return [FileDownloadResponse(path=path, content=content, error=error) for path, content, error in answers]

    def _transfer(self, path: str, data: bytes | None = None) -> tuple[bytes | None, FileOperationError | None]:
        """Writes or reads a file, and returns its content or the framework's word for the error."""
        if not path.startswith("/"):
            return None, "invalid_path"
        try:
            check_file(self.sandbox.stat(path), path, reads=data is None)
            if data is None:
                return self.sandbox.files.read(path), None
            self.sandbox.files.write(path, data)
            return None, None
        except OSError as error:  # of check_file
            return None, WORDS[type(error)]
        except DemesneError as error:
            if error.status not in (400, 404):
                raise
            return None, "invalid_path"
