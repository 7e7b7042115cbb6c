"""Settings of runs (training_args.bin) that are not to be published unasked: tests/golden/settings/.

Only Python's own library is used: each is a zip as torch writes it, around a pickle by hand.
"""
import os
import struct
import zipfile

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "settings")


def text(s):
    return b"X" + struct.pack("<I", len(s)) + s.encode()


def pickle(module, name, fields):
    items = b"".join(text(k) + text(v) for k, v in fields.items())
    return (b"\x80\x02c" + module + b"\n" + name + b"\nq\x00)\x81q\x01}q\x02(" + items + b"ub.")


def write(name, data):
    with zipfile.ZipFile(os.path.join(HERE, name + ".bin"), "w") as z:
        for member, body in (("archive/data.pkl", data), ("archive/version", b"3\n")):
            z.writestr(zipfile.ZipInfo(member, (1980, 1, 1, 0, 0, 0)), body)


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    ours = (b"transformers.training_args", b"TrainingArguments")
    write("sound", pickle(*ours, {"output_dir": "out"}))
    write("hub_token", pickle(*ours, {"hub_token": "abc"}))
    write("token", pickle(*ours, {"run_name": "x hf_" + "aB3" * 11 + "a"}))
    write("system", pickle(b"posix", b"system", {"output_dir": "out"}))
    write("unknown", pickle(b"nothing", b"known", {"output_dir": "out"}))
