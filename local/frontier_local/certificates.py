"""The cluster's own certificate authorities, certificates and keys.

Two authorities: the cluster's, which every client trusts, and one for etcd alone, so that a certificate that opens the
API server opens no database. Everything is made once per directory and kept.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALIDITY = dt.timedelta(days=3650)
_BACKDATED = dt.timedelta(hours=1)  # a clock that was set back a little does not refuse the certificates


@dataclass(frozen=True)
class KeyPair:
    """The files of a certificate and its private key, both PEM."""

    certificate: Path
    key: Path

    def exists(self) -> bool:
        """Return whether both files are there."""
        return self.certificate.is_file() and self.key.is_file()


@dataclass(frozen=True)
class Authority:
    """A certificate authority that signs into its directory."""

    directory: Path
    name: str
    now: dt.datetime

    @property
    def pair(self) -> KeyPair:
        """The authority's own certificate and key."""
        return KeyPair(self.directory / f"{self.name}.crt", self.directory / f"{self.name}.key")

    def ensure(self) -> KeyPair:
        """Make the authority unless it exists; returns its files."""
        if not self.pair.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"frontier-local {self.name}")])
            builder = _builder(subject, subject, key.public_key(), self.now)
            builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
            _write(self.pair, builder.sign(key, hashes.SHA256()), key)
        return self.pair

    def sign(
        self, name: str, *, common_name: str, organization: str | None = None, hosts: Sequence[str] = ()
    ) -> KeyPair:
        """Make a certificate for clients, and for servers if it has hosts; returns its files.

        Args:
            name: Name of the files.
            common_name: The user name that the API server sees.
            organization: The group that the API server sees.
            hosts: DNS names and IP addresses at which a server with this certificate is reached.
        """
        pair = KeyPair(self.directory / f"{name}.crt", self.directory / f"{name}.key")
        authority = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        signing_key = serialization.load_pem_private_key(self.pair.key.read_bytes(), password=None)
        if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
            raise TypeError(f"{self.pair.key}: expected an elliptic curve key")
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        if organization is not None:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        builder = _builder(x509.Name(attributes), authority.subject, key.public_key(), self.now)
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        builder = builder.add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False
        )
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        _write(pair, builder.sign(signing_key, hashes.SHA256()), key)
        return pair


def ensure_service_account_keys(directory: Path) -> KeyPair:
    """Make the keys that sign and check service-account tokens unless they exist; `certificate` is the public key."""
    pair = KeyPair(directory / "service-account.pub", directory / "service-account.key")
    if not pair.exists():
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_private(pair.key, key)
        pair.certificate.write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
    return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: dt.datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _BACKDATED).not_valid_after(now + _VALIDITY)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(pair: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    _write_private(pair.key, key)
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_private(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    """Write a private key that only its owner can read, from the first byte on."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
