"""A Thrift peer in Python, without Laneway's SDK, over one of the transports.

    thrift_peer.py client header|framed|buffered PORT COLOR
    thrift_peer.py server header|framed|buffered

A client makes two calls over one connection and prints what each answer holds, as JSON.
A server prints its port and serves service Chain of the demo until its input ends.
"""

import json
import sys
import threading

from thrift.protocol.TBinaryProtocol import TBinaryProtocol, TBinaryProtocolFactory
from thrift.protocol.THeaderProtocol import THeaderProtocol, THeaderProtocolFactory
from thrift.server.TServer import TThreadedServer
from thrift.transport.THeaderTransport import THeaderClientType, THeaderTransport
from thrift.transport.TSocket import TServerSocket, TSocket
from thrift.transport.TTransport import (
    TBufferedTransport,
    TBufferedTransportFactory,
    TFramedTransport,
    TFramedTransportFactory,
    TTransportFactoryBase,
)

from laneway_demo import Chain
from laneway_demo.ttypes import CallReply, Visit

COLOR = b"v-traffic-lane"
BAGGAGE = b"baggage"
TIMEOUT = 10_000  # milliseconds


def client(kind, port, color):
    socket = TSocket("127.0.0.1", int(port))
    socket.setTimeout(TIMEOUT)
    if kind == "header":
        transport = THeaderTransport(socket, [THeaderClientType.HEADERS])
        protocol = THeaderProtocol(transport, [THeaderClientType.HEADERS])
    else:
        wrap = TFramedTransport if kind == "framed" else TBufferedTransport
        transport = wrap(socket)
        protocol = TBinaryProtocol(transport)
    transport.open()
    answers = []
    for _ in range(2):
        if kind == "header" and color:
            transport.set_header(COLOR, color.encode())
        visits = Chain.Client(protocol).call().visits
        answers.append({"instance": visits[0].instance, "color": visits[0].color})
    transport.close()
    print(json.dumps(answers))


class Plain(TTransportFactoryBase):
    """THeaderProtocol makes its own transport over the bare one."""

    def getTransport(self, trans):
        return trans


def server(kind):
    call = threading.local()

    class Handler:
        def call(self):
            headers = getattr(call.transport, "get_headers", dict)()
            return CallReply(
                visits=[
                    Visit(
                        instance="python-" + kind,
                        color=headers.get(COLOR, b"").decode(),
                        reason=headers.get(BAGGAGE, b"").decode(),
                    )
                ],
                error="",
            )

    class Processor(Chain.Processor):
        def process(self, iprot, oprot):
            call.transport = iprot.trans
            return super().process(iprot, oprot)

    transports, protocols = {
        "header": (Plain(), THeaderProtocolFactory([THeaderClientType.HEADERS])),
        "framed": (TFramedTransportFactory(), TBinaryProtocolFactory()),
        "buffered": (TBufferedTransportFactory(), TBinaryProtocolFactory()),
    }[kind]
    socket = TServerSocket(host="127.0.0.1", port=0)
    socket.listen()
    print(socket.handle.getsockname()[1], flush=True)
    socket.listen = lambda: None  # serve would listen once more
    serving = TThreadedServer(Processor(Handler()), socket, transports, protocols, daemon=True)
    threading.Thread(target=serving.serve, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    {"client": client, "server": server}[sys.argv[1]](*sys.argv[2:])
