"""Finding, downloading and checking data files; the manifest."""

import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading

import pytest

from rnade.data import DataStore
from rnade.data.manifest import Manifest, default_manifest
from rnade.exceptions import DataError

CONTENTS = {
    "tables/a.csv": b"1,2\n3,4\n",
    "pictures/one.jpg": b"first picture",
    "pictures/two.jpg": b"second picture",
    "words.data": b"0,1\n1,1\n",
}


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def archive(contents=CONTENTS):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, data in contents.items():
            member = tarfile.TarInfo(f"Set/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed.getvalue()


@pytest.fixture
def server(monkeypatch):
    """A web server on this machine: a dict of paths to what they give, and the requests made."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RNADE_DATA", raising=False)
    pages: dict[str, bytes] = {}
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            if self.path not in pages:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(pages[self.path])))
            self.end_headers()
            self.wfile.write(pages[self.path])

        def log_message(self, *_):
            pass

    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}", pages, asked
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()


def small_manifest(address):
    files = {}
    for name, data in CONTENTS.items():
        entry = {"sha256": sha256(data), "bytes": len(data), "set": "made"}
        if name.startswith("pictures"):
            entry |= {"archive": "pictures", "member": f"Set/{name}"}
        elif name.startswith("tables"):
            entry |= {"url": f"{address}/{name}"}
        files[name] = entry
    return Manifest.from_json(
        json.dumps(
            {
                "files": files,
                "sets": {"made": {"source": "the tests", "licence": "none"}},
                "archives": {"pictures": {"url": f"{address}/pictures.tgz"}},
            }
        )
    )


def test_a_file_is_downloaded_once(server, tmp_path):
    address, pages, asked = server
    pages["/tables/a.csv"] = CONTENTS["tables/a.csv"]
    for _ in range(2):
        store = DataStore(manifest=small_manifest(address), cache=tmp_path)
        assert store.read("tables/a.csv") == CONTENTS["tables/a.csv"]
    assert asked == ["/tables/a.csv"]


def test_a_damaged_download_is_fetched_again(server, tmp_path):
    address, pages, asked = server
    pages["/tables/a.csv"] = CONTENTS["tables/a.csv"]
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.csv").write_bytes(CONTENTS["tables/a.csv"][:3])
    store = DataStore(manifest=small_manifest(address), cache=tmp_path)
    assert store.read("tables/a.csv") == CONTENTS["tables/a.csv"]
    assert len(asked) == 1


def test_an_archive_is_unpacked_and_every_member_checked(server, tmp_path):
    address, pages, asked = server
    pages["/pictures.tgz"] = archive()
    store = DataStore(manifest=small_manifest(address), cache=tmp_path)
    for name in store.names("pictures/"):
        assert store.read(name) == CONTENTS[name]
    assert not (tmp_path / "words.data").exists()
    (tmp_path / "pictures" / "one.jpg").write_bytes(b"first")  # damaged later: unpacked again
    assert store.read("pictures/one.jpg") == CONTENTS["pictures/one.jpg"]
    assert asked == ["/pictures.tgz"]


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (archive()[:60], "is damaged or has changed"),
        (archive({**CONTENTS, "pictures/two.jpg": b"another"}), "is damaged or has changed"),
        (archive({"pictures/one.jpg": b"first picture"}), "lacks 1 files, Set/pictures/two.jpg"),
        (b"<html>moved</html>", "is damaged or has changed"),
    ],
    ids=["cut short", "another picture", "a picture missing", "a page"],
)
def test_a_bad_archive_is_told_and_not_kept(server, tmp_path, packed, message):
    address, pages, asked = server
    pages["/pictures.tgz"] = packed
    store = DataStore(manifest=small_manifest(address), cache=tmp_path)
    with pytest.raises(DataError, match=message):
        store.read("pictures/two.jpg")
    pages["/pictures.tgz"] = archive()
    assert store.read("pictures/two.jpg") == CONTENTS["pictures/two.jpg"]
    assert len(asked) == 2


def test_what_comes_from_the_network_must_have_the_right_checksum(server, tmp_path):
    address, pages, _ = server
    pages["/tables/a.csv"] = b"something else"
    store = DataStore(manifest=small_manifest(address), cache=tmp_path)
    with pytest.raises(DataError, match="a.csv gives is not the file that was expected"):
        store.read("tables/a.csv")
    assert not (tmp_path / "tables" / "a.csv").exists()


def test_a_missing_page_and_a_missing_network(server, tmp_path):
    address, _, _ = server
    with pytest.raises(
        DataError, match=r"Cannot download .*HTTPError.*--data-dir or set RNADE_DATA"
    ):
        DataStore(manifest=small_manifest(address), cache=tmp_path).read("tables/a.csv")
    nowhere = small_manifest("http://127.0.0.1:9")  # the port "discard": nobody listens
    with pytest.raises(DataError, match=r"Cannot download .*ConnectionError"):
        DataStore(manifest=nowhere, cache=tmp_path).read("tables/a.csv")


def test_a_file_without_an_address_says_where_it_comes_from(server, tmp_path):
    store = DataStore(manifest=small_manifest(server[0]), cache=tmp_path)
    with pytest.raises(DataError, match="cannot be downloaded by this program. Source: the tests"):
        store.read("words.data")


def test_a_folder_serves_plain_and_zipped_files(tmp_path):
    manifest = small_manifest("http://nowhere")
    (tmp_path / "words.data").write_bytes(CONTENTS["words.data"])
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "a.csv.gz").write_bytes(gzip.compress(CONTENTS["tables/a.csv"]))
    store = DataStore(tmp_path, manifest=manifest)
    for name in ("words.data", "tables/a.csv"):
        assert store.read(name) == CONTENTS[name]


def test_faults_of_a_folder(tmp_path, monkeypatch):
    manifest = small_manifest("http://nowhere")
    store = DataStore(tmp_path, manifest=manifest)
    with pytest.raises(DataError, match="words.data is missing"):
        store.read("words.data")
    (tmp_path / "words.data").write_bytes(CONTENTS["words.data"][:5])
    with pytest.raises(DataError, match="expected 8 bytes, got 5; perhaps it is incomplete"):
        store.read("words.data")
    (tmp_path / "words.data").write_bytes(b"0,1\n1,0\n")
    with pytest.raises(DataError, match="its sha256 is not"):
        store.read("words.data")
    (tmp_path / "words.data").unlink()
    (tmp_path / "words.data.gz").write_bytes(gzip.compress(CONTENTS["words.data"])[:-6])
    with pytest.raises(DataError, match="damaged or incomplete"):
        store.read("words.data")
    with pytest.raises(ValueError, match="Did you mean 'words.data'"):
        store.read("word.data")
    monkeypatch.setenv("RNADE_DATA", str(tmp_path / "none"))
    with pytest.raises(DataError, match="The data folder .*none does not exist"):
        DataStore(manifest=manifest)


def test_the_environment_names_a_folder_and_an_argument_wins(tmp_path, monkeypatch):
    monkeypatch.setenv("RNADE_DATA", str(tmp_path))
    assert DataStore().folder == tmp_path
    (tmp_path / "other").mkdir()
    assert DataStore(tmp_path / "other").folder == tmp_path / "other"


def test_every_file_of_the_manifest_has_a_source_and_a_licence():
    manifest = default_manifest()
    for entry in manifest.files.values():
        assert manifest.sets[entry.set]["source"]
        assert manifest.sets[entry.set]["licence"]
        assert len(entry.sha256) == 64
        assert entry.bytes > 0
        assert entry.archive is None or entry.archive in manifest.archives
        if entry.set not in ("timit-sample", "red-wine-folds"):
            assert entry.url or entry.archive


def test_the_packaged_folds_need_no_folder():
    lines = DataStore().read("uci/red_wine_paper_folds.csv").decode().splitlines()
    assert sorted(int(line.split(",")[0]) for line in lines[1:]) == list(range(1599))


@pytest.mark.data
def test_the_manifest_agrees_with_the_folder(data_folder):
    """Size and checksum of every file; and no folder of the manifest holds a file unknown to it.

    The data folder may hold other sets beside.
    """
    store = DataStore(data_folder)
    for name, entry in store.manifest.files.items():
        assert len(store.read(name)) == entry.bytes
        if entry.gzip_sha256 is not None:
            assert sha256((data_folder / f"{name}.gz").read_bytes()) == entry.gzip_sha256
    found = {
        path.relative_to(data_folder).as_posix().removesuffix(".gz")
        for folder in {name.split("/")[0] for name in store.manifest.files}
        for path in (data_folder / folder).rglob("*")
        if path.is_file()
    }
    assert found == set(store.manifest.files)


@pytest.mark.data
def test_rows_and_columns_of_the_manifest(data_folder):
    store = DataStore(data_folder)
    for name, entry in store.manifest.files.items():
        if entry.rows is None:
            continue
        lines = store.read(name).decode().splitlines()
        header = name.endswith(".csv") or "parkinsons" in name
        separator = {True: ";", False: ","}["winequality" in name]
        cells = lines[-1].split() if "housing" in name else lines[-1].split(separator)
        assert (len(lines) - header, len(cells)) == (entry.rows, entry.columns), name
