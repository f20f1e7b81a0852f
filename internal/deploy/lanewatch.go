package deploy

import (
	"context"
	"net/http"
	"time"

	"github.com/laneway-dev/laneway/internal/backoff"
	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// askAgain is how long the control plane is left alone when it did not say which
// lane the instance belongs to.
const askAgain = 2 * time.Second

// Warnings of a lane that is over.
const (
	laneEnded       = "lane has ended: requests go to the baseline; start it again to be in a new lane of that name"
	strictLaneEnded = "lane has ended: requests go to nobody and fail; start it again to be in a new lane of that name"
	laneAnew        = "lane has ended and is there anew: requests of the new one do not come here; start it again to be in that"
)

// watchLane warns, once, when the lane that the instance was registered in is over:
// the process runs on, and nobody asks it any more. It returns when ctx ends.
func (s *supervisor) watchLane(ctx context.Context) {
	if s.cfg.Lane == "" {
		return
	}
	changed := make(chan struct{}, 1)
	cancel := s.reg.client.Subscribe(func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer cancel()
	w := laneWatch{name: lane.Name(s.cfg.Lane)}
	for {
		var l laneclient.Lane
		known := s.reg.client.View().Lanes.Get(s.cfg.Lane)
		if known != nil {
			l = *known
		}
		text, err := w.look(l, known != nil, func() (uint64, error) { return s.reg.generation(ctx) })
		if text != "" {
			s.log.WarnContext(ctx, "the lane of this process is over", telemetry.KeyLane, s.cfg.Lane, telemetry.KeyReason, text)
		}
		if err != nil {
			if !backoff.Wait(ctx, askAgain) {
				return
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// generation is that of the lane when the instance was registered.
func (r *registry) generation(ctx context.Context) (uint64, error) {
	var i laneclient.Instance
	err := r.api.Do(ctx, http.MethodGet, "/v1/instances/"+r.cfg.Service+"/"+r.cfg.Instance, nil, &i)
	return i.Generation, err
}

// laneWatch remembers what of a lane has been seen.
type laneWatch struct {
	name   lane.Name
	seen   uint64 // generation that the instance was compared with
	warned bool
}

// look gives a warning, or "", for the lane as it is now. registered asks for the
// generation that the instance belongs to, and only where the lane's is new.
func (w *laneWatch) look(l laneclient.Lane, there bool, registered func() (uint64, error)) (warning string, err error) {
	over := !there || l.State == string(lane.Ended)
	if !over && l.Generation != w.seen {
		own, err := registered()
		if err != nil {
			return "", err
		}
		w.seen = l.Generation
		if own == l.Generation {
			w.warned = false // it has been registered anew meanwhile
			return "", nil
		}
		warning = laneAnew
	}
	if over {
		warning = laneEnded
		if w.name.Strict() {
			warning = strictLaneEnded
		}
	}
	if warning == "" || w.warned {
		return "", nil
	}
	w.warned = true
	return warning, nil
}
