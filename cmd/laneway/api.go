package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// callTimeout bounds what a command asks of the control plane before it starts.
const callTimeout = 15 * time.Second

// api is the control plane as commands see it.
type api struct{ *laneclient.API }

func (a *app) api() *api { return a.apiAt(a.controlURLs()...) }

// apiAt is the API at some addresses.
func (a *app) apiAt(urls ...string) *api {
	return &api{laneclient.NewAPI(laneclient.Config{Control: urls, TokenFile: a.getenv(laneclient.EnvTokenFile)})}
}

// Do makes one call. An error that is no answer tells how to reach the control plane.
func (c *api) Do(ctx context.Context, method, path string, in, out any, opts ...laneclient.CallOption) error {
	return explainError(c.API.Do(ctx, method, path, in, out, opts...))
}

// unreachable says of a control plane that gave no answer what to do at a shell.
type unreachable struct{ *laneclient.UnreachableError }

func (e *unreachable) Error() string {
	return fmt.Sprintf("control plane not reachable at %s: start `laneway server`, or say where it is with --control or %s (%s)",
		strings.Join(e.Control, ", "), laneclient.EnvControl, e.cause())
}

func (e *unreachable) Unwrap() error { return e.UnreachableError }

// cause is why there was no answer, without the URL, which has been named.
func (e *unreachable) cause() string { return sentence(reasonOf(e.UnreachableError)) }

func explainError(err error) error {
	if p, ok := errors.AsType[*laneclient.Problem](err); ok && p.Type == laneclient.ProblemNoRoute {
		return errors.New("that is a gateway, not a control plane: say with --control or " + laneclient.EnvControl + " where that is, such as " + laneclient.DefaultControl)
	}
	if none, ok := errors.AsType[*laneclient.UnreachableError](err); ok {
		return &unreachable{none}
	}
	return err
}

// ofKind says of an object that is not there how to see what there is.
func ofKind(err error, word, name string) error {
	if !laneclient.IsNotFound(err) {
		return err
	}
	return fmt.Errorf("there is no %s %s: `laneway %s list` shows what there is", word, name, word)
}

// list returns all objects of a kind: empty, not null, in JSON.
func list[T laneclient.Object](ctx context.Context, c *api, opts laneclient.ListOptions) ([]T, error) {
	objects, _, err := laneclient.ListAll[T](ctx, c, opts)
	if objects == nil {
		objects = []T{}
	}
	return objects, err
}
