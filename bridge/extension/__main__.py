"""`python -m bridge.extension OPERATION HANDLER_ROOT`: one command of the guest agent.

The task boundary: whatever fails becomes an `error` status and a `NotReady` heartbeat before the
exit code says so, because without them Azure would wait for this sequence number until it gives up.
"""

import sys
import traceback
from pathlib import Path

from bridge.errors import BridgeError, ConfigError
from bridge.extension import environment, report
from bridge.extension.operations import OPERATIONS, Extension
from bridge.service.installation import Installation
from bridge.service.layout import Layout

_EXIT_FAILED, _EXIT_BAD_SETTINGS = 1, 53  # 53 is what other extensions use for bad parameters


def main(arguments: list[str]) -> int:
    operation, root = arguments
    try:
        folders = environment.read(Path(root))
    except BridgeError as error:
        return _say(f"{operation}: {error}", _EXIT_FAILED)
    sequence = environment.sequence_number(folders)
    try:
        extension = Extension(folders, sequence, Installation(Layout.from_environment()))
        with extension.installation.locked():
            return _say(OPERATIONS[operation](extension), 0)
    except BridgeError as error:
        code = _EXIT_BAD_SETTINGS if isinstance(error, ConfigError) else _EXIT_FAILED
        return _fail(folders, sequence, operation, str(error), code)
    except OSError as error:
        return _fail(folders, sequence, operation, _os_reason(error), _EXIT_FAILED)
    except Exception as error:  # noqa: BLE001 - the boundary: a bug must be reported, too
        # Where, not what: the text of an unforeseen error might hold a setting.
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        message = f"a mistake in sebridge: {type(error).__name__} at {where}"
        return _fail(folders, sequence, operation, message, _EXIT_FAILED)


def _fail(
    folders: environment.HandlerEnvironment, sequence: int, operation: str, why: str, code: int
) -> int:
    try:
        report.say_not_ready(folders, why, code)
        report.write_status(folders, sequence, operation.title(), "error", why, code=code)
    except OSError as error:
        _say(f"{operation}: cannot tell the guest agent: {_os_reason(error)}", code)
    return _say(f"{operation}: {why}", code)


def _os_reason(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


def _say(text: str, code: int) -> int:
    """The guest agent keeps both streams in CommandExecution.log."""
    print(text, file=sys.stderr if code else sys.stdout)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
