package deploy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

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
}

func newRegistry(cfg *Process) *registry {
	return &registry{cfg: cfg, api: laneclient.NewAPI(laneclient.Config{
		Control: cfg.Control, Transport: cfg.Transport, TokenFile: cfg.TokenFile,
	})}
}

// ensureLane makes sure that the lane is there, and creates it with the default
// TTL where it is not, or is over.
func (r *registry) ensureLane(ctx context.Context) error {
	if r.cfg.Lane == "" {
		return nil
	}
	var l laneclient.Lane
	err := r.api.Do(ctx, http.MethodGet, "/v1/lanes/"+r.cfg.Lane, nil, &l)
	var p *laneclient.Problem
	switch {
	case err == nil && l.State != "ended":
		return nil
	case err != nil && (!errors.As(err, &p) || p.Status != http.StatusNotFound):
		return err
	case r.cfg.NoCreate:
		return &LocalError{fmt.Errorf("lane %s does not exist: create it with `laneway lane create %s`", r.cfg.Lane, r.cfg.Lane)}
	}
	created := laneclient.Lane{Meta: laneclient.Meta{Name: r.cfg.Lane}}
	err = r.api.Do(ctx, http.MethodPost, "/v1/lanes", created, &l)
	if errors.As(err, &p) && p.Status == http.StatusConflict {
		return nil // another one was faster
	}
	return err
}

// join registers the instance.
func (r *registry) join(ctx context.Context, endpoints []laneclient.Endpoint) error {
	client, err := laneclient.Dial(ctx, laneclient.Config{
		Control: r.cfg.Control, Transport: r.cfg.Transport, TokenFile: r.cfg.TokenFile,
		Service: r.cfg.Service, Lane: r.cfg.Lane, Room: r.cfg.Room, Instance: r.cfg.Instance,
		Endpoints: endpoints, NoListen: r.cfg.NoListen, Role: "run", TTL: r.cfg.TTL,
		Labels: r.cfg.Labels, Weight: r.cfg.Weight, Log: r.cfg.Log,
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
	var errs []error
	if r.client != nil {
		errs = append(errs, r.client.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	err := r.api.Do(ctx, http.MethodDelete, "/v1/instances/"+r.cfg.Service+"/"+r.cfg.Instance, nil, nil)
	var p *laneclient.Problem
	if errors.As(err, &p) && p.Status == http.StatusNotFound {
		err = nil
	}
	return errors.Join(append(errs, err)...)
}
