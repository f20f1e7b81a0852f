package laneclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Doer makes calls: an [*API] or a [*Client].
//
// The errors of every call here, and of all functions below unless they say more:
//   - [*Problem] where the control plane refuses: Status and Type say what, Detail what to
//     do. 400 and 422 are a request that is wrong, with the fields in Errors; 401 and 403
//     one that is not allowed; 404 an object that is not there ([IsNotFound]); 409 one that
//     does not fit with what is there; 412 a condition that does not hold, with the present
//     object in Current; 507 a registry that is full; 503 one that cannot be reached now.
//   - [*UnreachableError] where no replica has answered; a write may have been carried out
//     all the same. Where that is because ctx has ended, or the 10 s that a call without a
//     deadline is given, errors.Is finds context.Canceled or context.DeadlineExceeded in it.
//   - an error of no type of its own where nothing can be done about it: a Config.Control
//     that holds no URL, in that cannot be written as JSON, an answer that is not what the
//     API says.
type Doer interface {
	// Do makes one call: see [API.Do].
	Do(ctx context.Context, method, path string, in, out any, opts ...CallOption) error
}

// Object is any kind of object that the API stores.
type Object interface {
	Lane | Service | Instance | Route | Rule | Session | Topic | Engine | Group | Member | Cursor
}

// KindOf is the kind of T.
func KindOf[T Object]() Kind {
	var zero T
	switch any(zero).(type) {
	case Lane:
		return KindLanes
	case Service:
		return KindServices
	case Instance:
		return KindInstances
	case Route:
		return KindRoutes
	case Rule:
		return KindRules
	case Topic:
		return KindTopics
	case Engine:
		return KindEngines
	case Group:
		return KindGroups
	case Member:
		return KindMembers
	case Cursor:
		return KindCursors
	}
	return KindSessions
}

// PathOf is the path of an object: "/v1/lanes/green". The name of an instance is
// "service/instance".
func PathOf(kind Kind, name string) string {
	segments := strings.Split(name, "/")
	for n, s := range segments {
		segments[n] = url.PathEscape(s)
	}
	return "/v1/" + string(kind) + "/" + strings.Join(segments, "/")
}

// FullName is the name of an object as it stands in paths and events: "green",
// "order/order-7f" for an instance, "billing/billing-7f" for a member.
func FullName[T Object](obj *T) string {
	switch o := any(obj).(type) {
	case *Instance:
		return o.Service + "/" + o.Name
	case *Member:
		return o.Group + "/" + o.Name
	case *Cursor:
		return CursorName(o.Engine, o.Group, o.Topic, o.Partition)
	}
	return MetaOf(obj).Name
}

// Get reads one object. One that does not exist is a [*Problem] with status 404, see
// [IsNotFound]; other errors are those of [Doer].
func Get[T Object](ctx context.Context, d Doer, name string) (*T, error) {
	obj := new(T)
	if err := d.Do(ctx, http.MethodGet, PathOf(KindOf[T](), name), nil, obj); err != nil {
		return nil, err
	}
	return obj, nil
}

// Put writes an object and returns it as it is now stored. A lane, service or
// instance without conditions is created where it does not exist.
//
// Errors: those of [Doer]; of them, a condition ([IfMatch], [IfNoneMatch]) that does not
// hold is of type [ProblemChanged], an instance of a lane that is missing, draining or
// ended of type [ProblemLane], one on behalf of a session that has ended of type
// [ProblemSessionGone].
func Put[T Object](ctx context.Context, d Doer, obj *T, opts ...CallOption) (*T, error) {
	out := new(T)
	if err := d.Do(ctx, http.MethodPut, PathOf(KindOf[T](), FullName(obj)), obj, out, opts...); err != nil {
		return nil, err
	}
	return out, nil
}

// Delete deletes an object. A lane drains first; an instance takes all its sessions
// with it. Errors: those of [Doer]; of them, an object that is not there has status 404, a
// lane with children 409, a condition that does not hold is of type [ProblemChanged].
func Delete[T Object](ctx context.Context, d Doer, name string, opts ...CallOption) error {
	return d.Do(ctx, http.MethodDelete, PathOf(KindOf[T](), name), nil, nil, opts...)
}

// ListOptions choose what [ListAll] returns.
type ListOptions struct {
	Lane     string // "-": of the baseline
	Service  string
	Group    string // of members, cursors and groups
	Topic    string // of cursors, of groups that name it, and of topics
	Engine   string // of topics, groups, members and cursors
	PageSize int    // objects a call; zero: as the control plane likes
}

