"""What tests of the command line share: results of commands, and a folder to run them in."""

import json


def succeeded(result):
    """Give what a command wrote to stdout."""
    code, out, _ = result
    assert code == 0, result
    return out


def told(result):
    """Give what a command wrote to stdout as JSON."""
    return json.loads(succeeded(result))


def error(result):
    """Give the last line on stderr of a command that failed for bad input."""
    code, out, err = result
    assert (code, out) == (2, ""), result
    assert err.splitlines()[-1].startswith("rnade: error: ")
    return err.splitlines()[-1].removeprefix("rnade: error: ")


def work_in(folder, monkeypatch, origin):
    """Make a folder the current one, with copies of the files of another in it."""
    for path in origin.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    monkeypatch.chdir(folder)
    monkeypatch.delenv("RNADE_DEBUG", raising=False)
    return folder
