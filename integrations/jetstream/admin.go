package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane/consume"
)

// What people who look after topics need, beyond what consuming does.

// maxListed is how many topics List gives.
const maxListed = 10_000

// List gives all topics of the engine by name, at most 10,000 of them. One that is deleted
// meanwhile is left out.
func (e *Engine) List(ctx context.Context) ([]consume.TopicSpec, error) {
	return e.list(ctx, maxListed)
}

func (e *Engine) list(ctx context.Context, most int) ([]consume.TopicSpec, error) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout*4)
	defer cancel()
	prefix := e.cfg.Prefix + ".topics."
	var info struct {
		answer
		State struct {
			Subjects map[string]uint64 `json:"subjects"` // 100,000 at most
		} `json:"state"`
	}
	if err := e.ask(ctx, "$JS.API.STREAM.INFO."+e.topicsStream(), map[string]any{"subjects_filter": prefix + "*"}, &info); err != nil {
		return nil, e.fault(fmt.Errorf("list topics: %w", err))
	}
	var names []string
	for subject := range info.State.Subjects {
		if name, ok := decodeName(strings.TrimPrefix(subject, prefix)); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	out := []consume.TopicSpec{}
	for _, name := range names {
		if len(out) == most {
			break
		}
		t, err := e.load(ctx, name)
		if errors.Is(err, consume.ErrNoTopic) {
			continue
		}
		if err != nil {
			return nil, e.fault(err)
		}
		out = append(out, t.spec())
	}
	return out, nil
}

// Count says how many messages at or above from a reader with the filter has before it, of
// those that are given out now.
func (e *Engine) Count(ctx context.Context, p consume.Partition, from int64, f consume.Filter) (n int64, err error) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	err = e.found(ctx, p, func(l log) error {
		return e.heard(ctx, l, func() error {
			n, err = e.count(ctx, l, max(from, 1), f)
			return err
		})
	})
	return n, e.fault(err)
}

// count reads the first of them: the server says how many come after it.
func (e *Engine) count(ctx context.Context, l log, from int64, f consume.Filter) (int64, error) {
	g, err := e.directGet(ctx, l, from, map[string]any{"seq": from, "batch": 1, "next_by_subj": l.filter(f)}, 1)
	if err != nil || g.last == 0 {
		return 0, err
	}
	return 1 + g.more, nil
}

// Remove deletes messages from a partition's log for good. One that is not there is gone
// already. Whoever reads finds the next one.
func (e *Engine) Remove(ctx context.Context, p consume.Partition, offsets ...int64) error {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	err := e.found(ctx, p, func(l log) error {
		for _, offset := range offsets {
			var done struct{ answer }
			err := e.ask(ctx, "$JS.API.STREAM.MSG.DELETE."+l.stream, map[string]any{"seq": offset, "no_erase": true}, &done)
			if err != nil && !notThere(err) {
				return fmt.Errorf("remove %s@%d: %w", p, offset, err)
			}
		}
		return nil
	})
	return e.fault(err)
}

// notThere reports whether a deletion was refused since there is nothing to delete. The server
// says so in one of several ways; one of them tells what is wrong by its text alone.
func notThere(err error) bool {
	var a *apiError
	if !errors.As(err, &a) {
		return false
	}
	switch a.ErrCode {
	case codeNoMessage, codeNoSequence:
		return true
	case codeDeleteFailed:
		return strings.Contains(a.Description, "no message found") || strings.Contains(a.Description, "EOF")
	}
	return false
}

// Drop deletes all topics of the engine, and then what it keeps of them: nothing of its prefix
// is left on the server. The engine can only be closed after that. Nobody else may use it.
func (e *Engine) Drop(ctx context.Context) error { return e.drop(ctx, maxListed) }

// drop does it, so many topics at a time.
func (e *Engine) drop(ctx context.Context, most int) error {
	for {
		topics, err := e.list(ctx, most)
		if err != nil {
			return err
		}
		if len(topics) == 0 {
			break
		}
		for _, t := range topics {
			if err := e.Delete(ctx, t.Name); err != nil && !errors.Is(err, consume.ErrNoTopic) {
				return err
			}
		}
	}
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	return e.fault(e.js.DeleteStream(ctx, e.topicsStream()))
}
