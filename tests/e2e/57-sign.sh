# Signatures of models: published with ckpt-push, checked with ckpt-inspect and by openssl, here and far.  A6
. "$(dirname "$0")/lib.sh"
. tests/serve/hub.sh
S=$G/sign
cp -r "$G/models/llama-a" "$T/m"; mkdir "$T/m/sub"; echo x >"$T/m/sub/ümlaut a-b.txt"; M=$T/m
for k in key other; do
    openssl ecparam -name prime256v1 -genkey -noout -out "$T/$k.pem"; chmod 600 "$T/$k.pem"
    openssl pkey -in "$T/$k.pem" -pubout -out "$T/$k.pub"
done
openssl pkey -in "$T/key.pem" -aes256 -passout pass:open-sesame-9 -out "$T/locked.pem"; chmod 600 "$T/locked.pem"
verify() { ckpt-inspect --verify-signature --public-key "$T/key.pub" "$@"; }

expect_prints 0 "a folder is published with its signature" "$T/out" ckpt-push --sign "$T/key.pem" "$T/out" "$M"
expect_prints 0 "which holds" "verified: every file is as it was signed" verify "$T/out"
t "has the key's name" bash -c "ckpt-inspect --json --verify-signature --public-key $T/key.pub $T/out | grep -q '\"key\": \"'\$(sha256sum <$T/key.pub | cut -c1-64)'\"'"
t "the source has none" [ ! -e "$M/model.sig" ]
pae() { # what openssl checks: the encoding of the payload
    python3 - "$1" "$T" <<'PY' 2>/dev/null || return 1
import base64, json, sys
b = json.load(open(sys.argv[1])); p = base64.b64decode(b["dsseEnvelope"]["payload"])
open(sys.argv[2] + "/pae", "wb").write(b"DSSEv1 28 application/vnd.in-toto+json %d " % len(p) + p)
open(sys.argv[2] + "/sig", "wb").write(base64.b64decode(b["dsseEnvelope"]["signatures"][0]["sig"]))
PY
}
if command -v python3 >/dev/null; then
    t "openssl agrees" bash -c "$(declare -f pae); T=$T; pae $T/out/model.sig && openssl dgst -sha256 -verify $T/key.pub -signature $T/sig $T/pae"
fi
expect 0 "the same again" ckpt-push -q --sign "$T/key.pem" "$T/out2" "$M"
t "has the same signature" cmp "$T/out/model.sig" "$T/out2/model.sig"
expect_says 77 "another key" "it is signed with another key" ckpt-inspect -q --verify-signature --public-key "$T/other.pub" "$T/out"
expect_says 66 "no signature" "there is no model.sig in it" verify -q "$M"
expect 0 "one that lies elsewhere" verify -q --signature "$T/out/model.sig" "$M"
expect_says 66 "a signature that is not there" "none.sig" verify -q --signature "$T/none.sig" "$M"
echo >>"$T/out2/config.json"; rm "$T/out2/loss.txt"; echo new >"$T/out2/new.py"; ln -s /etc/passwd "$T/out2/link"
expect_says 65 "files that were changed" "4 files are not as signed" verify -q "$T/out2"
verify "$T/out2" >"$T/.o" 2>/dev/null
t "are named" bash -c "grep -q '^config.json *changed' $T/.o && grep -q '^loss.txt *missing' $T/.o && grep -q '^new.py *unsigned' $T/.o && grep -q '^link *no regular file' $T/.o"
rm "$T/out2/link"; cp "$M/config.json" "$M/loss.txt" "$T/out2"
expect_says 65 "an unsigned file" "1 file is not as signed" verify -q "$T/out2"
expect 0 "may be accepted" verify -q --ignore-unsigned-files "$T/out2"
tail -c 1000 "$T/out/model.sig" >"$T/out2/model.sig"
expect 65 "half a signature" verify -q --ignore-unsigned-files "$T/out2"
expect 0 "what was left out is not signed" ckpt-push -q --exclude '*.txt' --sign "$T/key.pem" "$T/out3" "$M"
expect 0 "and not missed" verify -q "$T/out3"
expect 0 "an older signature in the source is replaced" ckpt-push -q --sign "$T/key.pem" "$T/out4" "$T/out"
expect_prints 0 "by one under the new name" "signed as: out" verify "$T/out4"

