// The calls between the demo's services, over Thrift. See demo.proto.

namespace go demothrift
namespace py laneway_demo

struct Visit {
  1: string service_name
  2: string instance
  3: string lane
  4: string protocol
  5: string color
  6: string reason
}

struct CallReply {
  1: list<Visit> visits
  2: string error
}

service Chain {
  CallReply call()
}
