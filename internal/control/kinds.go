package control

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/laneway-dev/laneway/lane"
	"github.com/laneway-dev/laneway/lane/laneclient"
)

// kind is what the generic handlers and the cache need to know of a kind of object.
type kind struct {
	name laneclient.Kind
	typ  reflect.Type // of the object, a struct of laneclient
	// path names the segments of the path below the kind, as patterns of endpoints do.
	path []string
	// fields by which lists and watches can select, beside none.
	fields []string
	// checkName says what is wrong with an object's name.
	checkName func(name string) error
	// check completes and checks what a client sent; pure.
	check func(obj any, f *faults)
	// read makes the object of what is stored, where that is not the object's JSON; else nil.
	read func(name string, stored []byte) (any, error)
}

// kinds are all kinds that are stored, in the order in which they are listed.
func kinds() []*kind {
	const lane_, service, instance, session, name = "lane", "service", "instance", "session", "name"
	const callable = laneclient.FieldCallable
	const engine, group, topic, partition = "engine", "group", "topic", "partition"
	one := []string{name}
	return []*kind{
		{
			name: laneclient.KindLanes, typ: reflect.TypeFor[laneclient.Lane](), path: one,
			fields: []string{name, lane_, "parent"}, checkName: checkLaneName, check: checkLane,
		},
		{
			name: laneclient.KindServices, typ: reflect.TypeFor[laneclient.Service](), path: one,
			fields: []string{name, service}, checkName: lane.CheckService, check: checkService,
		},
		{
			name: laneclient.KindInstances, typ: reflect.TypeFor[laneclient.Instance](), path: []string{service, name},
			fields: []string{service, callable, lane_, session}, checkName: checkInstanceName, check: checkInstance,
		},
		{
			name: laneclient.KindRoutes, typ: reflect.TypeFor[laneclient.Route](), path: one,
			fields: []string{name, service}, checkName: checkPlainName, check: checkRoute,
		},
		{
			name: laneclient.KindRules, typ: reflect.TypeFor[laneclient.Rule](), path: one,
			fields: []string{name, lane_}, checkName: checkPlainName, check: checkRule,
		},
		{
			name: laneclient.KindSessions, typ: reflect.TypeFor[laneclient.Session](), path: one,
			fields: []string{name, instance, service}, checkName: checkPlainName, check: checkSession,
		},
		{
			name: laneclient.KindEngines, typ: reflect.TypeFor[laneclient.Engine](), path: one,
			fields: []string{name, session}, checkName: checkEngineName, check: checkEngine,
		},
		{
			name: laneclient.KindTopics, typ: reflect.TypeFor[laneclient.Topic](), path: one,
			fields: []string{name, topic, engine}, checkName: checkTopicName, check: checkTopic,
		},
		{
			name: laneclient.KindGroups, typ: reflect.TypeFor[laneclient.Group](), path: one,
			fields: []string{name, group, engine, topic}, checkName: checkGroupName, check: checkGroup,
		},
		{
			name: laneclient.KindMembers, typ: reflect.TypeFor[laneclient.Member](), path: []string{group, name},
			fields: []string{group, engine, lane_, session}, checkName: checkMemberName, check: checkMember,
		},
		{
			name: laneclient.KindCursors, typ: reflect.TypeFor[laneclient.Cursor](), path: []string{engine, group, topic, partition},
			fields: []string{group, engine, topic}, checkName: checkCursorName, check: checkCursor, read: readCursor,
		},
	}
}

func checkLaneName(name string) error {
	_, err := lane.ParseName(name)
	return err
}

func checkInstanceName(path string) error {
	service, name, found := strings.Cut(path, "/")
	if !found {
		return fmt.Errorf("instance %q: want service/name", path)
	}
	if err := lane.CheckService(service); err != nil {
		return err
	}
	return lane.CheckInstance(name)
}

// checkPlainName is for routes, rules and sessions: the alphabet of instances.
func checkPlainName(name string) error {
	if !isPlainName(name) {
		return fmt.Errorf("name %.80q: want 1 to %d letters, digits, '.', '_' and '-'", name, lane.MaxInstanceBytes)
	}
	return nil
}

func isPlainName(name string) bool { return lane.CheckInstance(name) == nil }

func (k *kind) newObject() any { return reflect.New(k.typ).Interface() }

// encode is the form in which an object is stored: without what is derived when it
// is shown, and with the fields of a newer version that stored has.
func (k *kind) encode(obj any, stored []byte) ([]byte, error) {
	c := reflect.New(k.typ)
	c.Elem().Set(reflect.ValueOf(obj).Elem())
	bare := c.Interface()
	laneclient.MetaOf(bare).Revision = 0
	switch o := bare.(type) {
	case *laneclient.Lane:
		o.LastUse = zeroTime()
	case *laneclient.Instance:
		o.Health = ""
	case *laneclient.Rule:
		o.Status = ""
	case *laneclient.Session:
		o.Reached = 0
	}
	b, err := json.Marshal(bare)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.name, err)
	}
	return keepUnknown(b, stored, k.typ), nil
}

// selector is one way to choose objects: a kind, or a kind and the value of a field.
type selector struct {
	kind         laneclient.Kind
	field, value string
}

// selectorsOf lists every selector that chooses the object.
func selectorsOf(k *kind, obj any) []selector {
	s := []selector{{kind: k.name}}
	add := func(field, value string) { s = append(s, selector{k.name, field, value}) }
	switch o := obj.(type) {
	case *laneclient.Lane:
		add("name", o.Name)
		add("lane", o.Name)
		add("parent", o.Parent)
	case *laneclient.Service:
		add("name", o.Name)
		add("service", o.Name)
	case *laneclient.Instance:
		add("service", o.Service)
		if len(o.Endpoints) > 0 {
			add(laneclient.FieldCallable, o.Service)
		}
		add("lane", o.Lane)
		add("session", o.Session)
	case *laneclient.Route:
		add("name", o.Name)
		add("service", o.Service)
	case *laneclient.Rule:
		add("name", o.Name)
		for n, share := range o.Lanes {
			if !mentions(o.Lanes[:n], share.Lane) {
				add("lane", share.Lane)
			}
		}
	case *laneclient.Session:
		add("name", o.Name)
		add("instance", o.Instance)
		service, _, _ := strings.Cut(o.Instance, "/")
		add("service", service)
	default:
		consumeSelectors(obj, add)
	}
	return s
}

// consumeSelectors are those of the kinds of consumption.
func consumeSelectors(obj any, add func(field, value string)) {
	switch o := obj.(type) {
	case *laneclient.Engine:
		add("name", o.Name)
		add("session", o.Session)
	case *laneclient.Topic:
		add("name", o.Name)
		add("topic", o.Name)
		add("engine", o.Engine)
	case *laneclient.Group:
		add("name", o.Name)
		add("group", o.Name)
		add("engine", o.Engine)
		for n, topic := range o.Topics {
			if !slices.Contains(o.Topics[:n], topic) {
				add("topic", topic)
			}
		}
	case *laneclient.Member:
		add("group", o.Group)
		add("engine", o.Engine)
		add("lane", o.Lane)
		add("session", o.Session)
	case *laneclient.Cursor:
		add("group", o.Group)
		add("engine", o.Engine)
		add("topic", o.Topic)
	}
}

func mentions(shares []laneclient.LaneShare, name string) bool {
	for _, s := range shares {
		if s.Lane == name {
			return true
		}
	}
	return false
}
