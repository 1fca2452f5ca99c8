# SPDX-License-Identifier: MIT
"""Reads an ExportTraceServiceRequest on standard input with OpenTelemetry's own messages, and
prints it as JSON: proto3's, with the fields that are not known counted.
"""
import sys

from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

request = ExportTraceServiceRequest.FromString(sys.stdin.buffer.read())
assert request.SerializeToString(), "an empty request"
copy = ExportTraceServiceRequest()
copy.CopyFrom(request)
copy.DiscardUnknownFields()
assert copy == request, "there are fields that OpenTelemetry does not know"
print(MessageToJson(request))
