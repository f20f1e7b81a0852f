package lanetest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// kind is what handlers and watches know of a kind of object.
type kind struct {
	name  laneclient.Kind
	path  []string // the segments of an object's path below the kind
	empty func() any
	check func(name string) error // says what is wrong with an object's name
}

func kinds() []kind {
	one := []string{"name"}
	return []kind{
		{laneclient.KindLanes, one, func() any { return &laneclient.Lane{} }, checkLane},
		{laneclient.KindServices, one, func() any { return &laneclient.Service{} }, lane.CheckService},
		{laneclient.KindInstances, []string{"service", "name"}, func() any { return &laneclient.Instance{} }, checkInstance},
		{laneclient.KindRoutes, one, func() any { return &laneclient.Route{} }, lane.CheckInstance},
		{laneclient.KindRules, one, func() any { return &laneclient.Rule{} }, lane.CheckInstance},
		{laneclient.KindSessions, one, func() any { return &laneclient.Session{} }, lane.CheckInstance},
		{laneclient.KindEngines, one, func() any { return &laneclient.Engine{} }, checkEngineName},
		{laneclient.KindTopics, one, func() any { return &laneclient.Topic{} }, checkTopicName},
		{laneclient.KindGroups, one, func() any { return &laneclient.Group{} }, checkGroupName},
		{laneclient.KindMembers, []string{"group", "name"}, func() any { return &laneclient.Member{} }, checkMemberName},
		{laneclient.KindCursors, []string{"engine", "group", "topic", "partition"}, func() any { return &laneclient.Cursor{} }, checkCursorName},
	}
}

func kindOf(name laneclient.Kind) (kind, bool) {
	all := kinds()
	n := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if n < 0 {
		return kind{}, false
	}
	return all[n], true
}

// pattern is the path of one of its objects, as http.ServeMux reads it.
func (k *kind) pattern() string {
	return "/v1/" + string(k.name) + "/{" + strings.Join(k.path, "}/{") + "}"
}

// refOf is the object that a path names.
func (k *kind) refOf(r *http.Request) ref {
	segments := make([]string, len(k.path))
	for n, segment := range k.path {
		segments[n] = r.PathValue(segment)
	}
	return ref{k.name, strings.Join(segments, "/")}
}

// named is refOf for a request that writes: the name must be one.
func (k *kind) named(r *http.Request) (ref, error) {
	at := k.refOf(r)
	if err := k.check(at.name); err != nil {
		return at, invalid("name", "%v", err)
	}
	return at, nil
}

func checkLane(name string) error {
	_, err := lane.ParseName(name)
	return err
}

func checkInstance(path string) error {
	service, name, _ := strings.Cut(path, "/")
	return errors.Join(lane.CheckService(service), lane.CheckInstance(name))
}

// checkLog is for names around logs.
func checkLog(what, name string, most int) error {
	strange := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
	})
	if strange || name == "" || len(name) > most || name == "." || name == ".." {
		return fmt.Errorf("%s %.80q: want 1 to %d letters, digits, '.', '_' and '-'", what, name, most)
	}
	return nil
}

func checkEngineName(name string) error { return checkLog("engine", name, lane.MaxInstanceBytes) }

func checkTopicName(name string) error { return checkLog("topic", name, laneclient.MaxTopicBytes) }

func checkGroupName(name string) error { return checkLog("group", name, laneclient.MaxGroupBytes) }

func checkMemberName(path string) error {
	group, name, _ := strings.Cut(path, "/")
	return errors.Join(checkGroupName(group), checkLog("member", name, lane.MaxInstanceBytes))
}

func checkCursorName(name string) error {
	engine, group, topic, _, ok := laneclient.ParseCursorName(name)
	if !ok {
		return fmt.Errorf("cursor %.80q: want engine/group/topic/partition, with a partition of 0 to %d", name, laneclient.MaxPartition)
	}
	return errors.Join(checkEngineName(engine), checkGroupName(group), checkTopicName(topic))
}

// fieldsOf are the values of the fields by which objects like this one are selected.
func fieldsOf(obj any) map[string][]string {
	one := func(value string) []string { return []string{value} }
	switch o := obj.(type) {
	case *laneclient.Lane:
		return map[string][]string{"name": one(o.Name), "lane": one(o.Name), "parent": one(o.Parent)}
	case *laneclient.Service:
		return map[string][]string{"name": one(o.Name), "service": one(o.Name)}
	case *laneclient.Instance:
		fields := map[string][]string{"service": one(o.Service), laneclient.FieldCallable: nil, "lane": one(o.Lane), "session": one(o.Session)}
		if len(o.Endpoints) > 0 {
			fields[laneclient.FieldCallable] = one(o.Service)
		}
		return fields
	case *laneclient.Route:
		return map[string][]string{"name": one(o.Name), "service": one(o.Service)}
	case *laneclient.Rule:
		var lanes []string
		for _, share := range o.Lanes {
			lanes = append(lanes, share.Lane)
		}
		return map[string][]string{"name": one(o.Name), "lane": lanes}
	case *laneclient.Session:
		service, _, _ := strings.Cut(o.Instance, "/")
		return map[string][]string{"name": one(o.Name), "instance": one(o.Instance), "service": one(service)}
	case *laneclient.Engine:
		return map[string][]string{"name": one(o.Name), "session": one(o.Session)}
	case *laneclient.Topic:
		return map[string][]string{"name": one(o.Name), "topic": one(o.Name), "engine": one(o.Engine)}
	case *laneclient.Group:
		return map[string][]string{"name": one(o.Name), "group": one(o.Name), "engine": one(o.Engine), "topic": o.Topics}
	case *laneclient.Member:
		return map[string][]string{"group": one(o.Group), "engine": one(o.Engine), "lane": one(o.Lane), "session": one(o.Session)}
	case *laneclient.Cursor:
		return map[string][]string{"group": one(o.Group), "engine": one(o.Engine), "topic": one(o.Topic)}
	}
	return nil
}
