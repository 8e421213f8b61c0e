"""The command line from outside: bad options, strangers at the agent's port, one line an error."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from bridge import cli
from tests.support.mosquitto import free_port


@contextmanager
def answering(status: int, body: bytes) -> Iterator[int]:
    """Something that is no agent, on a free port."""

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Not into the output of the tests."""

    server = HTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("command", ["status", "audit"])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>hello"),
        (200, b'{"up": "\xff"}'),
        (200, b'{"up": true}'),
        (404, b"not here"),
        (500, b"oh"),
    ],
)
def test_stranger_at_the_agents_port_is_told(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    status: int,
    body: bytes,
) -> None:
    """Neither a traceback nor an empty ledger: the answer is not an agent's."""
    config = tmp_path / "config.toml"
    with answering(status, body) as port:
        config.write_text(f'[http]\nlisten = "127.0.0.1:{port}"\n')
        code = cli.main([command, "--config", str(config)])

    printed = capsys.readouterr()
    assert 1 == code
    assert "" == printed.out
    assert "is no agent" in printed.err
    assert "http.listen" in printed.err


def test_no_agent_at_the_port_is_told_in_plain_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nobody listens the message says where, why and what to look at."""
    config, port = tmp_path / "config.toml", free_port()
    config.write_text(f'[http]\nlisten = "127.0.0.1:{port}"\n')

    assert 1 == cli.main(["status", "--config", str(config)])
    assert (
        f"sebridge: no agent answers at http://127.0.0.1:{port}/status:"
        " [Errno 111] Connection refused; is `sebridge run` up?\n"
    ) == capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["approve", "E1", "--timeout", "-1"], "'-1' is no number of seconds above 0"),
        (["approve", "E1", "--timeout", "nan"], "'nan' is no number of seconds above 0"),
        (["approve", "E1", "--timeout", "soon"], "'soon' is no number of seconds above 0"),
        (["approve", ""], "EVENT_ID: it is empty"),
        (["demo", "--duration", "inf"], "'inf' is no number of seconds above 0"),
        (["demo", "--port", "99999"], "'99999' is no port (0 to 65535)"),
        (["demo", "--port", "mqtt"], "'mqtt' is no port (0 to 65535)"),
    ],
)
def test_bad_option_is_bad_usage(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    """Before anything is started or sent, with exit code 2 and the value."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)

    assert 2 == caught.value.code
    assert message in capsys.readouterr().err


def test_broker_away_is_said_once(tmp_path: Path) -> None:
    """One line, with the program's name; the feed's log is not printed beside it."""
    config, port = tmp_path / "config.toml", free_port()
    config.write_text(f'[mqtt]\nhost = "127.0.0.1"\nport = {port}\n')
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "approve", "E1", "--config", config],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert 1 == done.returncode
    assert [f"sebridge: mqtt 127.0.0.1:{port}: [Errno 111] Connection refused"] == (
        done.stderr.splitlines()
    )
