package laneclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RoleEngine is the role of the session of a server that embeds a message engine.
const RoleEngine = "engine"

// ErrNoEngine is in the error of [FindEngine] and [API.Engine] where no engine is meant: there
// is none, none of that name, or several and none is the default one.
var ErrNoEngine = errors.New("no such message engine")

// FindEngine reads where a message engine is. The empty name is the default engine: the only
// one, or the one that is marked so; of several that are, the first by name. An engine that a
// server embeds is there as long as that server is connected.
//
// Errors: [ErrNoEngine] where none is meant, and otherwise those of [Doer].
func FindEngine(ctx context.Context, d Doer, name string) (*Engine, error) {
	if name != "" {
		e, err := Get[Engine](ctx, d, name)
		if IsNotFound(err) {
			return nil, fmt.Errorf("%w: %s: is the server that has it running, and connected to this control plane? (%w)", ErrNoEngine, name, err)
		}
		if err != nil {
			return nil, fmt.Errorf("look for engine %s: %w", name, err)
		}
		return e, nil
	}
	all, _, err := ListAll[Engine](ctx, d, ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look for an engine: %w", err)
	}
	if len(all) == 1 {
		return &all[0], nil
	}
	if i := slices.IndexFunc(all, func(e Engine) bool { return e.Default }); i >= 0 {
		return &all[i], nil
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: there is none: start a server with the role engine, or name one that there is with its --engine NAME=URL", ErrNoEngine)
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	return nil, fmt.Errorf("%w: none of %s is the default one: name one of them", ErrNoEngine, strings.Join(names, ", "))
}

// Engine gives the address of a message engine, as its integration opens it; empty name: the
// default engine. Errors are those of [FindEngine].
func (a *API) Engine(ctx context.Context, name string) (url string, err error) {
	e, err := FindEngine(ctx, a, name)
	if err != nil {
		return "", err
	}
	return e.Address, nil
}
