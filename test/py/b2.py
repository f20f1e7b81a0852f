"""Service b of the demo, in Python and without Laneway's SDK.

It is called over gRPC and calls service c over Thrift (THeader). All that it
knows of Laneway is the environment that `laneway run` gives it, one question to
the control plane (who is to get this call?), and the names of the headers in
which a color travels.
"""

import concurrent.futures
import json
import os
import signal
import sys
import urllib.parse
import urllib.request

import grpc
from thrift.protocol.THeaderProtocol import THeaderProtocol
from thrift.transport.THeaderTransport import THeaderClientType, THeaderTransport
from thrift.transport.TSocket import TSocket

import demo_pb2
from laneway_demo import Chain

COLOR = "v-traffic-lane"
TIMEOUT = 5  # seconds, of every call that leaves this process

SERVICE = os.environ["LANEWAY_SERVICE"]
INSTANCE = os.environ["LANEWAY_INSTANCE"]
LANE = os.environ.get("LANEWAY_LANE", "")
CONTROL = os.environ["LANEWAY_CONTROL"].split(",")[0].rstrip("/")
TOKEN_FILE = os.environ.get("LANEWAY_TOKEN_FILE", "")

# The control plane is asked directly, whatever proxy the environment names.
control = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def color_of(metadata):
    """The color of a call: the header, else the baggage member of that name."""
    baggage = ""
    for key, value in metadata:
        if key == COLOR:
            return value
        if key == "baggage":
            for member in value.split(","):
                name, _, rest = member.partition("=")
                if name.strip() == COLOR:
                    baggage = rest.partition(";")[0].strip()
    return baggage


def explain(service, color, protocol):
    """Whom to call, and why, as the control plane says."""
    query = urllib.parse.urlencode(
        {"service": service, "color": color, "protocol": protocol}
    )
    request = urllib.request.Request(CONTROL + "/v1/explain?" + query)
    if TOKEN_FILE:
        with open(TOKEN_FILE, encoding="utf-8") as file:
            request.add_header("Authorization", "Bearer " + file.read().strip())
    with control.open(request, timeout=TIMEOUT) as answer:
        found = json.load(answer)
    for instance in found.get("instances") or []:
        for endpoint in instance["endpoints"]:
            if endpoint["protocol"] == protocol:
                host, _, port = endpoint["address"].rpartition(":")
                return host.strip("[]"), int(port), found["reason"]
    raise LookupError(found.get("error") or "no instance of " + service)


def call_c(color):
    """Calls c; the visits that it reports, the first with the reason."""
    host, port, reason = explain("c", color, "thrift")
    socket = TSocket(host, port)
    socket.setTimeout(TIMEOUT * 1000)
    transport = THeaderTransport(socket, [THeaderClientType.HEADERS])
    client = Chain.Client(THeaderProtocol(transport, [THeaderClientType.HEADERS]))
    transport.open()
    try:
        if color:
            transport.set_header(COLOR.encode(), color.encode())
        reply = client.call()
    finally:
        transport.close()
    visits = [
        demo_pb2.Visit(
            service=v.service_name,
            instance=v.instance,
            lane=v.lane,
            protocol=v.protocol,
            color=v.color,
            reason=v.reason,
        )
        for v in reply.visits
    ]
    if visits:
        visits[0].reason = reason
    return visits, reply.error


def call(_, context):
    """Chain.Call of demo.proto."""
    color = color_of(context.invocation_metadata())
    own = demo_pb2.Visit(
        service=SERVICE, instance=INSTANCE, lane=LANE, protocol="grpc", color=color
    )
    try:
        visits, error = call_c(color)
    except Exception as failure:  # whatever it is, the caller is to read it
        return demo_pb2.CallReply(
            visits=[own], error=f"{INSTANCE} could not call c: {failure}"
        )
    return demo_pb2.CallReply(visits=[own, *visits], error=error)


def main():
    # Before any thread starts, so that the signal is left for sigwait below.
    asked_to_end = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, asked_to_end)
    handler = grpc.unary_unary_rpc_method_handler(
        call,
        request_deserializer=demo_pb2.CallRequest.FromString,
        response_serializer=demo_pb2.CallReply.SerializeToString,
    )
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(max_workers=8))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("laneway.demo.v1.Chain", {"Call": handler})]
    )
    server.add_insecure_port("127.0.0.1:" + os.environ["PORT"])
    server.start()
    signal.sigwait(asked_to_end)
    server.stop(grace=1).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
