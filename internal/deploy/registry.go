package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/laneway-dev/laneway/internal/telemetry"
	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// leaveTimeout bounds taking an instance out of the registry. Beyond it the lease
// ends what is left.
const leaveTimeout = 3 * time.Second

// registry is the instance's place in the control plane.
type registry struct {
	cfg    *Process
	api    *laneclient.API
	client *laneclient.Client // nil until joined
	admin  string             // where run can be asked; empty: nowhere
}

func newRegistry(cfg *Process) *registry {
	return &registry{cfg: cfg, admin: "127.0.0.1:0", api: laneclient.NewAPI(laneclient.Config{
		Control: cfg.Control, Transport: cfg.Transport, TokenFile: cfg.TokenFile,
	})}
}

// prepare makes sure that the control plane answers and that the lane is there,
// and creates it with the default TTL where it is not, or is over.
func (r *registry) prepare(ctx context.Context) error {
	if r.cfg.Lane == "" {
		err := r.api.Do(ctx, http.MethodGet, "/v1/services/"+r.cfg.Service, nil, nil)
		if laneclient.IsNotFound(err) {
			return nil // it comes to be with its first instance
		}
		return err
	}
	var l laneclient.Lane
	err := r.api.Do(ctx, http.MethodGet, "/v1/lanes/"+r.cfg.Lane, nil, &l)
	switch state := lane.State(l.State); {
	case err != nil && !laneclient.IsNotFound(err):
		return err
	case err == nil && state == lane.Draining:
		return &LocalError{fmt.Errorf("lane %s is on its way out: try again when it has ended, which takes half a minute, or use another", r.cfg.Lane)}
	case err == nil && state != lane.Ended:
		return nil
	case r.cfg.NoCreate:
		return &LocalError{fmt.Errorf("lane %s does not exist: create it with `laneway lane create %s`", r.cfg.Lane, r.cfg.Lane)}
	}
	created := laneclient.Lane{Meta: laneclient.Meta{Name: r.cfg.Lane}}
	err = r.api.Do(ctx, http.MethodPost, "/v1/lanes", created, &l)
	var p *laneclient.Problem
	if errors.As(err, &p) && p.Type == laneclient.ProblemExists {
		return nil // another one was faster
	}
	if err == nil {
		// Told, since a mistyped name makes one too.
		r.cfg.Log.InfoContext(ctx, "created the lane", telemetry.KeyLane, r.cfg.Lane)
	}
	return err
}

// join registers the instance.
func (r *registry) join(ctx context.Context, endpoints []laneclient.Endpoint) error {
	client, err := laneclient.Dial(ctx, laneclient.Config{
		Control: r.cfg.Control, Transport: r.cfg.Transport, TokenFile: r.cfg.TokenFile,
		Service: r.cfg.Service, Lane: r.cfg.Lane, Room: r.cfg.Room, Instance: r.cfg.Instance,
		Endpoints: endpoints, NoListen: r.cfg.NoListen, Role: laneclient.RoleRun, TTL: r.cfg.TTL,
		Labels: r.cfg.Labels, Weight: r.cfg.Weight, Log: r.cfg.Log, AdminListen: r.admin,
	})
	if err != nil {
		return err
	}
	r.client = client
	return nil
}

// drain asks for no new traffic.
func (r *registry) drain() {
	if r.client != nil {
		r.client.Drain()
	}
}

// leave takes the instance out of the registry, and ends all sessions that belong
// to it: those that the process itself opened too.
func (r *registry) leave() error {
	defer func() { _ = r.api.Close() }()
	if r.client != nil {
		return r.client.Close()
	}
	// It was never registered, but the process may have opened sessions.
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	name := r.cfg.Service + "/" + r.cfg.Instance
	err := r.api.Do(ctx, http.MethodGet, "/v1/instances/"+name, nil, nil)
	if !laneclient.IsNotFound(err) {
		return err // without an error it is somebody else's
	}
	sessions, _, err := laneclient.ListAll[laneclient.Session](ctx, r.api, laneclient.ListOptions{Service: r.cfg.Service})
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range sessions {
		if s.Instance != name {
			continue
		}
		if err := r.api.Do(ctx, http.MethodDelete, "/v1/sessions/"+s.Name, nil, nil); !laneclient.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// refused reports whether the control plane has answered that the instance can
// never be registered as it is.
func refused(err error) bool {
	var p *laneclient.Problem
	if !errors.As(err, &p) {
		return false
	}
	switch p.Status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusUnprocessableEntity:
		// A lane that has gone meanwhile may come again.
		return p.Type != laneclient.ProblemLane
	}
	return false
}
