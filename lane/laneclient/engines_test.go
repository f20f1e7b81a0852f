package laneclient_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// enginesOf serves some engines as a control plane does.
func enginesOf(t *testing.T, engines ...laneclient.Engine) *laneclient.API {
	t.Helper()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/engines" {
			list := laneclient.List{Items: []json.RawMessage{}}
			for _, e := range engines {
				raw, err := json.Marshal(e)
				if err != nil {
					t.Error(err)
				}
				list.Items = append(list.Items, raw)
			}
			laneclient.WriteAnswer(w, http.StatusOK, list)
			return
		}
		for _, e := range engines {
			if r.URL.Path == "/v1/engines/"+e.Name {
				laneclient.WriteAnswer(w, http.StatusOK, e)
				return
			}
		}
		laneclient.WriteProblem(w, laneclient.NewProblem(http.StatusNotFound, "there is no such engine"))
	})
	return laneclient.NewAPI(laneclient.Config{Transport: laneclient.InMemory(h)})
}

func TestFindEngine(t *testing.T) {
	engine := func(name string, isDefault bool) laneclient.Engine {
		return laneclient.Engine{Meta: laneclient.Meta{Name: name}, Scheme: "nats", Address: "nats://" + name, Default: isDefault}
	}
	for _, tt := range []struct {
		name    string
		engines []laneclient.Engine
		ask     string
		url     string
		fault   string
	}{
		{"the only one", []laneclient.Engine{engine("a", false)}, "", "nats://a", ""},
		{"the default one", []laneclient.Engine{engine("a", false), engine("b", true)}, "", "nats://b", ""},
		{"two default ones", []laneclient.Engine{engine("a", false), engine("b", true), engine("c", true)}, "", "nats://b", ""},
		{"by name", []laneclient.Engine{engine("a", true), engine("b", false)}, "b", "nats://b", ""},
		{"not there", []laneclient.Engine{engine("a", true)}, "b", "", "b: is the server that has it running"},
		{"none", nil, "", "", "--engine NAME=URL"},
		{"which of them", []laneclient.Engine{engine("a", false), engine("b", false)}, "", "", "a, b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			url, err := enginesOf(t, tt.engines...).Engine(t.Context(), tt.ask)
			if url != tt.url {
				t.Errorf("got %q, want %q (%v)", url, tt.url, err)
			}
			if tt.fault == "" && err != nil {
				t.Error(err)
			}
			if tt.fault != "" && (!errors.Is(err, laneclient.ErrNoEngine) || !strings.Contains(err.Error(), tt.fault)) {
				t.Errorf("got %v, want ErrNoEngine with %q", err, tt.fault)
			}
		})
	}
}
