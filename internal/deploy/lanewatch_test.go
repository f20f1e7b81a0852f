package deploy

import (
	"errors"
	"strings"
	"testing"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

func TestLaneWatchWarnsOnce(t *testing.T) {
	w := laneWatch{name: "green"}
	own, asked := uint64(1), 0
	var failing error
	look := func(want string, state lane.State, generation uint64) {
		t.Helper()
		there := state != ""
		got, err := w.look(laneclient.Lane{State: string(state), Generation: generation}, there, func() (uint64, error) { asked++; return own, failing })
		if !errors.Is(err, failing) || (want == "") != (got == "") || !strings.HasPrefix(got, want) {
			t.Errorf("%s, generation %d: %q and %v, want %q", state, generation, got, err, want)
		}
	}
	look("", lane.Ready, 1)
	look("", lane.Ready, 1)
	look("", lane.Draining, 1)
	look("lane has ended: requests go to the baseline; start it again", lane.Ended, 1)
	look("", "", 0)
	look("", lane.Ready, 2) // told already
	if asked != 2 {
		t.Errorf("asked %d times, want once for each generation", asked)
	}
	failing = errors.New("away")
	look("", lane.Ready, 3)
	failing, own = nil, 3
	look("", lane.Ready, 3) // registered anew
	look("lane has ended and is there anew: ", lane.Ready, 4)
	strict := laneWatch{name: "strict-load"}
	if got, _ := strict.look(laneclient.Lane{}, false, nil); !strings.HasPrefix(got, "lane has ended: requests go to nobody") {
		t.Errorf("strict lane: %q", got)
	}
}
