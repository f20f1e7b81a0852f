package lanehttp

import (
	"net/http"
	"testing"

	"github.com/laneway-dev/laneway/lane/lanetest"
)

// TestOwnTransportsAndProxies: instances are reached directly, third parties as the
// environment says.
func TestOwnTransportsAndProxies(t *testing.T) {
	tr, ok := Transport(nil, &lanetest.Directory{}).(*transport)
	if !ok {
		t.Fatal("not a transport")
	}
	if services, ok := tr.services.(*http.Transport); !ok || services.Proxy != nil {
		t.Error("services are reached over a proxy")
	}
	if others, ok := tr.others.(*http.Transport); !ok || others.Proxy == nil {
		t.Error("third parties are not reached over the proxy of the environment")
	}
}
