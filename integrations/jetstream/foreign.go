package jetstream

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nuid"

	"github.com/laneway-dev/laneway/lane/consume"
)

// MetaGroup is the metadata by which a consumer of JetStream says which group it is in, where
// its name is not the group's: a group's name may have dots, that of a consumer may not.
const MetaGroup = "laneway_group"

// followName is how the names of this package's own consumers begin; a nuid follows. By its
// name alone a consumer is told from those of others, of which the server has to be asked
// only so many.
const followName = "laneway-follow-"

// maxNames is how many names of a stream's consumers are looked at.
const maxNames = 1 << 17

func newFollowName() string { return followName + nuid.Next() }

// ours reports whether a consumer is a follow of this or another process.
func ours(consumer string) bool {
	id, ok := strings.CutPrefix(consumer, followName)
	return ok && len(id) == len(nuid.Next())
}

// ForeignConsumers tells which consumers of JetStream the streams of a topic have beside
// those that engines of this package make for themselves: durable ones and others, pull and
// push. The server does not say where their clients are, and nothing of who reads without a
// consumer. A consumer is in the group of its name, or in that of its metadata [MetaGroup].
func (e *Engine) ForeignConsumers(ctx context.Context, topic string) (found []consume.ForeignConsumer, more int, err error) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout*4)
	defer cancel()
	t, err := e.load(ctx, topic)
	if err != nil {
		return nil, 0, e.fault(err)
	}
	for i := range t.Partitions {
		l := newLog(e.cfg.Prefix, t.Name, t.Incarnation, i)
		names, err := e.foreignNames(ctx, l)
		if errors.Is(err, errGone) { // it is being deleted
			continue
		}
		if err != nil {
			return nil, 0, e.fault(err)
		}
		for _, name := range names {
			if len(found) >= consume.MaxForeignConsumers {
				more++
				continue
			}
			c, err := e.foreignConsumer(ctx, l, name)
			if isCode(err, codeNoConsumer) || errors.Is(err, errGone) {
				continue // it has just gone
			}
			if err != nil {
				return nil, 0, e.fault(err)
			}
			found = append(found, c)
		}
	}
	slices.SortFunc(found, func(a, b consume.ForeignConsumer) int { return a.Compare(&b) })
	return found, more, nil
}

// foreignNames are the names of a stream's consumers that are not of this package.
func (e *Engine) foreignNames(ctx context.Context, l log) (names []string, err error) {
	for offset := 0; offset < maxNames; {
		var page struct {
			answer
			Total     int      `json:"total"`
			Consumers []string `json:"consumers"`
		}
		if err := e.ask(ctx, "$JS.API.CONSUMER.NAMES."+l.stream, map[string]int{"offset": offset}, &page); err != nil {
			return nil, err
		}
		for _, name := range page.Consumers {
			if !ours(name) {
				names = append(names, name)
			}
		}
		offset += len(page.Consumers)
		if len(page.Consumers) == 0 || offset >= page.Total {
			break
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil // some may come while pages are turned
}

// foreignConsumer asks what a consumer is and how far it has got.
func (e *Engine) foreignConsumer(ctx context.Context, l log, name string) (c consume.ForeignConsumer, err error) {
	type reached struct {
		Stream int64     `json:"stream_seq"`
		Last   time.Time `json:"last_active"`
	}
	var info struct {
		answer
		Created time.Time `json:"created"`
		Config  struct {
			Durable  string            `json:"durable_name"`
			Push     string            `json:"deliver_subject"`
			Metadata map[string]string `json:"metadata"`
		} `json:"config"`
		Delivered reached `json:"delivered"`
		AckFloor  reached `json:"ack_floor"`
		Waiting   int     `json:"num_waiting"`
		Bound     bool    `json:"push_bound"`
	}
	if err := e.ask(ctx, "$JS.API.CONSUMER.INFO."+l.stream+"."+name, struct{}{}, &info); err != nil {
		return c, err
	}
	kind := "pull consumer"
	if info.Config.Push != "" {
		kind = "push consumer"
	}
	if info.Config.Durable != "" {
		kind = "durable " + kind
	}
	if info.Waiting > 0 || info.Bound {
		kind += ", connected"
	}
	active := info.Delivered.Last
	if info.AckFloor.Last.After(active) {
		active = info.AckFloor.Last
	}
	return consume.ForeignConsumer{
		Group: cmp.Or(info.Config.Metadata[MetaGroup], name), Name: name, Partition: l.p, Kind: kind,
		Since: info.Created, Active: active, Position: info.AckFloor.Stream + 1,
	}, nil
}
