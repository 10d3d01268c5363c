import hashlib
import tarfile
import threading
from pathlib import Path

import pytest

from frontier_local import assets, builds, downloads
from frontier_local.errors import AssetError


def make_executable(path: Path, text: str = "#!/bin/sh\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def make_resolver(tmp_path: Path, **over):
    values = {"environment": {"PATH": ""}, "cache": tmp_path / "cache", "checksums": {}, "progress": lambda _line: None}
    return assets.Resolver(**(values | over))


@pytest.fixture
def no_way_out(monkeypatch):
    """Neither a package nor a build can be had."""

    def refuse(*_arguments):
        raise AssetError("refused for the test")

    monkeypatch.setattr(downloads, "unpack_package", refuse)
    monkeypatch.setattr(builds, "build", refuse)


def test_the_directory_of_the_environment_comes_before_the_cache(tmp_path):
    want = make_executable(tmp_path / "given" / "etcd")
    resolver = make_resolver(tmp_path, environment={assets.ASSETS_VARIABLE: str(tmp_path / "given")})
    make_executable(resolver.directory / "etcd")
    assert resolver.resolve(["etcd"])["etcd"] == assets.Asset("etcd", want, "FRONTIER_ASSETS")


def test_what_the_given_directory_lacks_is_looked_for_further_on(tmp_path):
    (tmp_path / "given").mkdir()
    resolver = make_resolver(tmp_path, environment={assets.ASSETS_VARIABLE: str(tmp_path / "given")})
    make_executable(resolver.directory / "etcd")
    assert resolver.resolve(["etcd"])["etcd"].origin == "cache"


def test_a_given_directory_that_does_not_exist_is_an_error_and_not_passed_over(tmp_path):
    resolver = make_resolver(tmp_path, environment={assets.ASSETS_VARIABLE: str(tmp_path / "absent")})
    with pytest.raises(AssetError, match=r"FRONTIER_ASSETS=.*absent is not a directory; correct or unset"):
        resolver.find("etcd")


def test_a_file_that_cannot_be_run_is_not_an_asset(tmp_path):
    resolver = make_resolver(tmp_path)
    make_executable(resolver.directory / "etcd").chmod(0o644)
    assert resolver.find("etcd") is None


def test_only_prometheus_is_taken_from_the_path(tmp_path):
    for name in ("prometheus", "etcd"):
        make_executable(tmp_path / "bin" / name)
    resolver = make_resolver(tmp_path, environment={"PATH": str(tmp_path / "bin")})
    assert resolver.find("prometheus").origin == "PATH"
    assert resolver.find("etcd") is None


def test_what_cannot_be_had_names_every_step_and_the_way_out(tmp_path, no_way_out):
    with pytest.raises(AssetError) as caught:
        make_resolver(tmp_path).resolve(["prometheus"])
    message = str(caught.value)
    assert "FRONTIER_ASSETS" in message
    for step in ("release: no checksum is known for https://", "package: refused", "build: refused"):
        assert step in message


def test_two_resolvers_at_once_build_once(tmp_path, monkeypatch):
    built, entered, go_on = [], threading.Event(), threading.Event()

    def build(name, target, _progress):
        built.append(name)
        entered.set()
        assert go_on.wait(10)
        make_executable(target)

    monkeypatch.setattr(builds, "build", build)
    waiting = threading.Event()
    first = threading.Thread(target=make_resolver(tmp_path).resolve, args=(["etcd"],))
    second = threading.Thread(
        target=make_resolver(tmp_path, progress=lambda _line: waiting.set()).resolve, args=(["etcd"],)
    )
    first.start()
    assert entered.wait(10)
    second.start()
    assert waiting.wait(10)
    go_on.set()
    first.join(10)
    second.join(10)
    assert built == ["etcd"]
    assert make_resolver(tmp_path).find("etcd").origin == "cache"


def test_a_release_with_the_listed_checksum_is_installed(tmp_path, monkeypatch):
    binary = make_executable(tmp_path / "published" / "etcd", "the binary")
    archive = tmp_path / "published" / "etcd.tar.gz"
    with tarfile.open(archive, "w:gz") as contents:
        contents.add(binary, "etcd-v0/etcd")
    url = archive.as_uri()
    monkeypatch.setattr(downloads, "release", lambda _name: downloads.Release(url, "etcd-v0/etcd"))
    resolver = make_resolver(tmp_path, checksums={url: hashlib.sha256(archive.read_bytes()).hexdigest()})
    found = resolver.resolve(["etcd"])["etcd"]
    assert found.origin == "release"
    assert found.path.read_text() == "the binary"


def test_a_release_with_another_checksum_leaves_nothing_behind(tmp_path, monkeypatch, no_way_out):
    published = make_executable(tmp_path / "published")
    monkeypatch.setattr(downloads, "release", lambda _name: downloads.Release(published.as_uri()))
    resolver = make_resolver(tmp_path, checksums={published.as_uri(): "0" * 64})
    with pytest.raises(AssetError, match=r"sha256 is .*, expected 0000.*nothing was installed"):
        resolver.resolve(["kube-scheduler"])
    assert [path.name for path in resolver.directory.iterdir()] == [".lock"]


def test_a_checksum_file_is_read_with_its_comments(tmp_path):
    path = tmp_path / "sums"
    path.write_text(f"# releases\n\n{'A' * 64}  https://example.org/x # note\n")
    assert downloads.read_checksums(path) == {"https://example.org/x": "a" * 64}


@pytest.mark.parametrize("line", ["abc  https://example.org", "0" * 64, f"{'0' * 64} a b"])
def test_a_malformed_checksum_names_its_line(tmp_path, line):
    path = tmp_path / "sums"
    path.write_text(f"\n{line}\n")
    with pytest.raises(AssetError, match=r"sums:2: expected"):
        downloads.read_checksums(path)


@pytest.mark.parametrize("name", assets.NAMES)
def test_every_binary_has_a_pinned_recipe(name, tmp_path):
    plan = builds.recipe(name)
    module = (plan.module / "go.mod").read_text()
    sums = (plan.module / "go.sum").read_text()
    assert (plan.module / "tools.go").exists()
    assert any(plan.package.startswith(line.split()[0]) for line in sums.splitlines())
    for version in (builds.ETCD, builds.KUBERNETES) if name in assets.CONTROL_PLANE else ():
        assert version in module
    command = plan.command(tmp_path / "out")
    assert command[:3] == ["go", "build", "-mod=readonly"]
    assert command[-1] == plan.package


def test_kubernetes_binaries_are_told_their_version(tmp_path):
    linker = next(word for word in builds.recipe("kube-apiserver").command(tmp_path) if word.startswith("-ldflags"))
    for variable in ("gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"):
        assert f"-X k8s.io/component-base/version.{variable}" in linker


def test_a_failed_build_shows_the_compilers_last_words(tmp_path, monkeypatch):
    make_executable(tmp_path / "bin" / "go", "#!/bin/sh\necho cannot find module\nexit 3\n")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    with pytest.raises(AssetError, match=r"(?s)exit code 3.*cannot find module"):
        builds.build("etcd", tmp_path / "etcd", lambda _line: None)
    assert not (tmp_path / "etcd").exists()


def test_a_build_is_installed_whole_and_says_that_it_begins(tmp_path, monkeypatch):
    script = '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -o ] && echo built > "$2"; shift; done\n'
    make_executable(tmp_path / "bin" / "go", script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    lines = []
    builds.build("kube-apiserver", tmp_path / "out", lines.append)
    assert (tmp_path / "out").read_text() == "built\n"
    assert "about 7 minutes on two cores" in lines[0]


def test_without_go_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(AssetError, match="Go is not installed"):
        builds.build("etcd", tmp_path / "etcd", lambda _line: None)


def test_what_is_downloaded_by_default_has_a_published_checksum():
    known = downloads.read_checksums(downloads.PINNED)
    assert {downloads.release(name).url for name in assets.NAMES} <= set(known)
    assert {len(digest) for digest in known.values()} == {64, 128}


def test_one_archive_of_the_server_gives_three_binaries():
    members = {name: downloads.release(name) for name in assets.NAMES if name.startswith("kube-")}
    assert len({release.url for release in members.values()}) == 1
    assert {release.member.rpartition("/")[2] for release in members.values()} == set(members)


def test_a_release_with_a_longer_digest_is_checked_by_it(tmp_path, monkeypatch):
    published = make_executable(tmp_path / "published", "the binary")
    monkeypatch.setattr(downloads, "release", lambda _name: downloads.Release(published.as_uri()))
    digest = hashlib.sha512(published.read_bytes()).hexdigest()
    found = make_resolver(tmp_path, checksums={published.as_uri(): digest}).resolve(["kube-scheduler"])
    assert found["kube-scheduler"].origin == "release"


def test_the_servers_archive_is_fetched_once_for_all_of_its_binaries(tmp_path, monkeypatch):
    names = [name for name in assets.NAMES if name.startswith("kube-")]
    archive = tmp_path / "server.tar.gz"
    with tarfile.open(archive, "w:gz") as contents:
        for name in names:
            contents.add(make_executable(tmp_path / "published" / name, name), f"server/{name}")
    url = archive.as_uri()
    monkeypatch.setattr(downloads, "release", lambda name: downloads.Release(url, f"server/{name}"))
    resolver = make_resolver(tmp_path, checksums={url: hashlib.sha512(archive.read_bytes()).hexdigest()})
    found = resolver.resolve(names)
    assert {name: asset.path.read_text() for name, asset in found.items()} == {name: name for name in names}
    assert [found[name].origin for name in names] == ["release", "cache", "cache"]
