# SPDX-License-Identifier: MIT
"""usage: record.py HOST:PORT CERTIFICATES FILE - writes the first message of a control plane.

CERTIFICATES is the folder of ca.crt, tls.crt and tls.key that Envoy Gateway makes for its rate
limit service: `envoy-gateway certgen --local --config-home FOLDER` has them in
FOLDER/certs/envoy-rate-limit. The files of recorded/ are from Envoy Gateway v1.9.1, which served
gateway.yaml:

    limits.bin     as it is
    changed.bin    with `requests: 5` in the first rule
    none.bin       without its two policies
    same-cidr.bin  with two more rules for 0.0.0.0/0, of type Exact and Distinct
"""
import pathlib
import sys
import threading

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
from control_plane import METHOD, TYPE  # noqa: E402
from go_control_plane import NODE  # noqa: E402
from rls_messages import block  # noqa: E402


def first(channel):
    ended = threading.Event()

    def requests():
        yield block(2, block(1, NODE)) + block(4, TYPE)
        ended.wait()

    stream = channel.stream_stream(METHOD, request_serializer=bytes, response_deserializer=bytes)
    try:
        return next(stream(requests(), timeout=60))
    finally:
        ended.set()


def main():
    address, folder, out = sys.argv[1:]
    files = [(pathlib.Path(folder) / name).read_bytes()
             for name in ("ca.crt", "tls.key", "tls.crt")]
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(*files), options=[
            ("grpc.ssl_target_name_override", "envoy-gateway")]) as channel:
        pathlib.Path(out).write_bytes(first(channel))


if __name__ == "__main__":
    main()
