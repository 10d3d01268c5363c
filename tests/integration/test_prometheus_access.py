"""TLS, a custom authority, client certificates and passwords, against a real Prometheus that asks for them."""

import datetime
import ipaddress

import pytest
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from frontier_tuner.plants.processes import wait_for
from frontier_tuner.prometheus import PrometheusSource, Value
from frontier_tuner.prometheus.answers import MeasurementError, RefusedError, UnreachableError
from support.prometheus_server import EACH_SERVER, SERVERS, running

pytestmark = pytest.mark.integration
PASSWORD = "let-me-in"
HASH = "$2b$04$NqGZkDQD1/ltrHWRUvRk9uM12e7nrRZfrxZYdnnU/pBJ6ZOo9ouEq"
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """A certificate authority whose files lie in one directory."""

    def __init__(self, directory, name):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self._name, self._key).add_extension(constraints, critical=True)
        self.file = self._store("ca", certificate.sign(self._key, hashes.SHA256()), self._key)[0]

    def issue(self, name, usage):
        """Return the files of a certificate and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        builder = self._builder(subject, key)
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        return self._store(name, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject, key):
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(NOW)
            .not_valid_after(NOW + datetime.timedelta(days=3650))
        )

    def _store(self, name, certificate, key):
        paths = self.directory / f"{name}.crt", self.directory / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"), "tests")


@pytest.fixture(scope="module", params=EACH_SERVER)
def guarded(request, authority, tmp_path_factory):
    """The address of a Prometheus that wants a client certificate and a password, and how to come in."""
    directory = tmp_path_factory.mktemp(f"guarded-{request.param}")
    certificate, key = authority.issue("server", ExtendedKeyUsageOID.SERVER_AUTH)
    web = directory / "web.yml"
    web.write_text(
        f"tls_server_config: {{cert_file: {certificate}, key_file: {key}, "
        f"client_auth_type: RequireAndVerifyClientCert, client_ca_file: {authority.file}}}\n"
        f'basic_auth_users: {{tuner: "{HASH}"}}\n'
    )
    client = authority.issue("client", ExtendedKeyUsageOID.CLIENT_AUTH)
    access = {"ca_file": authority.file, "client_certificate": client, "basic_auth": ("tuner", PASSWORD)}
    with running(SERVERS[request.param], directory, None, f"--web.config.file={web}") as url:
        wait_for(lambda: _answers(url, access), 60, "the guarded Prometheus")
        yield url, access


def _answers(url, access):
    try:
        return ask(url, access) == Value(1.0)
    except MeasurementError:
        return False


def ask(url, access, **over):
    given = {name: value for name, value in {**access, **over}.items() if value is not None}
    with PrometheusSource(url, max_attempts=1, timeout_seconds=5.0, **given) as source:
        return source.query("vector(1)", datetime.datetime.now(datetime.UTC))


def test_with_all_credentials_it_answers(guarded, tmp_path):
    url, access = guarded
    assert ask(url, access) == Value(1.0)
    password = tmp_path / "password"
    password.write_text(PASSWORD + "\n")
    assert ask(url, access, basic_auth=("tuner", password)) == Value(1.0)


def test_another_authority_is_not_trusted_unless_that_is_said(guarded, tmp_path):
    url, access = guarded
    other = Authority(tmp_path / "other", "other")
    with pytest.raises(UnreachableError, match=r"cannot be trusted.*certificate verify failed"):
        ask(url, access, ca_file=other.file)
    with pytest.raises(UnreachableError, match="cannot be trusted"):
        ask(url, access, ca_file=None)
    with pytest.warns(urllib3.exceptions.InsecureRequestWarning):
        assert ask(url, access, ca_file=None, verify=False) == Value(1.0)


def test_the_environment_replaces_no_authority_that_was_named(guarded, tmp_path, monkeypatch):
    url, access = guarded
    other = Authority(tmp_path / "other", "other")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(other.file))
    assert ask(url, access) == Value(1.0)


def test_without_a_client_certificate_there_is_no_connection(guarded):
    url, access = guarded
    with pytest.raises(UnreachableError):
        ask(url, access, client_certificate=None)


def test_a_client_certificate_of_another_authority_is_refused(guarded, tmp_path):
    url, access = guarded
    other = Authority(tmp_path / "other", "other").issue("client", ExtendedKeyUsageOID.CLIENT_AUTH)
    with pytest.raises(UnreachableError):
        ask(url, access, client_certificate=other)


def test_a_missing_certificate_file_is_named(guarded, tmp_path):
    url, access = guarded
    missing = (tmp_path / "none.crt", tmp_path / "none.key")
    with pytest.raises(MeasurementError, match=r"credential for Prometheus cannot be read: .*none\.crt"):
        ask(url, access, client_certificate=missing)


@pytest.mark.parametrize("given", [None, ("tuner", "wrong")], ids=["no password", "a wrong one"])
def test_without_the_right_password_it_refuses(guarded, given):
    url, access = guarded
    with pytest.raises(RefusedError, match="HTTP 401 Unauthorized"):
        ask(url, access, basic_auth=given)
