package lanetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/laneway-dev/laneway/lane"
)

// awaitTime is how long [Control.AwaitConsumer] waits.
const awaitTime = 10 * time.Second

// AwaitConsumer waits until a lane's consumers have what is theirs of a topic: in each of its
// partitions one of them runs the cursor of the lane's color; in the baseline, which is the
// zero name, that of plain messages. From then on a message that is sent is theirs for sure. A
// consumer that has just been started takes some milliseconds to come that far, and what is
// sent meanwhile may still be handled by whoever had the color before.
//
// It fails the test if that is not so within 10 s.
func (c *Control) AwaitConsumer(group, topic string, in lane.Name) {
	if c.t != nil {
		c.t.Helper()
	}
	late := time.NewTimer(awaitTime)
	defer late.Stop()
	for {
		c.reg.mu.Lock()
		missing, advanced := c.reg.missing(group, topic, in), c.reg.advanced
		c.reg.mu.Unlock()
		if missing == nil {
			return
		}
		select {
		case <-advanced:
		case <-late.C:
			where := "the baseline"
			if in != lane.Baseline {
				where = "lane " + string(in)
			}
			c.must(fmt.Sprintf("wait for consumers of topic %s for group %s in %s", topic, group, where), missing)
			return
		}
	}
}

// missing says what keeps a lane's consumers from having all that is theirs of a topic.
func (r *registry) missing(group, topic string, in lane.Name) error {
	g := r.group(group)
	if g == nil {
		return errors.New("there is no such group")
	}
	known := 0
	for _, s := range r.memory.Records(r.logs[group]) {
		if s.Partition.Topic != topic {
			continue
		}
		known++
		if h, _ := s.Record.Holder(in); h.None() || h.Lane != in || r.leases[h.Session] == nil {
			return fmt.Errorf("of partition %s they have nothing: %s", s.Partition, h)
		}
	}
	if known < max(1, g.Partitions[topic]) {
		return fmt.Errorf("%d of %d partitions have been begun with", known, max(1, g.Partitions[topic]))
	}
	return nil
}
