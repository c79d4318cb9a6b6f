"""The kubelet's gRPC services by their descriptors: a client's calls, and the handlers of who serves one."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import grpc
from google.protobuf.message_factory import GetMessageClass


def client(channel: Any, messages: ModuleType, service: str) -> Any:
    """Return an object with a call for each method of ``service``."""
    return SimpleNamespace(**{
        method.name: (channel.unary_stream if method.server_streaming else channel.unary_unary)(
            f"/{method.containing_service.full_name}/{method.name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        ) for method in messages.DESCRIPTOR.services_by_name[service].methods
    })  # fmt: skip


def serve(server: Any, messages: ModuleType, service: str, servicer: object) -> None:
    """Have ``server`` answer by the methods that ``servicer`` has; calls of the others are unimplemented."""
    found = messages.DESCRIPTOR.services_by_name[service]
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(found.full_name, {
        method.name: (grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler)(
            getattr(servicer, method.name),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        ) for method in found.methods if hasattr(servicer, method.name)
    }),))  # fmt: skip
