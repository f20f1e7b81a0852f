package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/integrations/jetstream"
	"github.com/laneway-dev/laneway/lane/consume"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// engine is a message engine as roles and commands use it.
type engine interface {
	consume.Source
	consume.Topics
	// URL is where other processes open it; empty: nowhere.
	URL() string
	// Check asks whether it works, and says what is wrong.
	Check(ctx context.Context) error
	// List gives all topics, by name.
	List(ctx context.Context) ([]consume.TopicSpec, error)
	// Delete deletes a topic with all that it has.
	Delete(ctx context.Context, topic string) error
	// Count is how many messages a reader has before it.
	Count(ctx context.Context, p consume.Partition, from int64, f consume.Filter) (int64, error)
	// Remove deletes messages for good.
	Remove(ctx context.Context, p consume.Partition, offsets ...int64) error
	// Drop deletes all topics, and all that is left of them.
	Drop(ctx context.Context) error
}

// engineAt says which engine to open.
type engineAt struct {
	engineConfig
	dir    string // of an embedded one
	listen string // of an embedded one; empty: for this process alone
	room   string // of an embedded one
	log    *slog.Logger
}

// engineSchemes is how an engine is opened, by the scheme of its URL.
func engineSchemes() map[string]func(context.Context, engineAt) (engine, error) {
	return map[string]func(context.Context, engineAt) (engine, error){
		engineEmbedded: openEmbedded,
		"nats":         openNATS,
		"tls":          openNATS,
	}
}

// fetchWait is how long a read waits where there is nothing to read: whoever opens an engine
// here looks at what there is, and waits for no message.
const fetchWait = time.Millisecond

// openEngine opens an engine. Its URL has been checked.
func openEngine(ctx context.Context, at engineAt) (engine, error) {
	scheme, _, _ := strings.Cut(at.URL, "://")
	if at.embedded() {
		scheme = engineEmbedded
	}
	open, known := engineSchemes()[scheme]
	if !known {
		return nil, fmt.Errorf("engine %s is of a kind that this version does not know, %s://: use one that does", at.Name, scheme)
	}
	e, err := open(ctx, at)
	if err != nil {
		return nil, fmt.Errorf("engine %s: %w", at.Name, err)
	}
	return e, nil
}

func openEmbedded(ctx context.Context, at engineAt) (engine, error) {
	cfg := at.jetstream()
	cfg.Dir, cfg.Listen, cfg.Room, cfg.Log = at.dir, at.listen, at.room, at.log
	return opened(jetstream.Open(ctx, cfg))
}

func openNATS(ctx context.Context, at engineAt) (engine, error) {
	cfg := at.jetstream()
	cfg.URL, cfg.Access, cfg.Log, cfg.FetchWait = engineURL(at.URL), at.access(), at.log, fetchWait
	return opened(jetstream.Open(ctx, cfg))
}

// opened keeps an engine that is not there from looking like one.
func opened(e *jetstream.Engine, err error) (engine, error) {
	if err != nil {
		return nil, err
	}
	return e, nil
}

// openNamed opens an engine of the installation by its name; empty: the default one. called
// is its name.
func (a *app) openNamed(ctx context.Context, api *api, name string) (e engine, called string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	found, err := laneclient.FindEngine(ctx, api, name)
	if err != nil {
		return nil, "", err
	}
	e, err = openFound(ctx, found)
	return e, found.Name, err
}

// engineCache has the engines of the installation that a command has opened, by name: each
// is tried once.
type engineCache struct {
	app   *app
	api   *api
	tried map[string]triedEngine
}

type triedEngine struct {
	engine engine
	fault  error // why it is not open
}

func (c *engineCache) get(ctx context.Context, name string) (engine, error) {
	t, tried := c.tried[name]
	if !tried {
		t.engine, _, t.fault = c.app.openNamed(ctx, c.api, name)
		if c.tried == nil {
			c.tried = map[string]triedEngine{}
		}
		c.tried[name] = t
	}
	return t.engine, t.fault
}

// look gives an engine to ask what waits on it. Nil: it cannot be reached, which people are
// told once.
func (c *engineCache) look(ctx context.Context, name string) engine {
	_, told := c.tried[name]
	e, err := c.get(ctx, name)
	if err == nil {
		return e
	}
	if !told {
		fmt.Fprintf(c.app.stderr, "laneway: what waits on engine %s is not known: %s\n", name, sentence(err))
	}
	return nil
}

func (c *engineCache) close() {
	for _, t := range c.tried {
		if t.fault == nil {
			_ = t.engine.Close() // every call has been answered
		}
	}
}

// openFound opens an engine that the registry has.
func openFound(ctx context.Context, found *laneclient.Engine) (engine, error) {
	return openEngine(ctx, engineAt{engineConfig: engineConfig{Name: found.Name, URL: found.Address}})
}
