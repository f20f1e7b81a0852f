package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// Limits of single fields of what is consumed.
const (
	maxResetIDBytes = 128
	offsetPrefix    = "offset:" // of a group's start
	maxAddressBytes = 2048      // of an engine; it may list several hosts
	minHandover     = time.Second
)

// checkLog is for names around logs: the alphabet of instances, and none of the two
// that paths give a meaning of their own.
func checkLog(what, name string, most int) error {
	plain := name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	})
	if !plain || len(name) > most || name == "." || name == ".." {
		return fmt.Errorf("%s %q: want 1 to %d letters, digits, '.', '_' and '-', and neither . nor .. alone", what, clip(name), most)
	}
	return nil
}

func checkEngineName(name string) error {
	return checkLog("engine", name, lane.MaxInstanceBytes)
}

func checkTopicName(name string) error {
	return checkLog("topic", name, laneclient.MaxTopicBytes)
}

func checkGroupName(name string) error {
	return checkLog("group", name, laneclient.MaxGroupBytes)
}

func checkMemberName(path string) error {
	group, name, found := strings.Cut(path, "/")
	if !found {
		return fmt.Errorf("member %q: want group/name", clip(path))
	}
	return errors.Join(checkGroupName(group), checkLog("member", name, lane.MaxInstanceBytes))
}

func checkCursorName(name string) error {
	engine, group, topic, _, ok := laneclient.ParseCursorName(name)
	if !ok {
		return fmt.Errorf("cursor %q: want engine/group/topic/partition, with a partition of 0 to %d", clip(name), laneclient.MaxPartition)
	}
	return errors.Join(checkEngineName(engine), checkGroupName(group), checkTopicName(topic))
}

func checkField(field string, err error, f *faults) {
	if err != nil {
		f.add(field, "%s", err.Error())
	}
}

// checkEngineField is for the engine that an object is of.
func checkEngineField(name string, f *faults) {
	if name == "" {
		f.add("engine", "is missing: name the engine that has the log; GET /v1/engines lists those that there are")
		return
	}
	checkField("engine", checkEngineName(name), f)
}

func checkEngine(obj any, f *faults) {
	e, _ := obj.(*laneclient.Engine)
	if !isToken(e.Scheme) {
		f.add("scheme", "is %q: want nats, rocketmq, kafka, or another word of a-z, 0-9, '.', '+' and '-'", clip(e.Scheme))
	}
	if e.Address == "" {
		f.add("address", "is missing: say how clients reach the engine, such as nats://127.0.0.1:7742")
	}
	checkText("address", e.Address, maxAddressBytes, f)
	if hosts, _, _ := strings.Cut(e.Address, "?"); strings.Contains(hosts, "@") { // not repeated: there may be a password in it
		f.add("address", "names a user, and everybody sees it who asks where the engine is: leave it out; clients have their credentials from their own environment, as in LANEWAY_ENGINE_CREDS_FILE")
	}
}

func checkTopic(obj any, f *faults) {
	t, _ := obj.(*laneclient.Topic)
	checkEngineField(t.Engine, f)
	if t.Partitions == 0 {
		t.Partitions = 1
	}
	if t.Partitions < 1 || t.Partitions > laneclient.MaxPartitions {
		f.add("partitions", "is %d: want 1 to %d", t.Partitions, laneclient.MaxPartitions)
	}
	if r := time.Duration(t.Retention); r < 0 || r > laneclient.MaxRetention {
		f.add("retention", "is %s: want up to %s, or zero for ever", r, laneclient.MaxRetention)
	}
	switch t.Durability {
	case "", laneclient.DurabilityFast, laneclient.DurabilityBounded, laneclient.DurabilitySync:
	default:
		f.add("durability", "is %q: want fast, bounded or sync, or leave it out for the engine's own", clip(t.Durability))
	}
}

func checkGroup(obj any, f *faults) {
	g, _ := obj.(*laneclient.Group)
	checkEngineField(g.Engine, f)
	checkTopics(g.Topics, laneclient.MaxGroupTopics, f)
	for _, topic := range slices.Sorted(maps.Keys(g.Partitions)) {
		at := "partitions." + clip(topic)
		checkField(at, checkTopicName(topic), f)
		if n := g.Partitions[topic]; n < 1 || n > laneclient.MaxPartition+1 {
			f.add(at, "is %d: want 1 to %d", n, laneclient.MaxPartition+1)
		}
	}
	checkStart(g, f)
	if len(g.Retry) > laneclient.MaxRetries {
		f.add("retry", "has %d delays: at most %d are allowed", len(g.Retry), laneclient.MaxRetries)
	}
	for n, d := range g.Retry {
		if v := time.Duration(d); v < 0 || v > laneclient.MaxRetryDelay {
			f.add("retry["+strconv.Itoa(n)+"]", "is %s: want 0s to %s", v, laneclient.MaxRetryDelay)
		}
	}
	between("handover_timeout", g.HandoverTimeout, minHandover, laneclient.MaxHandover, f)
	if g.HandoverTimeout == 0 {
		g.HandoverTimeout = laneclient.Duration(laneclient.DefaultHandover)
	}
	switch g.OnRegistryLoss {
	case laneclient.OnLossContinue, laneclient.OnLossHold:
	case "":
		g.OnRegistryLoss = laneclient.DefaultOnLoss
		if g.Ordered {
			g.OnRegistryLoss = laneclient.OnLossHold
		}
	default:
		f.add("on_registry_loss", "is %q: want continue or hold", clip(g.OnRegistryLoss))
	}
	checkReset(g.Reset, f)
}