# -- keys ---------------------------------------------------------------------------------------
expect_says 77 "an encrypted key" "no passphrase is given" ckpt-push -q --sign "$T/locked.pem" "$T/out5" "$M"
expect_says 77 "a wrong passphrase" "does not open it" env CKPT_SIGN_PASSPHRASE=open-sesame-8 ckpt-push -q --sign "$T/locked.pem" "$T/out5" "$M"
t "nothing is published" [ ! -e "$T/out5" ]
expect 0 "the passphrase from the environment" env CKPT_SIGN_PASSPHRASE=open-sesame-9 ckpt-push -q --sign "$T/locked.pem" "$T/out5" "$M"
echo open-sesame-9 >"$T/phrase"
expect 0 "or a file" ckpt-push -q --sign "$T/locked.pem" --sign-passphrase-file "$T/phrase" "$T/out6" "$M"
expect 0 "both hold" verify -q "$T/out5" "$T/out6"
expect_says 64 "a certificate alone" "--sign-cert has an effect with --sign only" ckpt-push -q --sign-cert "$T/key.pub" "$T/out7" "$M"
expect_says 65 "a key that is none" "no private key in PEM" ckpt-push -q --sign "$T/key.pub" "$T/out7" "$M"
cp "$T/key.pem" "$T/open.pem"; chmod 644 "$T/open.pem"
expect_says 0 "one that others can read" "others can read this private key" ckpt-push --sign "$T/open.pem" "$T/out7" "$M"
expect_says 64 "nothing to check with" "--verify-signature has no effect without" ckpt-inspect -q --verify-signature "$T/out"

# -- what the reference signed ------------------------------------------------------------------
ref() { ckpt-inspect -q --verify-signature --signature "$S/$1.sig" "${@:2}" "$S/model"; }
expect 0 "the reference's, by a key" ref p384 --public-key "$S/p384.pub"
expect 0 "by a certificate" ref certificate --certificate-root "$S/root.pem"
expect_says 1 "which is valid no longer" "is valid no longer (until 2021-01-01T00:00:00Z)" ref expired --certificate-root "$S/root.pem"
expect_says 77 "below another root" "is below no given root" ref certificate --certificate-root "$S/other-root.pem"

# -- destinations and addresses -----------------------------------------------------------------
export HF_TOKEN=hf_canary CKPT_HTTP_RETRIES=2
serve --multipart=20000 --chunk=20000
expect 0 "to the Hub" ckpt-push -q --create --sign "$T/key.pem" hf://acme/signed "$M"
expect 0 "checked there" verify -q hf://acme/signed
commits() { curl -s -H "Authorization: Bearer $HF_TOKEN" "$HF_ENDPOINT/api/models/acme/signed/commits/main" | grep -o '"title"' | wc -l; }
n=$(commits)
expect 0 "the same again to the Hub" ckpt-push -q --sign "$T/key.pem" hf://acme/signed "$M"
t "is no commit" [ "$(commits)" = "$n" ]
echo '{"a": 1}' >"$T/x.json"
expect 0 "a later change of one file" ckpt-push -q --exclude nothing hf://acme/signed "$T/x.json"
expect_says 65 "is seen" "1 file is not as signed" verify -q hf://acme/signed
export HOME=$T GIT_CONFIG_NOSYSTEM=1; git config --global safe.directory '*'; git lfs install --skip-repo >/dev/null 2>&1
expect 0 "to a git repository" ckpt-push -q --create --sign "$T/key.pem" "$T/hub.git" "$M"
t "cloned" git clone -q "$T/hub.git" "$T/clone"
expect 0 "checked in the clone" verify -q "$T/clone"
expect 0 "in a folder of it" ckpt-push -q --path-in-repo last --sign "$T/key.pem" "$T/hub.git" "$M"
t "pulled" git -C "$T/clone" pull -q
expect 0 "checked by itself" verify -q "$T/clone/last"
