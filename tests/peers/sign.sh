#!/usr/bin/env bash
# sign.sh PYTHON BUILD - model_signing, the reference of OpenSSF Model Signing, verifies what ckpt-push
# signs, by keys and by certificates, and refuses what was changed since; what it signs is verified here.
set -eu
PEERS=$1 B=$2
cd "$(dirname "$0")/../.."
T=$(mktemp -d); trap 'rm -rf "$T"' EXIT
export CKPT_CACHE=$T/cache
oms() { "$PEERS" -P -m model_signing "$@" >"$T/o" 2>&1; }
no() { ! "$@" || { echo "sign: $* succeeds"; exit 1; }; }
check() { "$B/ckpt-inspect" -q --verify-signature "$@" >"$T/o" 2>&1 || { cat "$T/o"; exit 1; }; }
cp -r tests/golden/models/llama-a "$T/m"; mkdir "$T/m/a" "$T/m/a-b"; echo 1 >"$T/m/a/b ü"; echo 2 >"$T/m/a-b/c"
# Certificates: a root, one between, and that of the signer.
printf '[req]\ndistinguished_name=dn\n[dn]\n[ca]\nbasicConstraints=critical,CA:true\nkeyUsage=critical,keyCertSign\n[leaf]\nbasicConstraints=CA:false\nkeyUsage=critical,digitalSignature\n' >"$T/cnf"
key() { openssl ecparam -name "$2" -genkey -noout -out "$T/$1.pem"; chmod 600 "$T/$1.pem"; openssl pkey -in "$T/$1.pem" -pubout -out "$T/$1.pub"; }
issue() { openssl req -new -key "$T/$1.pem" -subj "/O=Acme/CN=$1" -config "$T/cnf" -out "$T/csr"; openssl x509 -req -in "$T/csr" -CA "$T/$2.crt" -CAkey "$T/$2.pem" -CAcreateserial -days 9 -extfile "$T/cnf" -extensions "$3" -out "$T/$1.crt" 2>/dev/null; }
key root secp384r1; key middle prime256v1
openssl req -x509 -new -key "$T/root.pem" -subj /CN=root -days 9 -config "$T/cnf" -extensions ca -out "$T/root.crt"
issue middle root ca
n=0
for curve in prime256v1 secp384r1 secp521r1; do
    key $curve $curve; issue $curve middle leaf; cat "$T/$curve.crt" "$T/middle.crt" >"$T/chain.crt"
    "$B/ckpt-push" -q --sign "$T/$curve.pem" "$T/ours-$curve" "$T/m" >/dev/null
    oms verify key "$T/ours-$curve" --signature "$T/ours-$curve/model.sig" --public_key "$T/$curve.pub" || { cat "$T/o"; exit 1; }
    "$B/ckpt-push" -q --sign "$T/$curve.pem" --sign-cert "$T/chain.crt" "$T/certified-$curve" "$T/m" >/dev/null
    oms verify certificate "$T/certified-$curve" --signature "$T/certified-$curve/model.sig" --certificate_chain "$T/root.crt" || { cat "$T/o"; exit 1; }
    cp -r "$T/m" "$T/theirs"
    oms sign key "$T/theirs" --private_key "$T/$curve.pem" --signature "$T/theirs/model.sig"
    check --public-key "$T/$curve.pub" "$T/theirs"
    oms sign certificate "$T/theirs" --private_key "$T/$curve.pem" --signing_certificate "$T/$curve.crt" --certificate_chain "$T/middle.crt" --signature "$T/theirs/model.sig"
    check --certificate-root "$T/root.crt" "$T/theirs"
    rm -r "$T/theirs"; n=$((n + 4))
done
echo >>"$T/ours-prime256v1/config.json"; no oms verify key "$T/ours-prime256v1" --signature "$T/ours-prime256v1/model.sig" --public_key "$T/prime256v1.pub"
# What git and the Hub's client add to a download is covered by neither.
mkdir -p "$T/ours-secp384r1/.cache/huggingface" "$T/ours-secp384r1/.git"; echo x >"$T/ours-secp384r1/.cache/huggingface/x"; echo x >"$T/ours-secp384r1/.git/x"; echo x >"$T/ours-secp384r1/.gitattributes"
oms verify key "$T/ours-secp384r1" --signature "$T/ours-secp384r1/model.sig" --public_key "$T/secp384r1.pub" || { cat "$T/o"; exit 1; }
check --public-key "$T/secp384r1.pub" "$T/ours-secp384r1"
echo "model_signing and ckpt agree on $n signatures"
