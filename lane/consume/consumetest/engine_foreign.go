package consumetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/laneway-dev/laneway/lane/consume"
)

// foreignLate is how long an engine may take to tell that a foreign consumer came or went.
const foreignLate = 10 * time.Second

// checkForeign: who reads a topic past Laneway is told of as long as it does, with its group and
// where it reads; who reads through the engine is not, and of many some are named and all
// counted.
func checkForeign(ctx context.Context, e Engine) error {
	if !e.Caps().ForeignConsumers {
		if _, _, err := consume.FindForeign(ctx, e.Source, zero.Topic); !errors.Is(err, consume.ErrUnsupported) {
			return fmt.Errorf("the engine's Caps say that it cannot tell of foreign consumers, and asked it says: %w", orNil(err))
		}
		return nil
	}
	if _, ok := e.Source.(consume.ForeignFinder); !ok || e.Foreign == nil {
		return errors.New("the engine's Caps say ForeignConsumers: it has to be a ForeignFinder, and the test has to have Foreign")
	}
	if _, _, err := consume.FindForeign(ctx, e.Source, "nobody"); !errors.Is(err, consume.ErrNoTopic) {
		return fmt.Errorf("foreign consumers of a topic that is not there: %w", orNil(err))
	}
	for _, topic := range []string{zero.Topic, "others"} {
		if err := e.Ensure(ctx, consume.TopicSpec{Name: topic, Partitions: 2}); err != nil {
			return err
		}
	}
	if err := readOn(ctx, e); err != nil {
		return err
	}
	if err := foreignAre(ctx, e, zero.Topic); err != nil {
		return fmt.Errorf("while only the engine itself reads: %w", err)
	}
	second := consume.Partition{Topic: zero.Topic, Index: 1}
	leave, err := e.Foreign(ctx, "billing", second)
	if err != nil {
		return fmt.Errorf("a foreign consumer: %w", err)
	}
	if err := foreignAre(ctx, e, zero.Topic, second); err != nil {
		return fmt.Errorf("a consumer of group billing reads %s: %w", second, err)
	}
	if err := foreignAre(ctx, e, "others"); err != nil {
		return fmt.Errorf("a consumer reads another topic: %w", err)
	}
	if err := leave(); err != nil {
		return err
	}
	if err := foreignAre(ctx, e, zero.Topic); err != nil {
		return fmt.Errorf("the consumer has gone: %w", err)
	}
	return manyForeign(ctx, e)
}

// readOn reads a partition on and on as consumers do: many engines remember who does.
func readOn(ctx context.Context, e Engine) error {
	if err := fill(ctx, e, zero, 300, 9); err != nil {
		return err
	}
	_, err := all(ctx, e, zero, consume.Filter{All: true}, 100)
	return err
}

// foreignAre waits until the consumers of group billing that read a topic are those of these
// partitions, and nobody else does.
func foreignAre(ctx context.Context, e Engine, topic string, want ...consume.Partition) error {
	return foreignSoon(ctx, e, topic, func(found []consume.ForeignConsumer, more int) error {
		if more != 0 || !slices.EqualFunc(found, want, func(c consume.ForeignConsumer, p consume.Partition) bool {
			return c.In("billing") && (c.Partition == p || c.Partition.Topic == topic && c.Partition.Index < 0)
		}) {
			return fmt.Errorf("foreign consumers of %s are %+v and %d more, want those of group billing in %v", topic, found, more, want)
		}
		return nil
	})
}

// foreignSoon asks who reads a topic until it is as it should be.
func foreignSoon(ctx context.Context, e Engine, topic string, check func([]consume.ForeignConsumer, int) error) error {
	ctx, cancel := context.WithTimeout(ctx, foreignLate)
	defer cancel()
	for {
		found, more, err := consume.FindForeign(ctx, e.Source, topic)
		if err != nil {
			return fmt.Errorf("foreign consumers: %w", err)
		}
		if len(found) > consume.MaxForeignConsumers {
			return fmt.Errorf("%d foreign consumers are named, want %d at most", len(found), consume.MaxForeignConsumers)
		}
		err = check(found, more)
		if err == nil {
			return nil
		}
		pause := time.NewTimer(50 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

func manyForeign(ctx context.Context, e Engine) error {
	const n = consume.MaxForeignConsumers + 3
	for i := range n {
		leave, err := e.Foreign(ctx, fmt.Sprintf("group%03d", i), zero)
		if err != nil {
			return fmt.Errorf("foreign consumer %d: %w", i, err)
		}
		defer func() { _ = leave() }() // the engine goes with the test
	}
	return foreignSoon(ctx, e, zero.Topic, func(found []consume.ForeignConsumer, more int) error {
		if len(found) == 0 || len(found)+more != n {
			return fmt.Errorf("of %d foreign consumers %d are named and %d counted beside them", n, len(found), more)
		}
		return nil
	})
}