// ListAll reads all objects of a kind, page by page. revision is that of the last
// page; pages are read one after the other, so that an object may be missing or old
// that changed meanwhile. Errors: those of [Doer]; no objects are returned with one.
func ListAll[T Object](ctx context.Context, d Doer, opts ListOptions) (objects []T, revision uint64, err error) {
	raw, revision, err := ListRaw(ctx, d, KindOf[T](), opts)
	if err != nil {
		return nil, 0, err
	}
	objects = make([]T, len(raw))
	for i := range raw {
		if err := json.Unmarshal(raw[i], &objects[i]); err != nil {
			return nil, 0, fmt.Errorf("read an object of kind %s: %w", KindOf[T](), err)
		}
	}
	return objects, revision, nil
}

// ListRaw is [ListAll] of any kind, also of one that this version does not know, and
// leaves the objects as the control plane sends them.
func ListRaw(ctx context.Context, d Doer, kind Kind, opts ListOptions) (objects []json.RawMessage, revision uint64, err error) {
	query := url.Values{}
	set := func(key, value string) {
		if value != "" {
			query.Set(key, value)
		}
	}
	set("lane", opts.Lane)
	set("service", opts.Service)
	set("group", opts.Group)
	set("topic", opts.Topic)
	set("engine", opts.Engine)
	if opts.PageSize > 0 {
		set("limit", strconv.Itoa(opts.PageSize))
	}
	for {
		var page List
		path := "/v1/" + string(kind)
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		if err := d.Do(ctx, http.MethodGet, path, nil, &page); err != nil {
			return nil, 0, err
		}
		objects = append(objects, page.Items...)
		if page.Next == "" || page.Next == query.Get("after") {
			return objects, page.Revision, nil
		}
		query.Set("after", page.Next)
	}
}

// CreateLane creates a lane. One that exists already is a [*Problem] of type
// [ProblemExists], with the lane in Current; a parent that is missing or over one of type
// [ProblemLane]. Other errors are those of [Doer].
func CreateLane(ctx context.Context, d Doer, l *Lane) (*Lane, error) {
	out := &Lane{}
	if err := d.Do(ctx, http.MethodPost, "/v1/lanes", l, out); err != nil {
		return nil, err
	}
	return out, nil
}

// ExtendLane lets a lane expire a full TTL from now; ttl, if not zero, is its new
// one. A lane that drains or has ended is a [*Problem] of type [ProblemLane]; other errors
// are those of [Doer].
func ExtendLane(ctx context.Context, d Doer, name string, ttl Duration) (*Lane, error) {
	out := &Lane{}
	if err := d.Do(ctx, http.MethodPost, PathOf(KindLanes, name)+"/extend", Extension{TTL: ttl}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// HoldLane keeps a lane from expiring, or lets it expire again. Errors are those of
// [ExtendLane].
func HoldLane(ctx context.Context, d Doer, name string, held bool) (*Lane, error) {
	out := &Lane{}
	if err := d.Do(ctx, http.MethodPost, PathOf(KindLanes, name)+"/hold", Hold{Held: held}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// OpenSession opens a session; its Name is the id. Whoever opens one renews it,
// with [RenewSession], well within its TTL. Errors: those of [Doer]; of them, status 503
// where there are as many sessions as there may be.
func OpenSession(ctx context.Context, d Doer, s *Session) (*Session, error) {
	out := &Session{}
	if err := d.Do(ctx, http.MethodPost, "/v1/sessions", s, out); err != nil {
		return nil, err
	}
	return out, nil
}

// RenewSession prolongs a session. A session that is gone is a [*Problem] of type
// [ProblemSessionGone]: open another. One whose view lags by more than its TTL is one of
// type [ProblemStaleView]: watch another replica. Other errors are those of [Doer].
func RenewSession(ctx context.Context, d Doer, id string, r *Renewal) (*Renewed, error) {
	out := &Renewed{}
	if err := d.Do(ctx, http.MethodPost, PathOf(KindSessions, id)+"/renew", r, out); err != nil {
		return nil, err
	}
	return out, nil
}

// ExplainCall asks who would get a call, and why; that nobody would is no error but the
// Error of the answer. Errors: those of [Doer].
func ExplainCall(ctx context.Context, d Doer, service, color, protocol string) (*Explanation, error) {
	query := url.Values{"service": {service}, "color": {color}, "protocol": {protocol}}
	out := &Explanation{}
	if err := d.Do(ctx, http.MethodGet, "/v1/explain?"+query.Encode(), nil, out); err != nil {
		return nil, err
	}
	return out, nil
}

// IsNotFound reports whether err says that the object does not exist.
func IsNotFound(err error) bool {
	p := problemOf(err)
	return p != nil && p.Status == http.StatusNotFound && p.Type != ProblemNoRoute // of a gateway, which knows no objects
}
