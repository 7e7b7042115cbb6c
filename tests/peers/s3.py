"""s3.py same FOLDER PREFIX | parts | write FOLDER PREFIX - boto3 looks at the bucket models."""
import hashlib
import os
import sys

import boto3

s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
BUCKET = "models"


def local(folder):
    """Path below folder -> bytes; hidden files are not published."""
    found = {}
    for at, _, names in os.walk(folder):
        for name in names:
            if not name.startswith("."):
                path = os.path.join(at, name)
                found[os.path.relpath(path, folder)] = open(path, "rb").read()
    return found


def same(folder, prefix):
    want = local(folder)
    have = {}
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix + "/"):
        for item in page.get("Contents", []):
            got = s3.get_object(Bucket=BUCKET, Key=item["Key"])
            path = item["Key"][len(prefix) + 1:]
            have[path] = got["Body"].read()
            digest = hashlib.sha256(have[path]).hexdigest()
            assert got["Metadata"].get("sha256") == digest, f"{path}: metadata is not its digest"
    assert sorted(have) == sorted(want), sorted(set(have) ^ set(want))
    for path in want:
        assert have[path] == want[path], f"{path} differs"


def parts():
    left = s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
    assert not left, f"unfinished uploads: {left}"


def write(folder, prefix):
    for path, data in local(folder).items():
        s3.put_object(Bucket=BUCKET, Key=f"{prefix}/{path}", Body=data)


{"same": same, "parts": parts, "write": write}[sys.argv[1]](*sys.argv[2:])
