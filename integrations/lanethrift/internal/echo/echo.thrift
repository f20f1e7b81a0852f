// The service that the tests and the example of lanethrift call.

namespace go echo

struct Seen {
  1: string instance
  2: string color
  3: string text
}

exception Refused {
  1: string why
}

struct Tree {
  1: optional Tree child
  2: list<string> leaves
}

service Echo {
  Seen say(1: string text) throws (1: Refused refused)
  oneway void tell(1: string text)
  Tree climb(1: Tree tree)
}
