package lanetest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane/laneclient"
)

// What a client sends is completed and checked here as far as programs can be seen to rest on
// it. The first mistake is told.

func checkTopic(t *laneclient.Topic) error {
	if t.Partitions == 0 {
		t.Partitions = 1
	}
	if t.Partitions < 1 || t.Partitions > laneclient.MaxPartitions {
		return invalid("partitions", "is %d: want 1 to %d", t.Partitions, laneclient.MaxPartitions)
	}
	if r := time.Duration(t.Retention); r < 0 || r > laneclient.MaxRetention {
		return invalid("retention", "is %s: want up to %s, or zero for ever", r, laneclient.MaxRetention)
	}
	switch t.Durability {
	case "", laneclient.DurabilityFast, laneclient.DurabilityBounded, laneclient.DurabilitySync:
	default:
		return invalid("durability", "is %q: want fast, bounded or sync", t.Durability)
	}
	return checkEngine(t.Engine)
}

func checkEngine(name string) error {
	if err := checkEngineName(name); err != nil {
		return invalid("engine", "%v", err)
	}
	return nil
}

func checkTopics(topics []string, most int) error {
	if len(topics) == 0 || len(topics) > most {
		return invalid("topics", "has %d entries: want 1 to %d", len(topics), most)
	}
	for n, topic := range topics {
		at := fmt.Sprintf("topics[%d]", n)
		if err := checkTopicName(topic); err != nil {
			return invalid(at, "%v", err)
		}
		if slices.Contains(topics[:n], topic) {
			return invalid(at, "is there twice")
		}
	}
	return nil
}

func checkGroup(g *laneclient.Group) error {
	if g.HandoverTimeout == 0 {
		g.HandoverTimeout = laneclient.Duration(laneclient.DefaultHandover)
	}
	if g.Start == "" {
		g.Start = laneclient.DefaultStart
	}
	if g.OnRegistryLoss == "" {
		g.OnRegistryLoss = laneclient.DefaultOnLoss
		if g.Ordered {
			g.OnRegistryLoss = laneclient.OnLossHold
		}
	}
	for _, err := range []error{checkEngine(g.Engine), checkTopics(g.Topics, laneclient.MaxGroupTopics), checkPartitions(g), checkReset(g.Reset)} {
		if err != nil {
			return err
		}
	}
	for n, d := range g.Retry {
		if d < 0 || time.Duration(d) > laneclient.MaxRetryDelay || n >= laneclient.MaxRetries {
			return invalid(fmt.Sprintf("retry[%d]", n), "is %s: want up to %d delays of 0s to %s", time.Duration(d), laneclient.MaxRetries, laneclient.MaxRetryDelay)
		}
	}
	switch h := time.Duration(g.HandoverTimeout); {
	case !isStart(g.Start):
		return invalid("start", "is %q: want earliest, latest, offset:N, or a time", g.Start)
	case h < time.Second || h > laneclient.MaxHandover:
		return invalid("handover_timeout", "is %s: want 1s to %s", h, laneclient.MaxHandover)
	case g.OnRegistryLoss != laneclient.OnLossContinue && g.OnRegistryLoss != laneclient.OnLossHold:
		return invalid("on_registry_loss", "is %q: want continue or hold", g.OnRegistryLoss)
	}
	return nil
}

func checkPartitions(g *laneclient.Group) error {
	for _, topic := range slices.Sorted(maps.Keys(g.Partitions)) {
		if n := g.Partitions[topic]; checkTopicName(topic) != nil || n < 1 || n > laneclient.MaxPartition+1 {
			return invalid("partitions."+topic, "is %d: want the number of partitions of a topic", n)
		}
	}
	return nil
}

func isStart(text string) bool {
	if text == laneclient.StartEarliest || text == laneclient.StartLatest {
		return true
	}
	if offset, found := strings.CutPrefix(text, "offset:"); found {
		n, err := strconv.ParseInt(offset, 10, 64)
		return err == nil && n >= 0
	}
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}

func checkReset(r *laneclient.GroupReset) error {
	if r == nil {
		return nil
	}
	if r.ID == "" {
		return invalid("reset.id", "is missing: name this reset by what no other one is called")
	}
	for _, partition := range slices.Sorted(maps.Keys(r.Offsets)) {
		_, _, topic, _, ok := laneclient.ParseCursorName("-/-/" + partition)
		if !ok || checkTopicName(topic) != nil || r.Offsets[partition] < 0 {
			return invalid("reset.offsets."+partition, "is %d: want topic/partition, and an offset of 0 and up", r.Offsets[partition])
		}
	}
	return nil
}