func checkTopics(topics []string, most int, f *faults) {
	if len(topics) == 0 {
		f.add("topics", "is empty: name at least one topic")
	}
	if len(topics) > most {
		f.add("topics", "has %d entries: at most %d are allowed", len(topics), most)
		return
	}
	for n, topic := range topics {
		at := "topics[" + strconv.Itoa(n) + "]"
		checkField(at, checkTopicName(topic), f)
		if slices.Contains(topics[:n], topic) {
			f.add(at, "is there twice: leave one")
		}
	}
}

func checkStart(g *laneclient.Group, f *faults) {
	switch text, isOffset := strings.CutPrefix(g.Start, offsetPrefix); {
	case g.Start == "":
		g.Start = laneclient.DefaultStart
	case g.Start == laneclient.StartEarliest, g.Start == laneclient.StartLatest:
	case isOffset:
		if n, err := strconv.ParseInt(text, 10, 64); err != nil || n < 0 {
			f.add("start", "is %q: want a number of 0 and up after %s", clip(g.Start), offsetPrefix)
		}
	default:
		if _, err := time.Parse(time.RFC3339, g.Start); err != nil {
			f.add("start", "is %q: want earliest, latest, %sN, or a time such as 2006-01-02T15:04:05Z", clip(g.Start), offsetPrefix)
		}
	}
}

func checkReset(r *laneclient.GroupReset, f *faults) {
	if r == nil {
		return
	}
	if r.ID == "" {
		f.add("reset.id", "is missing: name this reset by what no other one is called")
	}
	checkText("reset.id", r.ID, maxResetIDBytes, f)
	if len(r.Offsets) > laneclient.MaxResetOffsets {
		f.add("reset.offsets", "has %d entries: at most %d are allowed", len(r.Offsets), laneclient.MaxResetOffsets)
		return
	}
	for _, partition := range slices.Sorted(maps.Keys(r.Offsets)) {
		at := "reset.offsets." + clip(partition)
		topic, index, _ := strings.Cut(partition, "/")
		if n, err := strconv.Atoi(index); err != nil || n < 0 || n > laneclient.MaxPartition || strconv.Itoa(n) != index {
			f.add(at, "is no partition: want topic/partition, such as orders/3")
			continue
		}
		checkField(at, checkTopicName(topic), f)
		if r.Offsets[partition] < 0 {
			f.add(at, "is %d: want an offset of 0 and up", r.Offsets[partition])
		}
	}
}

func checkMember(obj any, f *faults) {
	m, _ := obj.(*laneclient.Member)
	checkTopics(m.Topics, laneclient.MaxMemberTopics, f)
	if m.Lane != "" {
		_, err := lane.ParseName(m.Lane)
		checkField("lane", err, f)
	}
	checkText("room", m.Room, maxTextBytes, f)
	if c := m.Client; c != nil {
		checkText("client.name", c.Name, maxTextBytes, f)
		checkText("client.address", c.Address, maxTextBytes, f)
		checkText("client.version", c.Version, maxTextBytes, f)
	}
}

// checkCursor has nothing to check: cursors are written by writes, see checkWrite.
func checkCursor(any, *faults) {}

// readCursor makes the object of a record as it is stored.
func readCursor(name string, stored []byte) (any, error) {
	engine, group, topic, partition, ok := laneclient.ParseCursorName(name)
	if !ok || !json.Valid(stored) {
		return nil, errNoRecord
	}
	return &laneclient.Cursor{
		Meta: laneclient.Meta{Name: name}, Engine: engine, Group: group, Topic: topic, Partition: partition, Record: stored,
	}, nil
}

var errNoRecord = errors.New("is no record of a partition")

func groupOfItem(it *item) *laneclient.Group {
	if it == nil {
		return nil
	}
	g, _ := it.obj.(*laneclient.Group)
	return g
}

func memberOfItem(it *item) *laneclient.Member {
	m, _ := it.obj.(*laneclient.Member)
	return m
}
