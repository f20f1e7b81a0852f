package jetstream

import (
	"context"
	"hash/fnv"
	"strings"

	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/laneway-dev/laneway/lane/consume"
)

// RoomTag is how the tags of servers begin that name their room, as room:east does. NATS has
// tags in lower case.
const RoomTag = "room:"

// Room is the room that a partition is in, by what its stream says to every client: the one of
// a tag in the stream's placement that begins with [RoomTag], where servers of one cluster are
// in several rooms; else the name of the cluster that the stream is in, as each data center of
// a supercluster has one. An embedded server is in [Config.Room]. Neither changes while leaders
// change: only whoever moves the stream, which NATS does without a gap, changes it.
func (e *Engine) Room(ctx context.Context, p consume.Partition) (room string, err error) {
	ctx, cancel := e.within(ctx, e.cfg.RequestTimeout)
	defer cancel()
	err = e.found(ctx, p, func(l log) error {
		info, err := e.info(ctx, l)
		room = info.room()
		return err
	})
	return room, e.fault(err)
}

func (i *streamInfo) room() string {
	for _, tag := range i.Config.Placement.Tags {
		if room, named := strings.CutPrefix(strings.ToLower(tag), RoomTag); named {
			return room
		}
	}
	return i.Cluster.Name
}

// placement is where a partition's stream is made; nil: where the engine is connected to.
// Topics begin at different rooms, so that those of one partition are not all in the same.
func (e *Engine) placement(topic string, partition int32) *natsjs.Placement {
	n := len(e.cfg.Rooms)
	if n == 0 {
		return nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(topic))
	first := int(h.Sum32() % uint32(n))
	return &natsjs.Placement{Cluster: e.cfg.Rooms[(first+int(partition))%n]}
}
