"""Signed folders by the reference: tests/golden/sign.

model-signing 1.1.1 (with cryptography 44 or later): a folder `model` and signatures of it beside, by keys on
three curves, by certificates (one that has expired), over shards, and with other digests.
Run in the top of the tree: python tests/golden/make_sign.py
"""
import datetime
import pathlib
import shutil

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from model_signing import hashing, signing

top = pathlib.Path("tests/golden/sign")
model = top / "model"


def pem(path, key):
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                       serialization.NoEncryption()))
    path.with_suffix(".pub").write_bytes(key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo))


def certificate(name, key, issuer, issuer_key, begin, years, ca, usage=True):
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    b = (x509.CertificateBuilder().subject_name(who).issuer_name(issuer or who).public_key(key.public_key())
         .serial_number(x509.random_serial_number()).not_valid_before(datetime.datetime(begin, 1, 1))
         .not_valid_after(datetime.datetime(begin + years, 1, 1))
         .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
         .add_extension(x509.KeyUsage(usage and not ca, False, not usage, False, False, ca, False, False, False),
                        critical=True))
    return b.sign(issuer_key, hashes.SHA256())


def put(path, *certificates):
    path.write_bytes(b"".join(c.public_bytes(serialization.Encoding.PEM) for c in certificates))


def config(name, shards=None, algorithm="sha256"):
    h = hashing.Config().set_ignored_paths(paths=["notes.txt", "cache"], ignore_git_paths=True)
    if shards:
        h = h.use_shard_serialization(shard_size=shards)
    elif algorithm != "sha256":
        h = h.use_file_serialization(hashing_algorithm=algorithm)
    return signing.Config().set_hashing_config(h), top / f"{name}.sig"


shutil.rmtree(top, ignore_errors=True)
model.mkdir(parents=True)
(model / "config.json").write_text('{"model_type":"toy"}\n')
(model / "weights.bin").write_bytes(bytes((7 * i + 3) % 256 for i in range(5000)))
(model / "a-b").write_text("order of parts\n")
(model / "a").mkdir()
(model / "a" / "b").write_text("against order of bytes\n")
(model / "a" / "ümlaut.txt").write_text("utf-8\n")
(model / "empty").write_text("")
(model / ".hidden").write_text("hidden names are signed\n")
(model / "notes.txt").write_text("ignored\n")

tmp = top / "tmp"
tmp.mkdir()
keys = {}
for name, curve in (("p256", ec.SECP256R1()), ("p384", ec.SECP384R1()), ("p521", ec.SECP521R1())):
    keys[name] = ec.generate_private_key(curve)
    pem(tmp / f"{name}.pem", keys[name])
    shutil.copy(tmp / f"{name}.pub", top / f"{name}.pub")
    c, sig = config(name)
    c.use_elliptic_key_signer(private_key=tmp / f"{name}.pem").sign(model, sig)
for name, shards, algorithm in (("shards", 2000, "sha256"), ("blake2", None, "blake2"), ("blake3", None, "blake3")):
    c, sig = config(name, shards, algorithm)
    c.use_elliptic_key_signer(private_key=tmp / "p256.pem").sign(model, sig)

root_key, middle_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
root = certificate("Root", root_key, None, root_key, 2015, 100, True)
middle = certificate("Middle", middle_key, root.subject, root_key, 2015, 100, True)
other = certificate("Other root", middle_key, None, middle_key, 2015, 100, True)
put(top / "root.pem", root)
put(top / "other-root.pem", other)
for name, begin, years, usage in (("certificate", 2020, 90, True), ("expired", 2020, 1, True), ("no-usage", 2020, 90, False)):
    leaf = certificate("Signer of " + name, keys["p256"], middle.subject, middle_key, begin, years, False, usage)
    put(tmp / "leaf.pem", leaf)
    put(tmp / "middle.pem", middle)
    c, sig = config(name)
    c.use_certificate_signer(private_key=tmp / "p256.pem", signing_certificate=tmp / "leaf.pem",
                             certificate_chain=[tmp / "middle.pem"]).sign(model, sig)
shutil.rmtree(tmp)
